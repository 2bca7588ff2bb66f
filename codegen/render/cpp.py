"""Template contexts of C++: the classes of variants, and what holds kernels to the points that the matrix allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from codegen import abi
from codegen.model import Allow, Box, Matrix, Value, Variant, choices


def header(variant: Variant, suffix: str) -> str:
    """The header of a variant's op; an op without traits has nothing to instantiate, and one header."""
    return f"{variant.folder}/{variant.op}/{variant.op}{suffix if variant.baked else '.h'}"


def type_of(matrix: Matrix, variant: Variant) -> str:
    """The class of a variant, such as ``mla::cpu::Decode<mla::DType::bf16, ..., mla::Schedule::split>``."""
    known = _known(matrix, _tables(matrix, variant.folder, variant.op))
    baked = [(trait, value) for trait, value in variant.baked if trait in known]
    while baked and baked[-1][1] == matrix.traits[baked[-1][0]].unnamed:
        baked.pop()  # the class has a default for it
    arguments = ", ".join(_value(matrix, trait, value, "mla::") for trait, value in baked)
    return f"mla::{variant.folder}::{abi.OP[variant.op].pascal}" + (f"<{arguments}>" if arguments else "")


def operations(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, Any]:
    """What ``registry.cpp`` prints: the table of a payload's variants."""
    return {
        "headers": sorted({header(variant, ".h") for variant in variants}),
        "templates": [type_of(matrix, variant) for variant in variants if variant.baked],
        "operations": [
            {"name": variant.name, "type": type_of(matrix, variant), "op": f"MLA_OP_{variant.op.upper()}"}
            for variant in variants
        ],
    }


def allowed(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, Any]:
    """What ``allowed.h`` prints: for each op of a payload, which traits its kernels must support, and which not."""
    ops = dict.fromkeys((variant.folder, variant.op) for variant in variants if variant.baked)
    return {
        "headers": sorted(f"{folder}/{op}/supports.h" for folder, op in ops),
        "ops": [
            {"supports": f"{folder}::{op}::supports", "assertions": list(_assertions(matrix, folder, op))}
            for folder, op in ops
        ],
    }


def _assertions(matrix: Matrix, folder: str, op: str) -> Iterator[dict[str, Any]]:
    """The boxes of an op, and around them what is left: sets of each trait's values, points within, and a reason."""
    tables = _tables(matrix, folder, op)
    traits = _known(matrix, tables)
    boxes = {tuple(choices(box.values[trait]) for trait in traits): box for allow in tables for box in allow.boxes}
    for sets in boxes:
        named = [_set(matrix, *pair) for pair in zip(traits, sets, strict=True)]
        yield {"sets": named, "points": prod(map(len, sets)), "reason": ""}
    yield from _left_out(matrix, op, traits, list(boxes.values()), ())


def _tables(matrix: Matrix, folder: str, op: str) -> list[Allow]:
    """The points of an op's kernels in one folder."""
    return [allow for allow in matrix.allows if (allow.folder, allow.op) == (folder, op)]


def _known(matrix: Matrix, tables: Sequence[Allow]) -> list[str]:
    """The traits that an op's kernels know: not those that no box has but as rows leave them out."""
    op = tables[0].op
    unknown = {
        trait
        for trait, value in matrix.unnamed(op).items()
        if all(box.values[trait] == value for allow in tables for box in allow.boxes)
    }
    return [trait for trait in abi.OP[op].traits if trait not in unknown]


def _left_out(
    matrix: Matrix, op: str, traits: Sequence[str], boxes: Sequence[Box], sets: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """What no box has, trait by trait: after sets of the first traits, the values of the next that are left out."""
    if len(sets) == len(traits):
        return
    trait = traits[len(sets)]
    groups: dict[tuple[int, ...], list[Value]] = {}
    for value in choices(matrix.domains[trait]):
        holding = tuple(number for number, box in enumerate(boxes) if value in box.values[trait])
        groups.setdefault(holding, []).append(value)
    for holding, values in groups.items():
        now = (*sets, _set(matrix, trait, values))
        if holding:
            yield from _left_out(matrix, op, traits, [boxes[number] for number in holding], now)
        else:
            reason = next((box.reasons[trait] for box in boxes if trait in box.reasons), f"no kernel has this {trait}")
            rest = [_set(matrix, other, choices(matrix.domains[other])) for other in traits[len(now) :]]
            yield {"sets": [*now, *rest], "points": 0, "reason": f"{op}, {trait}: {reason}"}


def _set(matrix: Matrix, trait: str, values: Sequence[Value]) -> str:
    """``std::array{Load::tma, Load::gather}``, or ``kEveryLoad``."""
    enum = matrix.traits[trait].enum
    if enum and tuple(values) == matrix.enums[enum]:
        return f"kEvery{enum}"
    return "std::array{" + ", ".join(_value(matrix, trait, value) for value in values) + "}"


def _value(matrix: Matrix, trait: str, value: Value, scope: str = "") -> str:
    enum = matrix.traits[trait].enum
    return f"{scope}{enum}::{value}" if enum else str(value)
