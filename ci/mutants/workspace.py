"""A scratch copy of the sources in which one mutant after the other is applied, built and tested."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.mutants.mutant import Mutant

IDENTITY = ("-c", "user.name=mutants", "-c", "user.email=mutants@localhost")
FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)


class BuildError(Exception):
    """The sources do not compile; the message is what the compiler said."""


@dataclass(frozen=True, slots=True)
class Run:
    """What pytest said: its exit status, ``None`` where it was stopped at its limit, and the first test that failed."""

    status: int | None
    failed: str
    output: str


class Workspace:
    """A copy of the sources, a build folder, and a folder from which Python imports what was built."""

    def __init__(self, folder: Path, source: Path, environment: Mapping[str, str]) -> None:
        self.source, self.build, self.site = folder / "source", folder / "build", folder / "site"
        self._environment = environment
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(source, self.source, symlinks=True)
        # Some tests ask for the commit of the sources.
        for arguments in (("init", "-q"), ("add", "--all"), ("commit", "-q", "-m", "The sources")):
            subprocess.run(["git", "-C", self.source, *IDENTITY, *arguments], check=True, capture_output=True)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Have a mutant applied in the block."""
        path = self.source / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def make_with(self, mutant: Mutant, defines: Mapping[str, str], site: Path) -> None:
        """Build a payload in which only the objects of ``mutant.units`` are of the mutant, and install it.

        A header is included by nearly all units. Once its objects are compiled, the file gets its old text and time
        back, so that the other objects stay as they are and the library is complete.

        Raises
        ------
        BuildError
            Something does not compile.
        """
        path, build = self.source / mutant.file, self.build / mutant.table
        if not mutant.units:
            with self.mutated(mutant):
                self.make(mutant.table, defines, site)
            return
        self.make(mutant.table, defines)
        objects = [found for unit in mutant.units for found in sorted(build.rglob(f"{unit}.c*.o"))]
        if len(objects) != len(mutant.units):
            raise BuildError(f"{mutant.name}: the units {mutant.units} have the objects {objects}")
        text, times = path.read_text(encoding="utf-8"), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        try:
            path.write_text(mutant.applied(text), encoding="utf-8")
            for found in objects:
                found.unlink()
            self._run("ninja", "-C", build, *(found.relative_to(build) for found in objects))
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=times)
            self.make(mutant.table, defines, site)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=times)
            for found in objects:
                found.unlink(missing_ok=True)

    def make(self, payload: str, defines: Mapping[str, str], site: Path | None = None) -> None:
        """Build the core or a payload, and install it in ``site`` as a wheel would be.

        Raises
        ------
        BuildError
            Something does not compile.
        """
        core = payload == "cpu"
        project = self.source if core else self.source / "generated" / payload
        build, site = self.build / payload, site or self.site
        defines = {
            "CMAKE_BUILD_TYPE": "Release",
            "MLA_PAYLOAD": "" if core else payload,
            "SKBUILD_PROJECT_VERSION_FULL": str(_stated(project)["version"]),
            **defines,
        }
        configure: list[str | Path] = ["cmake", "-S", self.source / "package", "-B", build, "-G", "Ninja"]
        self._run(*configure, *(f"-D{name}={value}" for name, value in defines.items()))
        self._run("cmake", "--build", build)
        # CMake takes a library for installed already that is less than a second older than the one it has built.
        for library in site.rglob("*.so"):
            library.unlink()
        self._run("cmake", "--install", build, "--prefix", site, "--strip")
        if core:
            self.copy_python()
            return
        package = f"mla_kernels_{payload}"
        shutil.copytree(project / package, site / package, dirs_exist_ok=True)
        _describe(site, project)

    def copy_python(self) -> None:
        """Bring the modules of the core to where Python imports them, and record them as an installation does."""
        shutil.copytree(self.source / "package" / "mla_kernels", self.site / "mla_kernels", dirs_exist_ok=True)
        _describe(self.site, self.source)

    def test(self, tests: Sequence[str], seconds: float, *options: str) -> Run:
        """Run tests against what was built, up to the first failure."""
        return pytest(self.source, self.site, tests, seconds, *options)

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(
            list(map(str, command)), env=dict(self._environment), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def pytest(root: Path, site: Path | None, tests: Sequence[str], seconds: float, *options: str) -> Run:
    """Run tests of a clone with the packages of ``site`` before those that are installed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", *options, *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    status: int | None = None
    try:
        output, _ = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    failed = FAILED.search(output)
    return Run(status, failed[1] if failed else "", output)


def _stated(project: Path) -> Mapping[str, object]:
    """What a project says of its distribution."""
    found: Mapping[str, object] = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def _describe(site: Path, folder: Path) -> None:
    """Write the metadata of a project's distribution, by which payloads are found and files are checked."""
    project = _stated(folder)
    name = str(project["name"])
    package = name.replace("-", "_")
    info = site / f"{package}-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(header, encoding="utf-8")
    groups = dict(_table(project.get("entry-points")))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    lines = [line for group, entries in groups.items() for line in _section(group, entries)]
    (info / "entry_points.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    packages = sorted(path for path in (site / package).rglob("*") if path.is_file())
    record = [f"{path.relative_to(site).as_posix()},sha256={_digest(path)},{path.stat().st_size}" for path in packages]
    (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,", ""]), encoding="utf-8")


def _section(group: str, entries: object) -> list[str]:
    return [f"[{group}]", *(f"{name} = {value}" for name, value in _table(entries).items())]


def _table(stated: object) -> Mapping[str, object]:
    return stated if isinstance(stated, Mapping) else {}


def _digest(path: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
