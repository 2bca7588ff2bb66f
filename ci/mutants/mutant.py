"""A mutant: one small change of one file, why it matters, and the tests that should notice it.

The mutants are data: ``tables/*.toml`` lists them by area. Only the standard library is needed to read them.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent / "tables"
COMPILED = ("package/csrc/", "package/cmake/")
"""Folders whose files are compiled before the tests run."""


class MutantError(Exception):
    """The tables cannot be used; the message says every reason."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One row of a table.

    Attributes
    ----------
    name : str
    file : str
        The path that is changed, from the root of the repository.
    before, after : str
        A text that the file has exactly once, and what stands there instead.
    why : str
        What would go wrong for a user.
    tests : tuple[str, ...]
        Arguments of pytest, such as paths, of which one test must fail; or ``("build",)`` where compiling must fail.
    table : str
        The table that has it: its area, or the payload of a GPU.
    gpu : bool
        Whether its tests need a GPU; it is then built here and run elsewhere.
    units : tuple[str, ...]
        Of a GPU payload, the units that are compiled with the change; empty for all. The library has the others too.
    survives : str
        Why no test can notice it; empty where one must.
    seconds : int
        How long its tests may take. A mutant that hangs is killed by this limit.
    """

    name: str
    file: str
    before: str
    after: str
    why: str
    tests: tuple[str, ...]
    table: str
    gpu: bool = False
    units: tuple[str, ...] = ()
    survives: str = ""
    seconds: int = 120

    @property
    def compiled(self) -> bool:
        """Whether the core has to be built again."""
        return self.file.startswith(COMPILED)

    @property
    def paths(self) -> tuple[str, ...]:
        """Those of ``tests`` that name a file: not options and what belongs to them."""
        return tuple(test for test in self.tests if test == "build" or ".py" in test or test.startswith("tests/"))

    @property
    def sha256(self) -> str:
        """A hash of the row, but for why it survives, which is found out after it has run."""
        row = asdict(self) | {"survives": ""}
        return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()

    def applied(self, text: str) -> str:
        """The text of the file with the change."""
        return text.replace(self.before, self.after)


def mutants(folder: Path = TABLES) -> tuple[Mutant, ...]:
    """Every mutant, in the order of the tables.

    Raises
    ------
    MutantError
        A row lacks a field, or has one that mutants do not know.
    """
    return tuple(mutant for path in sorted(folder.glob("*.toml")) for mutant in _rows(path))


def _rows(path: Path) -> Iterator[Mutant]:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    shared: dict[str, Any] = {"table": path.stem, "gpu": document.get("gpu", False)}
    for row in document.get("mutant", []):
        listed = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        unknown = set(listed) - {field.name for field in fields(Mutant)}
        missing = {"name", "file", "before", "after", "why", "tests"} - set(listed)
        if unknown or missing:
            named = f"{path.name}: {row.get('name', row)}"
            raise MutantError(f"{named}: unknown fields: {sorted(unknown)}, missing fields: {sorted(missing)}")
        yield Mutant(**{**shared, **listed})


def problems(listed: Iterable[Mutant], root: Path = ROOT) -> list[str]:
    """One line for each mutant that cannot be applied, and for each test that is not there."""
    listed = list(listed)
    found = [f"{name}: {count} mutants have this name" for name, count in Counter(m.name for m in listed).items()
             if count > 1]  # fmt: skip
    for mutant in listed:
        path = root / mutant.file
        times = path.read_text(encoding="utf-8").count(mutant.before) if path.is_file() else 0
        if times != 1:
            found.append(f"{mutant.name}: {mutant.file} has its text {times} times; it must be there exactly once")
        if mutant.before == mutant.after:
            found.append(f"{mutant.name}: it changes nothing")
        if not mutant.tests:
            found.append(f"{mutant.name}: it names no test")
        found += [f"{mutant.name}: there is no test {test}" for test in mutant.paths if not _is_there(root, test)]
    return found


def _is_there(root: Path, test: str) -> bool:
    path, _, name = test.partition("::")
    if test == "build":
        return True
    function = name.partition("[")[0].rpartition("::")[2]
    return (root / path).exists() and (not name or f"def {function}(" in (root / path).read_text(encoding="utf-8"))
