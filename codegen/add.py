"""Adds a point to the matrix: a value in an existing row's list where one fits, otherwise a new row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.items import Table

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
    payload = matrix.archs[str(point["arch"])].payload
    for skipped in count():
        documents = _documents(folder, payload)
        path, is_new = _put(matrix, documents, point, skipped)
        text = path.read_text(encoding="utf-8")
        path.write_text(tomlkit.dumps(documents[path]), encoding="utf-8")
        try:
            after = checked(load(folder))
            break
        except MatrixError:
            path.write_text(text, encoding="utf-8")
            if is_new:
                raise
    return tuple(v.name for v in after if v.name not in before or before[v.name].accepts != v.accepts)


def _documents(folder: Path, payload: str) -> dict[Path, TOMLDocument]:
    """The files of the matrix that have rows; the payload's own comes first."""
    paths = sorted(folder.glob("*.toml"), key=lambda path: (path.stem != payload, path.name))
    documents = {path: tomlkit.parse(path.read_text(encoding="utf-8")) for path in paths}
    return {path: document for path, document in documents.items() if "kernel" in document or path.stem == payload}


def _put(
    matrix: Matrix, documents: Mapping[Path, TOMLDocument], point: Mapping[str, Value], skipped: int
) -> tuple[Path, bool]:
    """Extend a row that lacks one value of the point, or else add a row beside the first of its op and arch.

    The first ``skipped`` rows that could be extended are left alone: what else they would gain is not sound.
    """
    rows = [(path, row) for path, document in documents.items() for row in document.get("kernel", ())]
    for path, row in rows:
        name = _lacking(row, point)
        if name is None:
            continue
        if skipped == 0:
            _extend(row, name, point[name])
            return path, False
        skipped -= 1
    near = [(path, row) for path, row in rows if all(_has(row, key, point[key]) for key in ("op", "arch"))]
    path, pattern = near[0] if near else (next(iter(documents)), None)
    documents[path].setdefault("kernel", tomlkit.aot()).append(_row(matrix, pattern, point))
    return path, True


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


def _has(row: Table, name: str, wanted: Value) -> bool:
    return name in row and _serves(row[name], wanted)


def _lacking(row: Table, point: Mapping[str, Value]) -> str | None:
    """The one field whose list the point would extend; a row that lacks more is left alone."""
    lacking = [name for name, wanted in point.items() if not _has(row, name, wanted)]
    if not lacking:
        raise MatrixError(["the matrix holds this point already"])
    if len(lacking) != 1 or lacking[0] in ("op", "arch", "q_dtype", "in_dtype") or lacking[0] not in row:
        return None
    value = row[lacking[0]]
    ranged = isinstance(value, Mapping) and not isinstance(value["accepts"], list)
    return None if ranged else lacking[0]


def _extend(row: Table, name: str, wanted: Value) -> None:
    value: Any = row[name]
    if isinstance(value, Mapping):
        value["accepts"].append(wanted)
    elif isinstance(value, list):
        value.append(wanted)
    else:
        row[name] = [value, wanted]


def _row(matrix: Matrix, pattern: Table | None, point: Mapping[str, Value]) -> Table:
    """A new row: the point's values, and for what it leaves open those of ``pattern``."""
    wanted = matrix.fields(str(point["op"]))
    table = tomlkit.table()
    for name in wanted:
        if name in point:
            table[name] = point[name]
        elif pattern is not None:
            table[name] = pattern[name]
        else:
            raise MatrixError([f"{name} is missing: a new {point['op']} row gives {', '.join(wanted)}"])
    if pattern is not None and "folder" in pattern:
        table["folder"] = pattern["folder"]
    return table
