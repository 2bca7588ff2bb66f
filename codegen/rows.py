"""Where the rows of a matrix file stand, and how they are written, so that editing one leaves all others as they are.

A table's ``rows`` vary what the table itself leaves open; a table without them is one row. Each row stands on a line of
its own, and comments may stand between them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from codegen.schema import MatrixError
from codegen.schema.lines import line_of

ROWS = re.compile(r"rows = \[(\])?\s*(#.*)?$")
ROW = re.compile(r"(?P<indent>\s*)(?P<row>\{.*\})(?P<rest>,?\s*(#.*)?)$")


@dataclass(frozen=True, slots=True)
class Table:
    """The lines of a table, counted from 0, from its header up to ``end``; ``rows`` is ``None`` without such a list."""

    header: int
    end: int
    rows: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A row as it is written: what it says itself, what its table says for all, and the line where it stands."""

    path: Path
    table: Table
    line: int
    own: Mapping[str, Any]
    shared: Mapping[str, Any]
    places: Mapping[str, str]
    """Where each field of its table stands."""

    @property
    def where(self) -> str:
        """The file and the line, as compilers write them."""
        return f"{self.path.name}:{self.line + 1}"

    @property
    def fields(self) -> dict[str, Any]:
        """What the row says with its table."""
        return {**self.shared, **self.own}

    def at(self, name: str) -> str:
        """Where a field stands, in the row or in its table; the table where neither has it."""
        return self.where if name in self.own else self.places.get(name, f"{self.path.name}:{self.table.header + 1}")


@lru_cache(maxsize=64)
def document(text: str) -> Mapping[str, Any]:
    """The tables of a file of the matrix, which is TOML."""
    return tomllib.loads(text)


def entries(path: Path, kind: str) -> Iterator[tuple[Table, Mapping[str, Any], list[Entry]]]:
    """Each ``[[kind]]`` table of a file: its place, what it says for all of its rows, and these.

    Raises
    ------
    MatrixError
        A row does not stand on a line of its own.
    """
    text = path.read_text(encoding="utf-8")
    stated, places = document(text).get(kind, []), list(tables(text.splitlines(), kind))
    if len(stated) != len(places):
        raise MatrixError([f"{path.name}: write each {kind} as a table of its own, below a line [[{kind}]]"])
    for number, (place, table) in enumerate(zip(places, stated, strict=True)):
        shared = {name: value for name, value in table.items() if name != "rows"}
        at = {name: f"{path.name}:{line_of(text, (kind, number, name))}" for name in shared}
        rows, lines = table.get("rows", [{}]), place.rows if "rows" in table else (place.header,)
        if lines is None or len(rows) != len(lines):
            where = f"{path.name}:{place.header + 1}: rows"
            raise MatrixError([f"{where}: write each on a line of its own, in braces, below 'rows = ['"])
        yield place, shared, [Entry(path, place, line, own, shared, at) for line, own in zip(lines, rows, strict=True)]


def tables(lines: list[str], kind: str) -> Iterator[Table]:
    """The places of all ``[[kind]]`` tables; a table ends at its last line that is neither empty nor a comment.

    Tables within it, such as ``[kind.reasons]``, are part of it.
    """
    headers = [number for number, line in enumerate(lines) if line.startswith("[") and not line.startswith(f"[{kind}.")]
    for number, following in zip(headers, [*headers[1:], len(lines)], strict=True):
        if lines[number].split("#")[0].rstrip() != f"[[{kind}]]":
            continue
        body = range(number, following)
        end = max(line for line in body if lines[line].strip() and not lines[line].startswith("#")) + 1
        has_rows = any(ROWS.match(lines[line]) for line in body)
        yield Table(number, end, tuple(line for line in body if ROW.match(lines[line])) if has_rows else None)


def value_text(value: Any) -> str:
    """A value in TOML: a name, a number, a list, or a table of numbers."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {value_text(item)}" for name, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def with_field(lines: list[str], entry: Entry, name: str, value: Any) -> list[str]:
    """The lines with a row that says ``value`` of a field.

    Raises
    ------
    MatrixError
        What the row says of the field goes on over several lines.
    """
    changed = list(lines)
    if entry.table.rows is not None:
        match = ROW.match(lines[entry.line])
        indent, rest = (match["indent"], match["rest"]) if match else ("  ", ",")
        changed[entry.line] = indent + value_text({**entry.own, name: value}) + rest
        return changed
    stated = [line for line in range(entry.line, entry.table.end) if re.match(rf"{name}\s*=", lines[line])]
    text = f"{name} = {value_text(value)}"
    if stated:
        if not _is_whole(lines[stated[0]]):
            raise MatrixError([f"{entry.path.name}:{stated[0] + 1}: {name}: write the list on one line"])
        changed[stated[0]] = text
    else:
        changed.insert(entry.table.end, text)
    return changed


def _is_whole(line: str) -> bool:
    """Whether a field ends in the line in which it begins."""
    try:
        tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    return True


def without(lines: list[str], entry: Entry) -> list[str]:
    """The lines without a row; its table goes with its last row, and comments outside of it stay."""
    table = next(table for table in tables(lines, "kernel") if table.header == entry.table.header)
    if table.rows is not None and len(table.rows) > 1:
        return [*lines[: entry.line], *lines[entry.line + 1 :]]
    before, after = lines[: table.header], lines[table.end :]
    while before and after and not before[-1] and not after[0]:
        after = after[1:]
    return [*before, *after]


def with_row(lines: list[str], table: Table, own: Mapping[str, Any]) -> list[str]:
    """The lines with one row more, below the last of a table's list."""
    last = max(table.rows or (table.header,))
    return [*lines[: last + 1], f"  {value_text(own)},", *lines[last + 1 :]]


def with_table(lines: list[str], after: Table, fields: Mapping[str, Any]) -> list[str]:
    """The lines with one table more, of one row, below another table."""
    text = ["", "[[kernel]]", *(f"{name} = {value_text(value)}" for name, value in fields.items())]
    return [*lines[: after.end], *text, *lines[after.end :]]
