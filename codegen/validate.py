"""Everything that can be wrong with a matrix of the right shape, all reported at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product

from codegen import abi, formats, models
from codegen.allow import refusal
from codegen.expand import expand
from codegen.model import Allow, Matrix, Row, Variant, choices, meet, text_of, within
from codegen.models import peers
from codegen.schema import MatrixError

ANY_ROW = "op, arch, device, priority, accuracy"
"""What a row may say beside the fields of its op."""


def problems(matrix: Matrix, variants: Sequence[Variant]) -> list[str]:
    """One line per problem, each naming its row and what to do; an empty list for a sound matrix."""
    found = [
        *formats.problems(matrix.formats),
        *models.problems(matrix.models, matrix.formats.types, matrix.archs),
        *peers.problems(matrix.peers, matrix.models, matrix.archs),
        *_fields(matrix),
        *(problem for allow in matrix.allows for problem in _allow(matrix, allow)),
        *_shared_points(matrix),
        *(problem for row in matrix.rows for problem in _row(matrix, row)),
        *_limits(matrix, variants),
        *_clashes(variants),
        *_ties(matrix, variants),
    ]
    return list(dict.fromkeys(found))  # what a table says is wrong once, not in each of its rows


def checked(matrix: Matrix) -> tuple[Variant, ...]:
    """The variants of a sound matrix.

    Raises
    ------
    MatrixError
        With every problem, if there is one.
    """
    variants = expand(matrix)
    found = problems(matrix, variants)
    if found:
        raise MatrixError(found)
    return variants


def _fields(matrix: Matrix) -> Iterator[str]:
    for op in abi.OPS:
        for name in matrix.fields(op.name):
            if name not in matrix.domains:
                yield f"field {name!r} of {op.name} has no domain; add [field.{name}] to the matrix"
    for op_name in matrix.accepted:
        if op_name not in abi.OP:
            yield f"op.{op_name}: no such op; accepts {', '.join(abi.OP)}"


def _allow(matrix: Matrix, allow: Allow) -> Iterator[str]:
    for box in allow.boxes:
        for name, values in box.values.items():
            if not within(values, matrix.domains[name]):
                yield f"{box.where}: {name} = {text_of(values)} is outside its domain: {text_of(matrix.domains[name])}"
    for name in allow.reasons:
        if name not in ("op", *matrix.fields(allow.op)):
            yield f"{allow.where}: reasons: {allow.op} has no field {name!r}"


def _shared_points(matrix: Matrix) -> Iterator[str]:
    """Points that two rows allow: then it is open whose limits a variant has, and whose folder."""
    for op, arch in dict.fromkeys((allow.op, allow.arch) for allow in matrix.allows):
        for left, right in combinations(matrix.boxes(op, arch), 2):
            if all(meet(left.values[trait], right.values[trait]) for trait in abi.OP[op].traits):
                yield f"{right.where}: allows traits that {left.where} allows too; one row must leave them out"


def _row(matrix: Matrix, row: Row) -> Iterator[str]:
    if row.op not in abi.OP:
        yield f"{row.at('op')}: op: got {row.op!r}; accepts {', '.join(abi.OP)}"
        return
    traits, wanted = abi.OP[row.op].traits, matrix.fields(row.op)
    found = [f"{row.at('arch')}: arch: got {arch!r}; accepts {text_of(tuple(matrix.archs))}" for arch in row.archs
             if arch not in matrix.archs]  # fmt: skip
    found += [f"{row.at(name)}: unknown field {name!r}; {row.op} has {', '.join(wanted)}, and every row {ANY_ROW}"
              for name in row.fields if name not in wanted]  # fmt: skip
    found += [f"{row.where}: trait {name!r} is missing" for name in traits if name not in row.fields]
    found += [f"{row.at(name)}: {name} is in the variant's name, and a range is not" for name in traits
              if name in row.fields and not choices(row.fields[name])]  # fmt: skip
    yield from found
    if found:
        return
    points = product(*(choices(row.fields[trait]) for trait in traits))
    for arch, picks in product(row.archs, points):
        point = dict(zip(traits, picks, strict=True))
        reason = refusal(matrix, row.op, arch, point)
        if reason:
            said = map(str, (row.op, arch, *matrix.stated(row.op, point).values()))
            yield f"{row.where}: {' '.join(said)} is not allowed: {reason}"


def _limits(matrix: Matrix, variants: Iterable[Variant]) -> Iterator[str]:
    """What a variant accepts must be what its kernel takes."""
    for variant in variants:
        baked = dict(variant.baked)
        for box in matrix.boxes(variant.op, variant.arch):
            if all(value in box.values[trait] for trait, value in baked.items()):
                for name, accepted in variant.accepts:
                    if not within(accepted, box.values[name]):
                        yield (
                            f"{variant.where}: {name} accepts {text_of(accepted)}, "
                            f"and {box.where} allows {text_of(box.values[name])}"
                        )


def _clashes(variants: Iterable[Variant]) -> Iterator[str]:
    seen: dict[str, Variant] = {}
    for variant in variants:
        first = seen.setdefault(variant.name, variant)
        if first is not variant:
            yield f"{variant.where}: the name {variant.name} is taken by {first.where}"


def _ties(matrix: Matrix, variants: Iterable[Variant]) -> Iterator[str]:
    """Two variants tie when one config, naming element types and widths only, would find both at the same priority."""
    rivals: dict[tuple[object, ...], list[Variant]] = defaultdict(list)
    for variant in variants:
        widths = tuple(value for trait, value in variant.baked if trait in matrix.unnamed(variant.op))
        rivals[variant.op, variant.arch, variant.dtypes, widths, variant.priority].append(variant)
    for group in rivals.values():
        for number, variant in enumerate(group):
            for other in group[:number]:
                if variant.name != other.name and _overlap(variant, other):
                    yield (
                        f"{variant.where}: {variant.name} ties with {other.name}; "
                        "give one of the rows another priority or disjoint accepted sets"
                    )
                    break


def _overlap(left: Variant, right: Variant) -> bool:
    rights = dict(right.accepts)
    return all(meet(mine, rights[name]) for name, mine in left.accepts)
