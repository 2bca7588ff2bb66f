"""Rows to variants: a list is one variant each, a scalar is baked, ``{accepts = ...}`` is served at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from codegen import abi
from codegen.load import values
from codegen.model import Matrix, Row, Value, Values, Variant

META = ("priority", "folder")
"""What a row may say beside its fields: which of several variants comes first, and where its op is written."""


def expand(matrix: Matrix) -> tuple[Variant, ...]:
    """Every variant of every row that no exclude removes; rows that ``validate`` would refuse are passed over."""
    return tuple(variant for row in matrix.rows if well_formed(matrix, row) for variant in _variants(matrix, row))


def well_formed(matrix: Matrix, row: Row) -> bool:
    """Whether the row names an op, exactly that op's fields, and tables that say ``accepts``."""
    op = row.fields.get("op")
    if op not in abi.OP or set(matrix.fields(str(op))) != set(row.fields) - set(META):
        return False
    return all("accepts" in value for value in row.fields.values() if isinstance(value, Mapping))


def _variants(matrix: Matrix, row: Row) -> Iterator[Variant]:
    op, priority = str(row.fields["op"]), row.fields.get("priority", 0)
    choices = [choice(row.fields[name]) for name in matrix.fields(op)]
    for picks in product(*choices):
        point = dict(zip(matrix.fields(op), picks, strict=True))
        if matrix.excluded(point):
            continue
        arch, baked = str(point["arch"]), {trait: _baked(point[trait]) for trait in abi.OP[op].traits}
        yield Variant(
            matrix.variant_name(arch, op, baked),
            matrix.unit_name(arch, op, baked),
            op,
            arch,
            tuple(baked.items()),
            tuple((name, _accepted(point[name])) for name in matrix.accepted.get(op, ())),
            priority if isinstance(priority, int) else 0,
            str(row.fields.get("folder", _payload(matrix, point["arch"]))),
            row.where,
        )


def _baked(value: object) -> Value:
    return value if isinstance(value, int) else str(value)


def _payload(matrix: Matrix, arch: object) -> str:
    found = matrix.archs.get(str(arch))
    return found.payload if found else str(arch)


def choice(value: object) -> tuple[Any, ...]:
    """The alternatives a row's value stands for: a list's items, or the value itself."""
    return tuple(value) if isinstance(value, list) else (value,)


def _accepted(value: Value | Mapping[str, Any]) -> Values:
    return values(value["accepts"]) if isinstance(value, Mapping) else (value,)
