"""What a run showed, and of which library: facts that are the same on every machine, but for its instruction sets."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz.draw import KINDS
from tests.fuzz.supervisor import Progress, Settings
from tests.fuzz.worker import BLOCK

MOST_FINDINGS = 40
"""Of a sort, the first is kept, and of all sorts so many."""


def library(payload: str) -> tuple[Path, dict[str, Any]]:
    """The library of an installed payload, and its manifest."""
    name = "mla_kernels" if payload == "cpu" else f"mla_kernels_{payload}"
    spec = importlib.util.find_spec(name)
    folder = Path(str(spec and spec.origin)).parent
    path = next(iter(sorted(folder.rglob(f"libmla_{payload}.so"))))
    manifest = path.with_name("manifest.json")
    return path, json.loads(manifest.read_text()) if manifest.exists() else {}


def hash_of(folder: Path) -> str:
    """The hash of the Python files in a folder."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        whole.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()


def facts(device: str, settings: Settings) -> dict[str, Any]:
    """Of which library and seeds a run is: what must be equal for it to go on."""
    path, manifest = library("cpu" if device == "cpu" else settings.arch.rstrip("af"))
    core, _ = library("cpu")
    launcher = next(iter(sorted(core.parents[2].rglob("_launcher*.so"))), core)
    return {
        "device": device,
        "arch": settings.arch,
        "commit": manifest.get("commit", ""),
        "dirty": manifest.get("dirty", False),
        "library_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "launcher_sha256": hashlib.sha256(launcher.read_bytes()).hexdigest(),
        "python_sha256": hash_of(core.parents[2]),
        "fuzzer_sha256": hash_of(Path(__file__).parent),
        "instruction_sets": list(settings.isas) if device == "cpu" else [],
        "guards": "none" if settings.plain else "unmapped pages",
        "block": BLOCK,
        "kinds": dict(KINDS),
    }


def written(progress: Progress, seeds: range) -> dict[str, Any]:
    """The evidence of a run."""

    def counted(word: str) -> dict[str, int]:
        return {name[len(word) + 1 :]: n for name, n in sorted(progress.counts.items()) if name.startswith(word + " ")}

    sorts = Counter(finding.sort for finding in progress.findings)
    firsts = {finding.sort: finding for finding in reversed(progress.findings)}
    return {
        **progress.about,
        "seeds": [seeds.start, seeds.stop],
        "cases": sum(
            min(seeds.stop, (block + 1) * BLOCK) - max(seeds.start, block * BLOCK) for block in progress.blocks
        ),
        "ops": counted("op"),
        "cases_of_kinds": counted("kind"),
        "ends": counted("end"),
        "findings": len(progress.findings),
        "sorts": [{**asdict(firsts[sort]), "times": times} for sort, times in sorted(sorts.items())][:MOST_FINDINGS],
    }
