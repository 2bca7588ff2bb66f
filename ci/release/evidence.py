"""Writes ``docs/evidence/<payload>.json`` from what ``ci.measure.instructions`` found and a test run's report.

``python -m ci.release.evidence --wheel dist/sm90.instructions.json --junit gpu.xml --gpu "NVIDIA H200" --state "run"``
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
KEPT = ("payload", "commit", "dirty", "name", "sha256", "bytes", "compilers")


def tests(reports: Sequence[Path]) -> dict[str, dict[str, int]]:
    """The outcomes of junit reports by test file and function."""
    found: dict[str, Counter[str]] = {}
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        outcomes = {"failure": "failed", "error": "failed", "skipped": "not run"}
        outcome = next((outcomes[child.tag] for child in case if child.tag in outcomes), "passed")
        found.setdefault(name, Counter())[outcome] += 1
    return {name: dict(counts) for name, counts in sorted(found.items())}


def main() -> None:
    """Merge what was built and what was run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True, help="what ci.measure.instructions wrote")
    parser.add_argument("--junit", type=Path, nargs="+", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--ran", type=Path, help="the wheel that ran, where it is another")
    parser.add_argument("--tests", nargs="*", default=[""], help="only those of files with such a part in the name")
    options = parser.parse_args()
    wheel = json.loads(options.wheel.read_text())
    ran = {name: counts for name, counts in tests(options.junit).items() if any(part in name for part in options.tests)}
    failed = [name for name, counts in ran.items() if counts.get("failed")]
    if failed or not ran:
        raise SystemExit(f"no evidence: {', '.join(failed) or 'nothing ran'}")
    evidence: dict[str, Any] = {"state": options.state, "gpu": options.gpu}
    evidence |= {name: wheel[name] for name in KEPT}
    evidence["library_sha256"] = wheel["files"][f"libmla_{wheel['payload']}.so"]["sha256"]
    evidence["variants"] = wheel["kernels"]
    if options.ran:
        evidence["ran"] = {"wheel": options.ran.name, "sha256": hashlib.sha256(options.ran.read_bytes()).hexdigest()}
    evidence["passed"] = sum(counts.get("passed", 0) for counts in ran.values())
    evidence["not_run"] = sum(counts.get("not run", 0) for counts in ran.values())
    evidence["tests"] = ran
    EVIDENCE.mkdir(exist_ok=True)
    path = EVIDENCE / f"{wheel['payload']}.json"
    path.write_text(json.dumps(evidence, indent=1) + "\n")
    print(f"{path.name}: {evidence['passed']} passed, {evidence['not_run']} not run")


if __name__ == "__main__":
    main()
