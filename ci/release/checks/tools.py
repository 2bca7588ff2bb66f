"""Runs the programs that look at wheels: auditwheel, abi3audit, check-wheel-contents and twine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ci.release.wheelfile import Wheel
from ci.rows import Row

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LEGACY = {"manylinux1": "2_5", "manylinux2010": "2_12", "manylinux2014": "2_17"}


class ToolError(Exception):
    """A program is missing, or its output is not what it should be."""


def run(tool: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed, whatever its exit status.

    Raises
    ------
    ToolError
        The program is not installed.
    """
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    command = (tool, *arguments)
    try:
        return subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ToolError(f"{tool} is not installed; `nox -s check_wheels` installs it") from error


def words(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed program printed, on one line."""
    text = COLOUR.sub("", done.stdout + done.stderr)
    return " ".join(text.split())[-500:] or f"exit status {done.returncode}, no words"


def glibc(platform: str) -> tuple[int, ...]:
    """Return the GLIBC version of a platform, (2, 28) of ``manylinux_2_28_x86_64``; the highest where it has none."""
    for name, version in LEGACY.items():
        platform = platform.replace(f"{name}_", f"manylinux_{version}_")
    found = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return tuple(map(int, found.groups())) if found else (sys.maxsize,)


def auditwheel(wheel: Wheel, _: Row) -> Iterator[str]:
    """Auditwheel finds no newer platform than the tag's, and no library that the platform lacks."""
    done = run("auditwheel", "show", "--json", str(wheel.path))
    try:
        report = json.loads(done.stdout)
    except ValueError:
        yield words(done)
        return
    for platform in wheel.platforms:
        if glibc(report["overall_tag"]) > glibc(platform):
            yield f"the wheel is {report['overall_tag']}, tagged {platform}"
    for name in sorted(report["external_libs"]):
        yield f"{name} is no library of manylinux"
    if report["unsupported_isa"]:
        yield "a library needs more than the baseline instruction set"


def abi3audit(wheel: Wheel, row: Row) -> Iterator[str]:
    """A wheel tagged abi3 uses the limited API of its Python only."""
    if row.tag.endswith("abi3"):
        done = run("abi3audit", "--strict", str(wheel.path))
        if done.returncode:
            yield words(done)


def check_wheel_contents(wheel: Wheel, row: Row) -> Iterator[str]:
    """check-wheel-contents has nothing to say, and finds the row's package alone at the top."""
    done = run("check-wheel-contents", "--no-config", "--toplevel", row.package, str(wheel.path))
    if done.returncode:
        yield words(done)


def twine(wheel: Wheel, _: Row) -> Iterator[str]:
    """An index would take and render the metadata."""
    yield from twine_faults(wheel.path)


def twine_faults(path: Path) -> Iterator[str]:
    """Return what ``twine check --strict`` says of a wheel or an sdist."""
    done = run("twine", "check", "--strict", str(path))
    if done.returncode:
        yield words(done)
