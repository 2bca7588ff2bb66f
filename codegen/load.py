"""Reads ``matrix/*.toml`` into the model; what the rows say is judged later, by ``validate``."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from codegen import abi, formats, models, schema, shapes
from codegen.model import Allow, Arch, Box, Matrix, Row, Trait, Values, choices, text_of
from codegen.models import peers
from codegen.rows import Entry, document, entries
from codegen.schema import MATRIX, MatrixError
from codegen.schema.lines import line_of

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
CSRC = PROJECT.parent / "package" / "csrc"
BESIDE = ("op", "arch", "device", "folder", "priority", "accuracy", "reasons")
"""What an entry says beside the fields of its points."""


def load(folder: Path = MATRIX) -> Matrix:
    """Read every table of ``folder``, and the version of the project.

    Raises
    ------
    MatrixError
        With every place where a file does not have the form of the schema. If there is none: with every table that
        names what other tables lack.
    """
    texts = schema.check(folder)
    matrix = _tables(texts, digest(folder, "*.toml"))
    rows, allows = list[Row](), list[Allow]()
    with _Problems() as problems:
        for path in sorted(folder.glob("*.toml")):
            with problems.kept():
                for _, _, kernels in entries(path, "kernel"):
                    for entry in kernels:
                        with problems.kept():
                            rows.append(_row(matrix, entry))
            with problems.kept():
                for place, shared, boxes in entries(path, "allow"):
                    with problems.kept():
                        allows += _allows(matrix, f"{path.name}:{place.header + 1}", shared, boxes)
    return replace(matrix, rows=tuple(rows), allows=tuple(allows))


def digest(folder: Path, pattern: str) -> str:
    """A hash of the names and texts of the files of a folder, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        name, text = path.relative_to(folder).as_posix(), path.read_bytes()
        total.update(f"{name}\n{len(text)}\n".encode() + text)
    return total.hexdigest()


class _Problems(list[str]):
    """Collects what several tables raise, and raises all of it at the end."""

    def __enter__(self) -> _Problems:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and self:
            raise MatrixError(list(dict.fromkeys(self)))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Go on behind the block if it raises."""
        try:
            yield
        except MatrixError as error:
            self.extend(error.problems)


def _tables(texts: Mapping[str, str], sha256: str) -> Matrix:
    """All tables but those of points."""
    cache_formats = formats.parse(texts["formats.toml"])
    with _Problems() as problems:
        enums = {name: tuple(names) for _, name, names in _named(texts, "enum", problems)}
        enums["DType"] = tuple(dict.fromkeys([*enums.get("DType", ()), *cache_formats.types]))
        stated = list(_named(texts, "trait", problems))
        traits = {name: shapes.trait(name, table) for _, name, table in stated}
        archs = _archs(texts, problems)
        domains: dict[str, Values] = {"op": tuple(abi.OP), "arch": tuple(archs)}
        fields = list(_named(texts, "field", problems))
        domains |= {name: shapes.domain(table) for _, name, table in fields}
        for where, name, table in stated:
            with problems.kept():
                domains[name] = cache_formats.domains.get(name) or _trait_domain(where, traits[name], table, enums)
        accepted = {name: tuple(table["accepts"]) for _, name, table in _named(texts, "op", problems)}
        problems.extend(_missing(traits, domains))
        wanted = {trait for op in abi.OPS for trait in op.traits}
        problems.extend(f"{where}: no op has this trait" for where, name, _ in stated if name not in wanted)
        wanted |= {name for names in accepted.values() for name in names}
        problems.extend(f"{where}: no op accepts this field" for where, name, _ in fields if name not in wanted)
    traits |= {name: replace(traits[name], unnamed=width) for name, width in cache_formats.defaults.items()}
    return Matrix(
        enums=enums,
        traits=traits,
        domains=domains,
        accepted=accepted,
        archs=archs,
        formats=cache_formats,
        allows=(),
        rows=(),
        version=tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"],
        sha256=sha256,
        models=models.parse(texts.get("models.toml", "")),
        peers=peers.parse(texts.get("peers.toml", "")),
    )


def _named(texts: Mapping[str, str], kind: str, problems: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Each table ``[kind.name]`` of all files: its file and line, its name, and what it says; each name once."""
    seen: dict[str, str] = {}
    for file, text in texts.items():
        for name, stated in document(text).get(kind, {}).items():
            where = f"{file}:{line_of(text, (kind, name))}: {kind}.{name}"
            if name in seen:
                problems.append(f"{where}: it stands at {seen[name]} already")
            seen.setdefault(name, where)
            yield where, name, stated


def _archs(texts: Mapping[str, str], problems: list[str]) -> dict[str, Arch]:
    """The archs by name; no other has the name or the payload of one."""
    found: dict[str, Arch] = {}
    for file, text in texts.items():
        for number, table in enumerate(document(text).get("arch", [])):
            arch, where = shapes.arch(table), f"{file}:{line_of(text, ('arch', number))}: arch {table['name']}"
            if arch.name in found:
                problems.append(f"{where}: another arch has this name")
            if arch.payload in {other.payload for other in found.values()}:
                problems.append(f"{where}: another arch has the payload {arch.payload}")
            problems.extend(f"{where}: {fault}" for fault in _arch_faults(arch, found.values()))
            found[arch.name] = arch
    return found


