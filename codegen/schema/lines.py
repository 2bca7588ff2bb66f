"""The line of each table and field of a TOML file, which Python's parser does not keep."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache

HEADER = re.compile(r"\s*(\[\[?)([\w.\- ]+)\]")
FIELD = re.compile(r"""\s*([\w-]+|"(?:[^"\\]|\\.)*"|'[^']*')\s*=""")
ITEM = re.compile(r"\s*[{\"\d]")

Path = tuple[str | int, ...]


def line_of(text: str, path: Path) -> int:
    """The line, counted from 1, of what a path names: a field, an item of a list, or the nearest table around it."""
    places = _places(text)
    while path and path not in places:
        path = path[:-1]
    return places.get(path, 1)


@lru_cache(maxsize=64)
def _places(text: str) -> dict[Path, int]:
    """The first line of each path that starts a line, and of the tables around it."""
    found: dict[Path, int] = {}
    for path, line in _paths(text):
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], line)
    return found


def _paths(text: str) -> Iterator[tuple[Path, int]]:
    counts: dict[Path, int] = {}
    table: Path = ()
    field: Path = ()
    for line, said in enumerate(text.splitlines(), 1):
        if header := HEADER.match(said):
            table = _table(counts, [part.strip() for part in header[2].split(".")], repeated=header[1] == "[[")
            yield table, line
        elif name := FIELD.match(said):
            field = (*table, *tomllib.loads(f"{name[1]} = 0"))
            yield field, line
        elif ITEM.match(said):
            yield (*field, counts.setdefault(field, 0)), line
            counts[field] += 1


def _table(counts: dict[Path, int], names: list[str], *, repeated: bool) -> Path:
    """The path of a table below its header; of tables that repeat, the last is meant."""
    path: Path = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path] - 1)
    path = (*path, names[-1])
    if repeated:
        counts[path] = counts.get(path, 0) + 1
        return (*path, counts[path] - 1)
    return path
