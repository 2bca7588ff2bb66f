"""Everything that can be wrong with a matrix, all reported at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from codegen import abi, formats
from codegen.expand import choice, expand
from codegen.load import MatrixError, values
from codegen.model import Matrix, Range, Row, Values, Variant


def problems(matrix: Matrix, variants: Sequence[Variant]) -> list[str]:
    """One line per problem, each naming its row and what to do; an empty list for a sound matrix."""
    return [
        *formats.problems(matrix.formats),
        *(problem for row in matrix.rows for problem in _row(matrix, row)),
        *_excludes(matrix),
        *_clashes(variants),
        *_ties(variants),
        *_limits(matrix, variants),
    ]


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


def _row(matrix: Matrix, row: Row) -> Iterator[str]:
    op = row.fields.get("op")
    if op not in abi.OP:
        yield f"{row.where}: op: got {op!r}; accepts {', '.join(abi.OP)}"
        return
    wanted = matrix.fields(str(op))
    for name, value in row.fields.items():
        if name == "priority":
            if not isinstance(value, int):
                yield f"{row.where}: priority: got {value!r}; accepts an integer"
        elif name == "folder":
            if not isinstance(value, str):
                yield f"{row.where}: folder: got {value!r}; accepts the name of a folder of csrc/"
        elif name not in wanted:
            yield f"{row.where}: unknown field {name!r}; {op} has {', '.join(wanted)}"
        else:
            yield from _outside(matrix, row, name, value)
    for name in wanted:
        if name not in row.fields:
            yield f"{row.where}: field {name!r} is missing"


def _outside(matrix: Matrix, row: Row, name: str, value: object) -> Iterator[str]:
    domain = matrix.domains.get(name)
    if domain is None:
        yield f"{row.where}: field {name!r} has no domain; add [field.{name}] to the matrix"
        return
    for item in choice(value):
        if not isinstance(item, Mapping):
            if item not in domain:
                yield f"{row.where}: {name} = {item!r} is outside its domain: {_text(domain)}"
        elif name in abi.OP[str(row.fields["op"])].traits or name in ("op", "arch"):
            yield f"{row.where}: {name} is a trait in the variant's name and cannot be served at run time"
        elif set(item) != {"accepts"}:
            yield f"{row.where}: {name}: a table says {{accepts = ...}} and nothing else; got {sorted(item)}"
        elif not within(values(item["accepts"]), domain):
            yield f"{row.where}: {name} accepts {_text(values(item['accepts']))}, outside its domain: {_text(domain)}"


def within(inner: Values, outer: Values) -> bool:
    """Whether every value of ``inner`` is one of ``outer``."""
    if isinstance(inner, Range):
        return isinstance(outer, Range) and outer.covers(inner)
    return all(value in outer for value in inner)


def _excludes(matrix: Matrix) -> Iterator[str]:
    for exclude in matrix.excludes:
        for name, accepted in exclude.match.items():
            domain = matrix.domains.get(name, ())
            for value in accepted:
                if value not in domain:
                    yield f"exclude ({exclude.reason}): {name} = {value!r} is outside its domain: {_text(domain)}"


def _clashes(variants: Iterable[Variant]) -> Iterator[str]:
    seen: dict[str, Variant] = {}
    for variant in variants:
        first = seen.setdefault(variant.name, variant)
        if first is not variant:
            yield f"{variant.where}: the name {variant.name} is taken by {first.where}"


def _ties(variants: Iterable[Variant]) -> Iterator[str]:
    """Two variants tie when one config, naming element types only, would find both at the same priority."""
    rivals: dict[tuple[object, ...], list[Variant]] = defaultdict(list)
    for variant in variants:
        rivals[variant.op, variant.arch, variant.dtypes, variant.priority].append(variant)
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
    return all(_meet(mine, rights[name]) for name, mine in left.accepts)


def _meet(left: Values, right: Values) -> bool:
    if isinstance(left, Range):
        return left.meets(right) if isinstance(right, Range) else any(value in left for value in right)
    return any(value in right for value in left)


def _limits(matrix: Matrix, variants: Iterable[Variant]) -> Iterator[str]:
    for variant in variants:
        arch = matrix.archs.get(variant.arch)
        if arch is None:
            yield f"{variant.where}: arch {variant.arch!r} has no [[arch]] row"
            continue
        for name, accepted in variant.accepts:
            limit = arch.limits.get(name)
            if limit is not None and not within(accepted, limit):
                yield f"{variant.where}: {name} accepts {_text(accepted)}, beyond the limit of {arch.name}: {limit}"


def _text(domain: Values) -> str:
    return str(domain) if isinstance(domain, Range) else ", ".join(map(str, domain))
