"""Reads ``matrix/*.toml`` into the model; what the rows say is judged later, by ``validate``."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from codegen import abi, formats, models, shapes
from codegen.model import Allow, Box, Matrix, MatrixError, Row, Trait, Values, choices
from codegen.rows import Entry, document, entries

MATRIX = Path(__file__).parent / "matrix"
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
TABLES = ("enum", "trait", "field", "op", "default_widths", "format", "arch", "allow", "kernel", "model", "unread")
BESIDE = ("op", "arch", "device", "folder", "priority", "reasons")
"""What an entry says beside the fields of its points."""


def load(folder: Path = MATRIX) -> Matrix:
    """Read every table of ``folder``, and the version of the project.

    Raises
    ------
    MatrixError
        A file is not TOML, or a table lacks the shape that the model needs; it is named.
    """
    paths = sorted(folder.glob("*.toml"))
    files = {path.name: shapes.table(path.name, document(path), (), TABLES) for path in paths}
    cache_formats = _formats(files)
    enums = {name: shapes.words(where, names) for where, name, names in _named(files, "enum")}
    named = shapes.words("formats.toml", list(cache_formats.types))
    enums["DType"] = tuple(dict.fromkeys([*enums.get("DType", ()), *named]))
    traits = {name: shapes.trait(name, where, table) for where, name, table in _named(files, "trait")}
    traits |= {name: replace(traits[name], unnamed=width) for name, width in cache_formats.defaults.items()}
    archs = [
        shapes.arch(f"{name}: arch {number}", table)
        for name, file in files.items()
        for number, table in enumerate(file.get("arch", ()), 1)
    ]
    domains: dict[str, Values] = {"op": tuple(abi.OP), "arch": tuple(arch.name for arch in archs)}
    domains |= {name: shapes.domain(where, table) for where, name, table in _named(files, "field")}
    for where, name, table in _named(files, "trait"):
        domains[name] = cache_formats.domains.get(name) or _trait_domain(where, traits[name], table, enums)
    accepted = {
        name: shapes.words(where, shapes.table(where, table, ("accepts",))["accepts"])
        for where, name, table in _named(files, "op")
    }
    matrix = Matrix(
        enums=enums,
        traits=traits,
        domains=domains,
        accepted=accepted,
        archs={arch.name: arch for arch in archs},
        formats=cache_formats,
        allows=(),
        rows=(),
        version=tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"],
        sha256=digest(folder, "*.toml"),
        models=_models(files),
    )
    kernels = [entry for path in paths for _, _, rows in entries(path, "kernel") for entry in rows]
    rows = tuple(_row(matrix, entry) for entry in kernels)
    return replace(matrix, rows=rows, allows=tuple(_allows(matrix, paths)))


def digest(folder: Path, pattern: str) -> str:
    """A hash of the names and texts of the files of a folder, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        name, text = path.relative_to(folder).as_posix(), path.read_bytes()
        total.update(f"{name}\n{len(text)}\n".encode() + text)
    return total.hexdigest()


def _named(files: Mapping[str, Mapping[str, Any]], kind: str) -> Iterator[tuple[str, str, Any]]:
    """Each table ``[kind.name]`` of all files: where it stands, its name, and what it says."""
    for path, file in files.items():
        named = file.get(kind, {})
        if not isinstance(named, Mapping):
            shapes.refuse(f"{path}: {kind}", named, f"tables [{kind}.<name>]")
        for name, stated in named.items():
            yield f"{path}: {kind}.{name}", name, stated


def _trait_domain(where: str, trait: Trait, table: Mapping[str, Any], enums: Mapping[str, tuple[str, ...]]) -> Values:
    """The values of a trait: those that it lists, or all of its enumeration."""
    if trait.enum is not None and trait.enum not in enums:
        shapes.refuse(f"{where}: enum", trait.enum, ", ".join(enums))
    everything = enums[trait.enum] if trait.enum else ()
    listed = shapes.values(f"{where}: values", table["values"]) if "values" in table or not everything else everything
    if trait.enum and not set(choices(listed)) <= set(everything):
        shapes.refuse(f"{where}: values", table["values"], ", ".join(everything))
    return listed


def _formats(files: Mapping[str, Mapping[str, Any]]) -> formats.Formats:
    try:
        return formats.parse(files["formats.toml"])
    except (KeyError, TypeError) as error:
        raise MatrixError([f"the formats of caches: {error}"]) from error


def _models(files: Mapping[str, Mapping[str, Any]]) -> models.Models:
    try:
        return models.parse(files["models.toml"]) if "models.toml" in files else models.Models()
    except (KeyError, TypeError) as error:
        raise MatrixError([f"the models: {error}"]) from error


def _row(matrix: Matrix, entry: Entry) -> Row:
    fields, where = entry.fields, entry.where
    op = shapes.word(f"{where}: op", _op(where, fields))
    for name in ("folder", "reasons"):
        if name in fields:
            raise MatrixError([f"{where}: {name} belongs to an [[allow]] table"])
    points = {name: shapes.values(f"{where}: {name}", value) for name, value in fields.items() if name not in BESIDE}
    priority = shapes.integer(f"{where}: priority", fields.get("priority", 0))
    left_out = matrix.unnamed(op) if op in abi.OP else {}
    return Row(where, op, shapes.served(where, fields, matrix.archs), {**left_out, **points}, priority)


def _op(where: str, fields: Mapping[str, Any]) -> object:
    if "op" not in fields:
        raise MatrixError([f"{where}: field 'op' is missing"])
    return fields["op"]


def _allows(matrix: Matrix, paths: list[Path]) -> Iterator[Allow]:
    """Each ``[[allow]]`` table once for each of its archs."""
    for path in paths:
        for place, shared, rows in entries(path, "allow"):
            where = f"{path.name}:{place.header + 1}"
            op, archs = _op(where, shared), shapes.served(where, shared, matrix.archs)
            reasons = shapes.reasons(f"{where}: reasons", shared.get("reasons", {}))
            if not isinstance(op, str) or op not in abi.OP:
                shapes.refuse(f"{where}: op", op, ", ".join(abi.OP))
            for arch in archs:
                if arch not in matrix.archs:
                    shapes.refuse(f"{where}: arch", arch, ", ".join(matrix.archs))
                folder = shapes.word(f"{where}: folder", shared.get("folder", matrix.archs[arch].payload))
                boxes = tuple(_box(matrix, op, entry, folder, reasons) for entry in rows)
                yield Allow(where, op, arch, folder, boxes, reasons)


def _box(matrix: Matrix, op: str, entry: Entry, folder: str, reasons: Mapping[str, str]) -> Box:
    fields = {name: value for name, value in entry.fields.items() if name not in BESIDE}
    known = shapes.table(entry.where, fields, (), matrix.fields(op))
    stated = {name: shapes.values(f"{entry.where}: {name}", value) for name, value in known.items()}
    everything = {**_domains(matrix, entry.where, op), **matrix.unnamed(op)}
    return Box(entry.where, {**everything, **stated}, folder, reasons)


def _domains(matrix: Matrix, where: str, op: str) -> dict[str, Values]:
    for name in matrix.fields(op):
        if name not in matrix.domains:
            raise MatrixError([f"{where}: field {name!r} of {op} has no domain; add [field.{name}] to the matrix"])
    return {name: matrix.domains[name] for name in matrix.fields(op)}
