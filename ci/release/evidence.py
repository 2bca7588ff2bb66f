"""Evidence is what test runs on a GPU showed of a library: ``docs/evidence/<payload>.json``; ``nox -s evidence``.

``check`` fails where evidence is of another library than the sources build, and does not say so itself by ``stale``, a
reason in words. ``write`` makes evidence from what ``ci.measure.instructions`` found in a wheel and reports of its test
runs; ``restate`` lets evidence name today's sources where they build the very library that was tested. ``wheels`` says
of each GPU wheel in ``dist/`` whether its library ran; a release fails where evidence of its platform is of another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sources import sources_sha256

from ci.rows import ROOT

EVIDENCE = ROOT / "docs" / "evidence"
DIST = ROOT / "dist"
KEPT = ("payload", "commit", "dirty", "sources_sha256", "name", "sha256", "bytes", "compilers")

RUN = "run"
"""The state of a payload whose kernels ran on a GPU of their own arch."""

Document = dict[str, Any]


def tests(reports: Sequence[Path]) -> dict[str, dict[str, int]]:
    """Count the outcomes of junit reports by test file and function."""
    found: dict[str, Counter[str]] = {}
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        outcomes = {"failure": "failed", "error": "failed", "skipped": "not run"}
        outcome = next((outcomes[child.tag] for child in case if child.tag in outcomes), "passed")
        found.setdefault(name, Counter())[outcome] += 1
    return {name: dict(counts) for name, counts in sorted(found.items())}


def written(options: argparse.Namespace) -> Document:
    """Return evidence of what was built and what was run.

    Raises
    ------
    SystemExit
        A test failed, or none ran.
    """
    wheel = json.loads(options.wheel.read_text())
    ran = {name: counts for name, counts in tests(options.junit).items() if any(part in name for part in options.tests)}
    failed = [name for name, counts in ran.items() if counts.get("failed")]
    if failed or not ran:
        raise SystemExit(f"no evidence: {', '.join(failed) or 'nothing ran'}")
    evidence: Document = {"state": options.state, "gpu": options.gpu}
    evidence |= {name: wheel[name] for name in KEPT}
    evidence["library_sha256"] = wheel["files"][f"libmla_{wheel['payload']}.so"]["sha256"]
    evidence["variants"] = wheel["kernels"]
    if options.ran:
        evidence["ran"] = {"wheel": options.ran.name, "sha256": hashlib.sha256(options.ran.read_bytes()).hexdigest()}
    evidence["passed"] = sum(counts.get("passed", 0) for counts in ran.values())
    evidence["not_run"] = sum(counts.get("not run", 0) for counts in ran.values())
    evidence["tests"] = ran
    return evidence


def built(payload: str, dist: Path) -> Document | None:
    """Read the manifest of a payload's wheel in a folder, if one is there."""
    paths = list(dist.glob(f"mla_kernels_{payload}-*.whl"))
    return manifest_of(paths[0]) if paths else None


def manifest_of(path: Path) -> Document:
    """Read the manifest of a payload's wheel."""
    with zipfile.ZipFile(path) as wheel:
        found: Document = json.loads(wheel.read(f"{path.name.partition('-')[0]}/manifest.json"))
    return found


def library_in(manifest: Document) -> str:
    """Return the hash of the library that a manifest states."""
    sha256: str = manifest["files"][f"libmla_{manifest['payload']}.so"]["sha256"]
    return sha256


def library_of(today: str, manifest: Document | None, compilers: Document) -> str | None:
    """Return the hash of the library that sources of the hash ``today`` build, if a wheel tells it.

    It does if it is of these sources, and the same compilers built it: others give other bytes.
    """
    if manifest is None or manifest["sources_sha256"] != today or manifest["compilers"] != compilers:
        return None
    return library_in(manifest)


def difference(evidence: Document, today: str, manifest: Document | None) -> str:
    """Say how evidence misses today's library; nothing where it does not. Without a wheel, sources are compared."""
    tested, library = evidence["library_sha256"], library_of(today, manifest, evidence["compilers"])
    if library == tested or (library is None and evidence.get("sources_sha256") == today):
        return ""
    builds = f"the sources build {library[:12]}" if library else "built from other sources than today's"
    return f"it is of library {tested[:12]}, {builds}"


def verdict(evidence: Document, missed: str) -> tuple[bool, str]:
    """Decide whether evidence may stay as it is, and say so in words."""
    name = f"{evidence['payload']}.json"
    stale = evidence.get("stale")
    if missed and stale:
        return True, f"{name}: stale, as it says itself ({missed}): {stale}"
    if missed:
        mend = (
            "run the GPU tests of today's library and write the evidence anew; or, where that library is the one that "
            f'was tested, `nox -s evidence -- restate {evidence["payload"]}`; or give the reason in it as "stale"'
        )
        return False, f"{name}: {missed}; {mend}"
    if stale:
        return False, f'{name}: it calls itself stale, but it is of the library that the sources build; remove "stale"'
    return True, f"{name}: {evidence['state']}, of the library that the sources build"


