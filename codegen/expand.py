"""Rows to variants: each combination of a row's traits is one; what is not baked is served at run time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from codegen import abi
from codegen.allow import covering
from codegen.model import Matrix, Row, Variant, choices


def expand(matrix: Matrix) -> tuple[Variant, ...]:
    """Every variant of every row; rows and points that ``validate`` refuses are passed over."""
    return tuple(variant for row in matrix.rows if well_formed(matrix, row) for variant in _variants(matrix, row))


def well_formed(matrix: Matrix, row: Row) -> bool:
    """Whether the row names an op, all traits of the op, and no field that the op has not."""
    if row.op not in abi.OP or not set(row.fields) <= set(matrix.fields(row.op)):
        return False
    return all(choices(row.fields.get(trait, ())) for trait in abi.OP[row.op].traits)


def _variants(matrix: Matrix, row: Row) -> Iterator[Variant]:
    traits = abi.OP[row.op].traits
    points = product(*(choices(row.fields[trait]) for trait in traits))
    for arch, picks in product(row.archs, points):
        baked = dict(zip(traits, picks, strict=True))
        boxes, missing = covering(matrix.boxes(row.op, arch), traits, baked)
        if missing or not boxes:
            continue
        accepts = {name: row.fields.get(name, boxes[0].values[name]) for name in matrix.accepted.get(row.op, ())}
        yield Variant(
            name=matrix.variant_name(arch, row.op, baked),
            unit=matrix.unit_name(arch, row.op, baked),
            op=row.op,
            arch=arch,
            baked=tuple(baked.items()),
            accepts=tuple(accepts.items()),
            priority=row.priority,
            accuracy=row.accuracy,
            folder=boxes[0].folder,
            where=row.where,
        )
