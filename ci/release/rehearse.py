"""Rehearses a release: ``nox -s rehearse`` runs the commands of ``docs/releasing.md`` against an index of its own.

The page is the program. Each of its steps is either run, once or with every Python, or is named here with the reason
why it is not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.rows import ROOT

PAGE = ROOT / "docs" / "releasing.md"
DIST = ROOT / "dist"
PYTHONS = tuple(f"python3.{minor}" for minor in range(10, 15))
ONCE = ("3. Build", "4. Check", "5. Upload")
WITH_EVERY_PYTHON = ("6. Install", "7. Run doctor")
NOT_REHEARSED = {
    "1. Set the version": "it changes the sources",
    "2. Gather the evidence": "it takes GPUs and hours",
    "cibuildwheel": "it needs a container engine",
}
STEP = re.compile(r"^## (.+)\n", re.MULTILINE)
BLOCK = re.compile(r'^```sh(?: title="(?P<title>.*)")?\n(?P<text>.*?)^```', re.MULTILINE | re.DOTALL)
SECONDS_TO_START = 20


@dataclass(frozen=True)
class Step:
    """A section of the page, and the commands that the rehearsal runs for it."""

    name: str
    commands: tuple[str, ...]


def steps(page: str) -> tuple[Step, ...]:
    """Return the steps of the page, in order; of a step with a block titled "Rehearsed", that block only."""
    _, *parts = STEP.split(page)
    found = []
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        blocks = list(BLOCK.finditer(text))
        chosen = [block for block in blocks if block["title"] == "Rehearsed"] or blocks
        found.append(Step(name, tuple(line for block in chosen for line in block["text"].splitlines() if line)))
    return tuple(found)


def fresh(dist: Path, commit: str) -> bool:
    """Whether a folder holds an sdist, and wheels of the core and of sm90 that were built from a commit."""
    manifests = {"cpu": "mla_kernels/payloads/cpu/manifest.json", "sm90": "mla_kernels_sm90/manifest.json"}
    wheels = {"cpu": list(dist.glob("mla_kernels-*.whl")), "sm90": list(dist.glob("mla_kernels_sm90-*.whl"))}
    if not list(dist.glob("mla_kernels-*.tar.gz")) or not all(wheels.values()):
        return False
    built = set()
    for payload, paths in wheels.items():
        for path in paths:
            with zipfile.ZipFile(path) as wheel:
                manifest = json.loads(wheel.read(manifests[payload]))
            built.add((manifest["commit"], manifest["dirty"]))
    return built == {(commit, False)}


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """Serve an empty index that takes uploads on a free port of the loopback interface, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = str(Path(sys.executable).with_name("pypi-server"))
    options = ["--interface=127.0.0.1", f"--port={port}", "--passwords=.", "--authenticate=.", "--disable-fallback"]
    with subprocess.Popen([program, "run", *options, str(folder)]) as server:
        try:
            _wait(port, server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the index server did not start")


def environment(url: str) -> dict[str, str]:
    """Return an environment in which pip and twine know the index at ``url`` and no other."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "TWINE_", "PYTHON")) and not name.lower().endswith("_proxy")
    }
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_INDEX_URL": f"{url}/simple/",
        "PIP_NO_CACHE_DIR": "1",
        "TWINE_REPOSITORY_URL": url,
        "TWINE_USERNAME": "rehearsal",
        "TWINE_PASSWORD": "any",
    }


def pythons() -> list[str]:
    """Return the interpreters of this machine that run; a shim of a version manager may lead nowhere."""
    found = []
    for name in filter(shutil.which, PYTHONS):
        done = subprocess.run([name, "-c", "import venv"], capture_output=True, check=False)
        found += [name] if done.returncode == 0 else []
    return found


def follow(step: Step, variables: Mapping[str, str]) -> None:
    """Run the commands of a step in the root of the repository.

    Raises
    ------
    SystemExit
        A command failed; the message names it and its step.
    """
    for command in step.commands:
        print(f"{step.name}: {command}", flush=True)
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=dict(variables), check=False)
        if done.returncode:
            raise SystemExit(f"the rehearsal of {PAGE.name} failed in step {step.name!r}: {command}")


def main() -> None:
    """Follow the page, and say with which Pythons."""
    by_name = {step.name: step for step in steps(PAGE.read_text(encoding="utf-8"))}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    outside = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    build, check, upload = (by_name[name] for name in ONCE)
    if fresh(DIST, commit.strip()):
        print(f"{build.name}: skipped, dist/ is of commit {commit.strip()}")
    else:
        follow(build, outside)
    follow(check, outside)
    found = pythons()
    with tempfile.TemporaryDirectory() as folder, index(Path(folder)) as url:
        variables = environment(url)
        follow(upload, variables)
        for python in found:
            for name in WITH_EVERY_PYTHON:
                follow(by_name[name], {**variables, "PYTHON": python})
    absent = ", ".join(name for name in PYTHONS if name not in found) or "none"
    print(f"rehearsed with {', '.join(found)}; not on this machine: {absent}")
    if not found:
        raise SystemExit("no Python of the supported ones was found, so nothing was installed")


if __name__ == "__main__":
    main()