def check(folder: Path = EVIDENCE, dist: Path = DIST) -> int:
    """Print a line for each piece of evidence, and return 1 where one may not stay as it is."""
    right = True
    for path in sorted(folder.glob("*.json")):
        evidence = json.loads(path.read_text())
        missed = difference(evidence, _today(evidence["payload"]), built(evidence["payload"], dist))
        fine, line = verdict(evidence, missed)
        print(line)
        right &= fine
    return 0 if right else 1


def wheels(folder: Path = EVIDENCE, dist: Path = DIST) -> int:
    """Print of each GPU wheel whether its library ran, and return 1 where one may not be released.

    Raises
    ------
    SystemExit
        There is no such wheel.
    """
    paths = sorted(dist.glob("mla_kernels_*.whl"))
    if not paths:
        raise SystemExit(f"{dist} holds no wheel of a GPU payload; build one: nox -s wheels -- sm90")
    right = True
    for path in paths:
        manifest = manifest_of(path)
        said = folder / f"{manifest['payload']}.json"
        fine, line = ran(path.name, library_in(manifest), json.loads(said.read_text()) if said.exists() else None)
        print(f"{path.name}: {line}")
        right &= fine
    return 0 if right else 1


def ran(wheel: str, library: str, evidence: Document | None) -> tuple[bool, str]:
    """Decide whether a wheel may be released with this evidence, and say in words whether its library ran."""
    if evidence is None:
        return True, "not run on a GPU, no evidence"
    if library == evidence["library_sha256"]:
        shown = f"{evidence['state']} on {evidence['gpu']}"
        return True, shown if evidence["state"] == RUN else f"not run on a GPU of its own arch, {shown}"
    tested = evidence["name"]
    if tested.rpartition("-")[2] != wheel.rpartition("-")[2]:
        return True, f"not run on a GPU, the evidence is of {tested}"
    missed = f"not run on a GPU, it has library {library[:12]}, the evidence is of {evidence['library_sha256'][:12]}"
    if evidence.get("stale"):
        return True, f"{missed}, which is stale, as it says itself: {evidence['stale']}"
    return False, f"{missed}; run the GPU tests on this very wheel, and write its evidence, as docs/releasing.md says"


def restate(payload: str, folder: Path = EVIDENCE, dist: Path = DIST) -> None:
    """Let evidence name today's sources.

    Raises
    ------
    SystemExit
        No wheel of these sources is there, or its library is not the one that was tested.
    """
    path = folder / f"{payload}.json"
    evidence, today = json.loads(path.read_text()), _today(payload)
    library = library_of(today, built(payload, dist), evidence["compilers"])
    if library is None:
        compilers = ", ".join(f"{name} {version}" for name, version in evidence["compilers"].items())
        raise SystemExit(
            f"dist/ holds no wheel of today's sources of {payload}, built by {compilers}; "
            f"run: nox -s wheels -- {payload}"
        )
    if library != evidence["library_sha256"]:
        raise SystemExit(f"{path.name} cannot be restated: {difference(evidence, today, built(payload, dist))}")
    evidence.pop("stale", None)
    at = list(evidence).index("dirty") + 1
    facts = [item for item in evidence.items() if item[0] != "sources_sha256"]
    path.write_text(json.dumps(dict([*facts[:at], ("sources_sha256", today), *facts[at:]]), indent=1) + "\n")


def _today(payload: str) -> str:
    return sources_sha256(ROOT / "package", ROOT / "generated", payload)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nox -s evidence --", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("wheels")
    commands.add_parser("restate").add_argument("payload")
    write = commands.add_parser("write")
    write.add_argument("--wheel", type=Path, required=True, help="what ci.measure.instructions wrote")
    write.add_argument("--junit", type=Path, nargs="+", required=True)
    write.add_argument("--gpu", required=True)
    write.add_argument("--state", required=True)
    write.add_argument("--ran", type=Path, help="the wheel that ran, where it is another")
    write.add_argument("--tests", nargs="*", default=[""], help="only those of files with such a part in the name")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    options = _parser().parse_args(arguments)
    if options.command in ("check", "wheels"):
        return check() if options.command == "check" else wheels()
    if options.command == "restate":
        restate(options.payload)
        return 0
    evidence = written(options)
    EVIDENCE.mkdir(exist_ok=True)
    path = EVIDENCE / f"{evidence['payload']}.json"
    path.write_text(json.dumps(evidence, indent=1) + "\n")
    print(f"{path.name}: {evidence['passed']} passed, {evidence['not_run']} not run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
