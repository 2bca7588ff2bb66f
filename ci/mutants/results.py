"""What became of each mutant, kept in ``results.json`` so that a run goes on where the last one stopped."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.mutants.mutant import ROOT, Mutant
from codegen.pages import block

RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "mutants.md"
SOURCES = ("ci", "codegen", "generated", "package", "templates", "tests")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant: the test that noticed it, and the seconds that building and testing took.

    ``outcome`` is killed, timed out (which counts as killed), survived, not built or not applied. ``mutant`` and
    ``sources`` are hashes of the row and of the sources that were changed.
    """

    outcome: str
    by: str
    seconds: float
    mutant: str
    sources: str


class Results:
    """The file of results; several threads may add to it."""

    def __init__(self, path: Path = RESULTS) -> None:
        self._path, self._lock = path, threading.Lock()
        stated = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.by_name: dict[str, Result] = {name: Result(**result) for name, result in stated.items()}

    def open(self, mutants: Iterable[Mutant], sources: str) -> list[Mutant]:
        """Return the mutants that have no result for these sources."""
        return [mutant for mutant in mutants if not self._has(mutant, sources)]

    def _has(self, mutant: Mutant, sources: str) -> bool:
        result = self.by_name.get(mutant.name)
        return result is not None and (result.mutant, result.sources) == (mutant.sha256, sources)

    def add(self, name: str, result: Result) -> None:
        """Keep a result, on disk too."""
        with self._lock:
            self.by_name[name] = result
            text = json.dumps({name: asdict(self.by_name[name]) for name in sorted(self.by_name)}, indent=1)
            self._path.write_text(f"{text}\n", encoding="utf-8")


def page(text: str, mutants: Sequence[Mutant], results: Mapping[str, Result]) -> str:
    """Return the text of the documentation's page with the tables of these results."""
    return block("mutants").sub(lambda _: table(mutants, results), text)


def sources_of(root: Path) -> str:
    """Return a hash of the sources and tests of a clone, without tables and results of mutants."""
    total = hashlib.sha256()
    paths = (path for folder in SOURCES for path in sorted((root / folder).rglob("*")))
    for path in paths:
        name = path.relative_to(root).as_posix()
        if path.is_file() and "__pycache__" not in name and not name.startswith("ci/mutants/"):
            total.update(f"{name}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def table(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> str:
    """Return the page's tables: the sums, every survivor with its reason, and every mutant with what noticed it."""
    mutants = [mutant for mutant in mutants if mutant.name in results]
    areas = [*dict.fromkeys(mutant.table for mutant in mutants), "all"]
    lines = ["| area | mutants | killed | stopped at the limit | survived |", "|---|---:|---:|---:|---:|"]
    for area in areas:
        outcomes = [results[mutant.name].outcome for mutant in mutants if area in (mutant.table, "all")]
        counts = [outcomes.count(outcome) for outcome in ("killed", "timed out", "survived")]
        lines.append(f"| {area} | {len(outcomes)} | {' | '.join(map(str, counts))} |")
    lines += ["", "| survivor | why no test notices it |", "|---|---|"]
    lines += [f"| `{mutant.name}` | {mutant.survives or 'none does yet'} |" for mutant in mutants
              if results[mutant.name].outcome == "survived"]  # fmt: skip
    lines += ["", "| mutant | what would go wrong | noticed by |", "|---|---|---|"]
    for mutant in mutants:
        result = results[mutant.name]
        by = f"`{result.by}`" if ".py" in result.by else result.by or result.outcome
        lines.append(f"| `{mutant.name}` | {mutant.why} | {by} |")
    return "\n".join(lines) + "\n"
