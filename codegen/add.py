"""Adds a point to the matrix: a value in an existing row's list where one fits, otherwise a new row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from codegen import abi
from codegen.expand import choice
from codegen.load import MATRIX, MatrixError, load
from codegen.model import Matrix, Range, Value
from codegen.validate import checked


def parse(pairs: Sequence[str]) -> dict[str, Value]:
    """``["op=decode", "page_size=64"]`` as a point; digits become integers."""
    point: dict[str, Value] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise MatrixError([f"{pair!r}: write <field>=<value>"])
        point[name] = int(value) if value.isdecimal() else value
    return point


def add(point: Mapping[str, Value], folder: Path = MATRIX) -> tuple[str, ...]:
    """Add ``point`` to the matrix in ``folder`` and return the names of the variants that appeared.

    Raises
    ------
    MatrixError
        The point names no op, is excluded, is served already, or would break the matrix; nothing is then written.
    """
    matrix = load(folder)
    before = {variant.name: variant for variant in checked(matrix)}
    point = _complete(matrix, point)
    path = folder / f"{matrix.archs[str(point['arch'])].payload}.toml"
    text = path.read_text(encoding="utf-8")
    document = tomlkit.parse(text)
    rows: AoT = document["kernel"]
    if not any(_extend(row, point) for row in rows):
        rows.append(_row(matrix, rows, point))
    path.write_text(tomlkit.dumps(document), encoding="utf-8")
    try:
        after = checked(load(folder))
    except MatrixError:
        path.write_text(text, encoding="utf-8")
        raise
    return tuple(v.name for v in after if v.name not in before or before[v.name].accepts != v.accepts)


def _complete(matrix: Matrix, point: Mapping[str, Value]) -> Mapping[str, Value]:
    """The point with its output type filled in, once nothing speaks against it."""
    op, arch = point.get("op"), point.get("arch")
    if op not in abi.OP:
        raise MatrixError([f"op: got {op!r}; accepts {', '.join(abi.OP)}"])
    if arch not in matrix.archs:
        raise MatrixError([f"arch: got {arch!r}; accepts {', '.join(matrix.archs)}"])
    traits = abi.OP[str(op)].traits
    if "out_dtype" in traits and "q_dtype" in point:
        point = {"out_dtype": point["q_dtype"], **point}
    problems = [
        f"unknown field {name!r}; {op} has {', '.join(matrix.fields(str(op)))}"
        for name in point
        if name not in matrix.fields(str(op))
    ]
    problems += [
        f"{trait} is missing: {op} needs {', '.join(traits)}"
        for trait in traits
        if trait.endswith("_dtype") and trait not in point
    ]
    if problems:
        raise MatrixError(problems)
    exclude = matrix.excluded(point)
    if exclude is not None:
        raise MatrixError([f"excluded: {exclude.reason}"])
    return point


def _serves(value: object, wanted: Value) -> bool:
    if isinstance(value, Mapping):
        accepts = value["accepts"]
        if isinstance(accepts, Mapping):
            return wanted in Range(accepts.get("min", 0), accepts.get("max"), accepts.get("multiple_of", 1))
        return wanted in accepts
    return wanted in choice(value)


def _extend(row: Table, point: Mapping[str, Value]) -> bool:
    """Put the one value that ``row`` lacks into its list; a row that lacks more is left alone."""
    lacking = [name for name, wanted in point.items() if name not in row or not _serves(row[name], wanted)]
    if not lacking:
        raise MatrixError(["the matrix holds this point already"])
    if len(lacking) != 1 or lacking[0] in ("op", "arch", "q_dtype", "in_dtype") or lacking[0] not in row:
        return False
    name = lacking[0]
    value: Any = row[name]
    if isinstance(value, Mapping):
        if not isinstance(value["accepts"], list):
            return False
        value["accepts"].append(point[name])
    elif isinstance(value, list):
        value.append(point[name])
    else:
        row[name] = [value, point[name]]
    return True


def _row(matrix: Matrix, rows: AoT, point: Mapping[str, Value]) -> Table:
    """A new row: the point's values, and for what it leaves open those of the first row of its op and arch."""
    wanted = matrix.fields(str(point["op"]))
    pattern = next((row for row in rows if all(row.get(key) == point[key] for key in ("op", "arch"))), None)
    table = tomlkit.table()
    for name in wanted:
        if name in point:
            table[name] = point[name]
        elif pattern is not None:
            table[name] = pattern[name]
        else:
            raise MatrixError([f"{name} is missing: a new {point['op']} row gives {', '.join(wanted)}"])
    return table
