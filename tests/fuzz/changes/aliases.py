"""Tensors that share memory: what is written must overlap nothing, and views that interleave are fine."""

from __future__ import annotations

from tests.fuzz.elements import STORED
from tests.fuzz.memory import Array, Space, contiguous
from tests.fuzz.problems.case import RETURNED, Case, Maker

CACHES = ("kv_cache", "extra_kv_cache")
"""Where these have padded pages, their strides stay as they are."""


def aliased(make: Maker, case: Case, space: Space) -> Case:
    """Lay an output of a legal case over another tensor of it, or between the elements of one."""
    case.kind = "alias"
    case.how = "op" if case.how == "planned" else case.how
    written = {"kv_cache"} if case.op == "store_kv" else set(RETURNED[case.op])
    arrays = [(name, array) for name, array in case.arrays() if array.span]
    outputs = [pair for pair in arrays if pair[0] in written]
    if not outputs:
        return case
    name, output = make.random.choice(outputs)
    others = [pair for pair in arrays if pair[1] is not output]
    if not others:
        return case
    other_name, other = make.random.choice(others)
    if make.chance(0.35):
        return interleaved(make, case, space)
    padded = case.variant.has_form and case.variant.form.behind_page
    for array, given in ((output, name), (other, other_name)):
        if min(array.strides, default=1) > 0 and not (padded and given in CACHES):
            array.strides = contiguous(array.shape)
    unit = STORED[output.dtype].itemsize
    places = [0, other.span // 2, other.span - 1, make.random.randrange(other.span)]
    if padded and other_name in CACHES:
        places = [0, other.span - 1]  # others may lie between two pages
    offset = make.random.choice(places) // unit * unit
    other.align, other.at_start = 16, make.chance(0.3)
    space.put(other, extra=output.span + 16)
    space.over(output, other, offset)
    case.verdict, case.names, case.label = "refuse", (name, other_name), f"{name} over {other_name}"
    return case


def interleaved(make: Maker, case: Case, space: Space) -> Case:
    """Two tensors whose ranges of addresses overlap and whose elements do not: legal."""
    given = case.arguments
    for name, other in (("max_logits", "lse"), ("out", "q")):
        under, over = given.get(other), given.get(name)
        if not (isinstance(under, Array) and isinstance(over, Array)) or under.dtype != over.dtype:
            continue
        if not (under.span and over.span) or 0 in under.strides or under.region is not None:
            continue
        columns = 1 if name == "max_logits" else under.shape[-1]
        if name == "max_logits":
            under.strides = over.strides = tuple(2 * s for s in contiguous(under.shape))
        else:
            row = columns + over.shape[-1]
            under.strides = over.strides = (*(s * row for s in contiguous(under.shape[:-1])), 1)
        unit = STORED[over.dtype].itemsize
        space.put(under, extra=columns * unit + 1024)
        space.over(over, under, columns * unit)
        case.label = f"{name} between the elements of {other}"
        return case
    return case