def _arch_faults(arch: Arch, others: Iterable[Arch]) -> Iterator[str]:
    """What an arch says of ops, traits and devices that there are not."""
    for field, ops in {
        "tensor_cores": arch.tensor_cores,
        "other_schedules": arch.other_schedules,
        "one_unit": tuple(arch.one_unit),
    }.items():
        yield from (f"{field}: got {op!r}; accepts {', '.join(abi.OP)}" for op in ops if op not in abi.OP)
    for op, traits in arch.one_unit.items():
        known = abi.OP[op].traits if op in abi.OP else traits
        yield from (f"one_unit.{op}: got {name!r}; accepts {', '.join(known)}" for name in traits if name not in known)
    if arch.device == "cuda" and not arch.capabilities:
        yield "field 'capabilities' is missing, by which a GPU finds its payload"
    for other in others:
        for capability in arch.capabilities:
            if capability in other.capabilities:
                yield f"capabilities: {capability} is one of arch {other.name} already"


def _missing(traits: Mapping[str, Trait], domains: Mapping[str, Values]) -> list[str]:
    """Tables of ``domains.toml`` that the ops need and no file has; one without a table accepts no further fields."""
    wanted = dict.fromkeys(trait for op in abi.OPS for trait in op.traits)
    found = [f"domains.toml:1: the table [trait.{name}] is missing" for name in wanted if name not in traits]
    return found + ["domains.toml:1: the table [field.kv_layout] is missing"] * ("kv_layout" not in domains)


def _trait_domain(where: str, trait: Trait, table: Mapping[str, Any], enums: Mapping[str, tuple[str, ...]]) -> Values:
    """The values of a trait: those that it lists, or all of its enumeration."""
    if trait.enum is not None and trait.enum not in enums:
        shapes.refuse(f"{where}: enum", trait.enum, ", ".join(enums))
    everything = enums[trait.enum] if trait.enum else ()
    listed = shapes.values(table.get("values", list(everything)))
    if trait.enum and not set(choices(listed)) <= set(everything):
        shapes.refuse(f"{where}: values", table["values"], ", ".join(everything))
    for got, known in [*((key, everything) for key in trait.instead), *((v, listed) for v in trait.instead.values())]:
        if got not in known:
            shapes.refuse(f"{where}: instead", got, text_of(known))
    if not listed:
        shapes.refuse(f"{where}: values", [], "at least one value")
    return listed


def _row(matrix: Matrix, entry: Entry) -> Row:
    fields = entry.fields
    op = _op(entry.at("op"), fields)
    points = {name: shapes.values(value) for name, value in fields.items() if name not in BESIDE}
    left_out = matrix.unnamed(op) if op in abi.OP else {}
    archs = shapes.served(entry.at("device"), fields, matrix.archs)
    places = {name: entry.at(name) for name in fields}
    said = fields.get("priority", 0), fields.get("accuracy", "")
    return Row(entry.where, op, archs, {**left_out, **points}, *said, places)


def _op(where: str, fields: Mapping[str, Any]) -> str:
    if "op" not in fields:
        raise MatrixError([f"{where}: field 'op' is missing"])
    return str(fields["op"])


def _allows(matrix: Matrix, where: str, shared: Mapping[str, Any], rows: list[Entry]) -> Iterator[Allow]:
    """An ``[[allow]]`` table once for each of its archs."""
    op, archs = _op(where, shared), shapes.served(where, shared, matrix.archs)
    reasons = shared.get("reasons", {})
    folders = sorted(path.name for path in CSRC.glob("*") if path.is_dir())
    if folders and shared.get("folder", folders[0]) not in folders:  # a copy of codegen/ may stand without the kernels
        shapes.refuse(f"{where}: folder", shared["folder"], f"the folders of package/csrc/: {', '.join(folders)}")
    if op not in abi.OP:
        shapes.refuse(f"{where}: op", op, ", ".join(abi.OP))
    for arch in archs:
        if arch not in matrix.archs:
            shapes.refuse(f"{where}: arch", arch, ", ".join(matrix.archs))
        folder = shared.get("folder", matrix.archs[arch].payload)
        boxes = tuple(_box(matrix, op, entry, folder, reasons) for entry in rows)
        yield Allow(where, op, arch, folder, boxes, reasons)


def _box(matrix: Matrix, op: str, entry: Entry, folder: str, reasons: Mapping[str, str]) -> Box:
    stated = {name: shapes.values(value) for name, value in entry.fields.items() if name not in BESIDE}
    unknown = [name for name in stated if name not in matrix.fields(op)]
    if unknown:
        known = ", ".join(matrix.fields(op))
        raise MatrixError([f"{entry.where}: field: got {name!r}; accepts {known}" for name in unknown])
    everything = {**_domains(matrix, entry.where, op), **matrix.unnamed(op)}
    return Box(entry.where, {**everything, **stated}, folder, reasons)


def _domains(matrix: Matrix, where: str, op: str) -> dict[str, Values]:
    for name in matrix.fields(op):
        if name not in matrix.domains:
            raise MatrixError([f"{where}: field {name!r} of {op} has no domain; add [field.{name}] to the matrix"])
    return {name: matrix.domains[name] for name in matrix.fields(op)}
