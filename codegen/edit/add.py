"""Adds a point to the matrix: a value in an existing row where one fits, otherwise a new row beside its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codegen import abi
from codegen.allow import completed, refusal
from codegen.edit.point import matches, named, serves
from codegen.load import load
from codegen.model import Matrix, Range, Value, Variant, choices
from codegen.rows import Entry, Table, entries, with_field, with_row, with_table
from codegen.schema import MATRIX, MatrixError
from codegen.shapes import served
from codegen.validate import checked

Edit = tuple[Path, list[str]]
"""A file of the matrix and its new lines."""


def add(point: Mapping[str, Value], folder: Path = MATRIX) -> tuple[str, ...]:
    """Add ``point`` to the matrix in ``folder`` and return the names of the variants that appeared or accept more.

    Beside the op's fields, the point may say the ``priority`` of a new row. A table of a device is for all its archs.

    Raises
    ------
    MatrixError
        The point names no op, is not allowed, is served already, or would break the matrix; nothing is then written.
    """
    matrix = load(folder)
    before = checked(matrix)
    op, arch, fields = named(matrix, point, ("priority",))
    priority = fields.pop("priority", None)
    whole = complete(matrix, before, op, arch, fields)
    problems: list[str] = []
    wanted = {"op": op, "arch": arch, **whole}
    for path, lines in _edits(matrix, before, folder, wanted, priority):
        text = path.read_text(encoding="utf-8")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            after = checked(load(folder))
        except MatrixError as error:
            problems = error.problems
        else:
            if any(serves(variant, wanted) for variant in after):
                old = {variant.name: variant.accepts for variant in before}
                return tuple(v.name for v in after if old.get(v.name) != v.accepts)
        path.write_text(text, encoding="utf-8")
    raise MatrixError(problems or ["no row can say this point beside what it says already; write one by hand"])


def complete(
    matrix: Matrix, variants: Sequence[Variant], op: str, arch: str, fields: Mapping[str, Value]
) -> dict[str, Value]:
    """The fields with all traits of the op: widths that are left out the default ones, others as the nearest variant's.

    Raises
    ------
    MatrixError
        An element type is missing, the matrix does not allow the point, or a variant serves it.
    """
    traits = abi.OP[op].traits
    if "out_dtype" in traits and "q_dtype" in fields:
        own = str(fields["q_dtype"])
        fields = {**fields, "out_dtype": fields.get("out_dtype", matrix.traits["out_dtype"].instead.get(own, own))}
    usual = {name: choices(values)[0] for name, values in matrix.unnamed(op).items()}
    if any(name in fields for name in usual if not name.endswith("_dtype")):  # one width, and the nearest has the other
        usual = {name: value for name, value in usual.items() if name.endswith("_dtype")}
    fields = {**usual, **fields}
    missing = [trait for trait in traits if trait.endswith("_dtype") and trait not in fields]
    if missing:
        raise MatrixError([f"{trait} is missing: {op} needs {', '.join(traits)}" for trait in missing])
    reason = refusal(matrix, op, arch, fields)
    if reason:
        raise MatrixError([f"it cannot be added: {reason}"])
    held = [variant.name for variant in variants if serves(variant, {"op": op, "arch": arch, **fields})]
    if held:
        raise MatrixError([f"the matrix holds this point already: {', '.join(held)}"])
    others = [dict(variant.baked) for variant in variants if (variant.op, variant.arch) == (op, arch)]
    nearest = max(others, key=lambda baked: len(baked.items() & fields.items()), default={})
    fields = completed(matrix.boxes(op, arch), traits, fields, nearest)
    return {name: fields[name] for name in matrix.fields(op) if name in fields}


def _edits(
    matrix: Matrix, variants: Sequence[Variant], folder: Path, point: Mapping[str, Value], priority: Value | None
) -> Iterator[Edit]:
    """The edits that could add a point, the least first: a wider row, a longer list, a new row, a new table."""
    op, arch = str(point["op"]), str(point["arch"])
    traits = {trait: point[trait] for trait in abi.OP[op].traits}
    left_out = {name: choices(values)[0] for name, values in matrix.unnamed(op).items()}
    tables = [
        (path, table, shared, rows)
        for path in sorted(folder.glob("*.toml"))
        for table, shared, rows in entries(path, "kernel")
        if shared.get("op") == op and arch in served(path.name, shared, matrix.archs)
    ]
    found = next((variant for variant in variants if matches(variant, op, arch, traits)), None)
    if found is not None:
        _widens_alone(variants, found, priority)
    for path, _, _, rows in tables:
        lines = path.read_text(encoding="utf-8").splitlines()
        for entry in rows:
            if found is not None and entry.where == found.where:
                yield path, _widened(lines, entry, found, point)
            elif found is None and priority is None:
                yield from _longer(path, lines, entry, traits, left_out)
    if found is None:
        yield from _new(matrix, folder, tables, point, priority)


def _widens_alone(variants: Sequence[Variant], found: Variant, priority: Value | None) -> None:
    """Refuse to widen a row that makes other variants too, or to say a priority, which stands in the row already."""
    if priority is not None:
        raise MatrixError([f"priority: {found.name} stands at {found.where}; change its priority there"])
    if any((each.where, each.arch) == (found.where, found.arch) and each.name != found.name for each in variants):
        raise MatrixError([f"{found.where} makes other variants too; write it as two rows first"])


def _choices(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _widened(lines: list[str], entry: Entry, variant: Variant, point: Mapping[str, Value]) -> list[str]:
    """A row that accepts the numbers and names of a point at run time."""
    for name, accepted in variant.accepts:
        value = point.get(name)
        if value is None or value in accepted:
            continue
        if isinstance(accepted, Range):
            wider = accepted.with_value(int(value))
            stated: Any = wider.stated()
        else:
            stated = [*accepted, value]
        lines = with_field(lines, entry, name, stated)
    return lines


def _longer(
    path: Path, lines: list[str], entry: Entry, traits: Mapping[str, Value], left_out: Mapping[str, Value]
) -> Iterator[Edit]:
    """A row whose cache or output types become one more, where that makes the point alone."""
    fields = {**left_out, **entry.fields}
    lacking = [name for name, value in traits.items() if value not in _choices(fields.get(name))]
    if len(lacking) == 1 and lacking[0] in ("kv_dtype", "out_dtype"):
        (name,) = lacking
        alone = all(len(_choices(fields[other])) == 1 for other in traits if other != name)
        if alone and (entry.table.rows is None or name in entry.own):
            yield path, with_field(lines, entry, name, [*_choices(fields[name]), traits[name]])


def _new(
    matrix: Matrix,
    folder: Path,
    tables: Sequence[tuple[Path, Table, Mapping[str, Any], Sequence[Entry]]],
    point: Mapping[str, Value],
    priority: Value | None,
) -> Iterator[Edit]:
    """A row in a table that says nothing else than the point, or a table below the last of its op and arch."""
    op, arch = str(point["op"]), str(point["arch"])
    own = matrix.stated(op, point) | ({} if priority is None else {"priority": priority})
    for path, table, shared, _ in reversed(tables):
        common = {name: value for name, value in shared.items() if name not in ("op", "arch", "device")}
        if table.rows and all(own.get(name, value) == value for name, value in common.items()):
            left = {name: value for name, value in own.items() if name not in common}
            yield path, with_row(path.read_text(encoding="utf-8").splitlines(), table, left)
    fields = {"op": op, "arch": arch, **own}
    if tables:
        path, table = tables[-1][:2]
    else:
        path, table = _allowing(matrix, folder, op, arch)
    yield path, with_table(path.read_text(encoding="utf-8").splitlines(), table, fields)


def _allowing(matrix: Matrix, folder: Path, op: str, arch: str) -> tuple[Path, Table]:
    """The last table that allows points of an op on an arch, below which its first row belongs."""
    return [
        (path, table)
        for path in sorted(folder.glob("*.toml"))
        for table, shared, _ in entries(path, "allow")
        if shared.get("op") == op and arch in served(path.name, shared, matrix.archs)
    ][-1]
