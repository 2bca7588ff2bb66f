"""Reads ``matrix/*.toml`` into the model; what the rows say is judged later, by ``validate``."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codegen import formats
from codegen.model import Arch, Exclude, Matrix, Range, Row, Trait, Value, Values

MATRIX = Path(__file__).parent / "matrix"
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


class MatrixError(Exception):
    """The matrix cannot be used; ``problems`` lists every reason."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def load(folder: Path = MATRIX) -> Matrix:
    """Read every table of ``folder``, and the version of the project.

    Raises
    ------
    MatrixError
        A file is not TOML, or a table lacks the shape that the model needs.
    """
    problems: list[str] = []
    tables: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            tables[path.name] = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            problems.append(f"{path.name}: {error}")
    cache_formats = _formats(tables)
    enums = {name: tuple(names) for file in tables.values() for name, names in file.get("enum", {}).items()}
    enums["DType"] = tuple(dict.fromkeys([*enums["DType"], *cache_formats.types]))
    stated = {name: table for file in tables.values() for name, table in file.get("trait", {}).items()}
    traits = {name: Trait(name, table.get("enum"), table.get("prefix", "")) for name, table in stated.items()}
    domains = {name: values(table) for file in tables.values() for name, table in file.get("field", {}).items()}
    domains |= {name: tuple(table.get("values") or enums[table["enum"]]) for name, table in stated.items()}
    domains["kv_dtype"] = cache_formats.names
    accepted = {name: tuple(table["accepts"]) for file in tables.values() for name, table in file.get("op", {}).items()}
    archs = {row["name"]: _arch(row) for file in tables.values() for row in file.get("arch", ())}
    rows, excludes = [], []
    for name, file in tables.items():
        for number, fields in enumerate(file.get("kernel", ()), 1):
            rows.append(Row(f"{name}: kernel row {number} ({fields.get('op', 'no op')})", fields))
        for number, table in enumerate(file.get("exclude", ()), 1):
            if not str(table.get("reason", "")).strip():
                problems.append(f"{name}: exclude row {number}: no reason; every exclude says why")
            excludes.append(
                Exclude({key: _tuple(value) for key, value in table["match"].items()}, table.get("reason", ""))
            )
    if problems:
        raise MatrixError(problems)
    version = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    return Matrix(
        enums,
        traits,
        domains,
        accepted,
        archs,
        cache_formats,
        tuple(rows),
        tuple(excludes),
        version,
        digest(folder, "*.toml"),
    )


def _formats(tables: Mapping[str, dict[str, Any]]) -> formats.Formats:
    try:
        return formats.parse(tables["formats.toml"])
    except (KeyError, TypeError) as error:
        raise MatrixError([f"the formats of caches: {error}"]) from error


def digest(folder: Path, pattern: str) -> str:
    """A hash of the names and texts of the files of a folder, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        name, text = path.relative_to(folder).as_posix(), path.read_bytes()
        total.update(f"{name}\n{len(text)}\n".encode() + text)
    return total.hexdigest()


def values(table: Mapping[str, Any] | list[Value]) -> Values:
    """A list of values, ``{values = [...]}``, or a range ``{min, max, multiple_of}``."""
    if isinstance(table, list):
        return tuple(table)
    if "values" in table:
        return tuple(table["values"])
    return Range(table.get("min", 0), table.get("max"), table.get("multiple_of", 1))


def _arch(row: Mapping[str, Any]) -> Arch:
    limits = {
        name: Range(0, limit) if isinstance(limit, int) else _range(limit)
        for name, limit in row.get("limits", {}).items()
    }
    return Arch(
        row["name"],
        row["payload"],
        row["device"],
        tuple(row.get("capabilities", ())),
        tuple(row.get("tensor_cores", ())),
        limits,
    )


def _range(table: Mapping[str, Any]) -> Range:
    return Range(table.get("min", 0), table.get("max"), table.get("multiple_of", 1))


def _tuple(value: Value | list[Value]) -> tuple[Value, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
