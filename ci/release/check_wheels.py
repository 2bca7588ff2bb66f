"""Checks wheels before anyone installs them.

``python -m ci.release.check_wheels PATH...`` prints a table and every fault.
A check is a function of a wheel and its row that yields what is wrong, in words. Source distributions are shown to
twine only. All wheels must be of one commit, without changes to it, which ``--any-commit`` waives, and of the version
of the tag that a hosted workflow runs for. The exit status is 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from cuobjdump import CuobjdumpError
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.table import Column, Table

from ci.release.checks import contents, libraries, machine_code, provenance, tools
from ci.release.wheelfile import Wheel, WheelError
from ci.rows import Row, rows

Check = Callable[[Wheel, Row], Iterable[str]]
Faults = dict[str, list[str]]

CHECKS: dict[str, Check] = {
    "auditwheel": tools.auditwheel,
    "abi3audit": tools.abi3audit,
    "check-wheel-contents": tools.check_wheel_contents,
    "twine": tools.twine,
    "tag": contents.tag,
    "RECORD": contents.record,
    "files": contents.files,
    "licences": contents.licences,
    "requirements": contents.requirements,
    "size": contents.size,
    "GLIBC": libraries.glibc,
    "NEEDED": libraries.needed,
    "manifest": provenance.manifest,
    "SBOM": provenance.sbom,
    "arch": machine_code.arch,
    "kernels": machine_code.kernels,
    "instructions": machine_code.instructions,
}


def faults(path: Path) -> tuple[Wheel | None, Faults]:
    """Return a wheel and what each check says of it; no wheel where it cannot be opened."""
    try:
        wheel = Wheel.read(path)
    except WheelError as error:
        return None, {"archive": [str(error)]}
    row = next((row for row in rows() if canonicalize_name(row.distribution) == wheel.name), None)
    if row is None:
        return wheel, {"row": [f"ci/wheels.toml has no row for {wheel.name}"]}
    return wheel, {name: listed(check, wheel, row) for name, check in CHECKS.items()}


def listed(check: Check, wheel: Wheel, row: Row) -> list[str]:
    """Return what a check says of a wheel, including that it cannot be done."""
    try:
        return list(check(wheel, row))
    except (tools.ToolError, CuobjdumpError) as error:
        return [str(error)]
    except Exception as error:  # a wheel that a check cannot even read is at fault, and the others are still checked
        return [f"cannot be checked: {type(error).__name__}: {error}"]


def disagreements(wheels: Sequence[Wheel]) -> list[str]:
    """Say where wheels that belong together disagree on their version or the hash of their ABI."""
    found = []
    versions = {str(wheel.version) for wheel in wheels}
    if len(versions) > 1:
        found.append(f"the wheels have versions {', '.join(sorted(versions))}")
    try:
        hashes = {str(document["abi_hash"]) for document in documents(wheels, "registry.json")}
    except (ValueError, KeyError, TypeError):
        return [*found, "a registry.json has no abi_hash"]
    if len(hashes) > 1:
        found.append(f"the wheels have ABI hashes {', '.join(sorted(hashes))}")
    return found


def commits(wheels: Sequence[Wheel]) -> list[str]:
    """Say where wheels were not built from one commit as it is."""
    try:
        built = {(document["commit"], document["dirty"]) for document in documents(wheels, "manifest.json")}
    except (ValueError, KeyError, TypeError):
        return ["a manifest.json does not say its commit, or whether that was changed"]
    if len(built) < 2 and all(commit and not dirty for commit, dirty in built):
        return []
    names = sorted(f"{commit or 'unknown'}{' with changes' if dirty else ''}" for commit, dirty in built)
    mend = "build all of them from one commit without changes, or check them with --any-commit"
    return [f"the wheels were built from commit {' and '.join(names)}; {mend}"]


def other_versions(wheels: Sequence[Wheel], tag: str) -> list[str]:
    """Say which wheels are not of the version that a tag names."""
    mend = "tag the commit whose pyproject.toml has that version"
    return [f"{wheel.path.name} is not of tag {tag}; {mend}" for wheel in wheels if tag != f"v{wheel.version}"]


def documents(wheels: Sequence[Wheel], name: str) -> list[Any]:
    """Return the JSON files of a name that wheels hold."""
    found = [data for wheel in wheels for path, data in wheel.files.items() if path.endswith(f"/{name}")]
    return [json.loads(data) for data in found]


def report(results: dict[str, Faults], console: Console) -> None:
    """Print a column per wheel, a row per check, then every fault."""
    table = Table("check", *(Column(name, overflow="fold") for name in results))
    for check in dict.fromkeys(check for found in results.values() for check in found):
        cells = [_cell(found.get(check)) for found in results.values()]
        table.add_row(check, *cells)
    console.print(table)
    for name, found in results.items():
        for check, problems in found.items():
            for problem in problems:
                console.print(f"{name}: {check}: {problem}", style="red", markup=False, soft_wrap=True)


def _cell(problems: list[str] | None) -> str:
    if problems is None:
        return "-"
    return f"[red]{len(problems)} wrong[/]" if problems else "[green]ok[/]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--any-commit", action="store_true", help="take wheels of several commits, or of changed ones")
    options = parser.parse_args(arguments)
    results: dict[str, Faults] = {}
    wheels: list[Wheel] = []
    for path in options.paths:
        if path.suffix != ".whl":
            results[path.name] = {"twine": list(tools.twine_faults(path))}
            continue
        wheel, results[path.name] = faults(path)
        wheels += [wheel] if wheel else []
    together = {"agreement": disagreements(wheels)}
    if not options.any_commit:
        together["commit"] = commits(wheels)
    reference = os.environ.get("GITHUB_REF", "")
    if reference.startswith("refs/tags/v"):
        together["version"] = other_versions(wheels, reference.removeprefix("refs/tags/"))
    results["all together"] = together
    report(results, Console(width=max(100, 26 * (len(results) + 1))))
    return 1 if any(problems for found in results.values() for problems in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
