"""Which points rows may name, and why not others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.model import Box, Matrix, Range, Value, choices, text_of


def covering(boxes: Sequence[Box], fields: Sequence[str], point: Mapping[str, object]) -> tuple[Sequence[Box], str]:
    """Follow a point field by field, keeping the boxes that hold it.

    Returns
    -------
    tuple[Sequence[Box], str]
        The boxes that hold the point, and ``""``; or those that held it until a field of which none has the value, and
        that field. A field that the point does not name is held by all.
    """
    for field in fields:
        if field in point:
            kept = [box for box in boxes if point[field] in box.values[field]]
            if not kept:
                return boxes, field
            boxes = kept
    return boxes, ""


def refusal(matrix: Matrix, op: str, arch: str, point: Mapping[str, object]) -> str | None:
    """Why no row may name a point of ``op`` on ``arch``, which may leave fields open; ``None`` where one may."""
    for field, value in point.items():
        domain = matrix.domains.get(field)
        if domain is not None and value not in domain:
            return f"{field} {value} is outside the domain of the matrix: {text_of(domain)}"
    boxes, field = covering(matrix.boxes(op, arch), matrix.fields(op), point)
    if boxes and not field:
        return None
    if not boxes:
        tables = [allow for allow in matrix.allows if (allow.op, allow.arch) == (op, arch)]
        stated = next((allow.reasons["op"] for allow in tables if "op" in allow.reasons), None)
        return stated or f"there is no kernel of {op} for {arch}"
    reason = next((box.reasons[field] for box in boxes if field in box.reasons), None)
    got = f"{field} is {point[field]}; accepts {accepted(boxes, field)}"
    return f"{reason} ({got})" if reason else got


def accepted(boxes: Sequence[Box], field: str) -> str:
    """What boxes have of one field: ``fp16, bf16``, or ``1 to 16 or 8 and up, multiples of 8``."""
    sets = [box.values[field] for box in boxes]
    if any(isinstance(values, Range) for values in sets):
        return " or ".join(dict.fromkeys(map(text_of, sets)))
    return text_of(tuple(dict.fromkeys(value for values in sets for value in choices(values))))


def completed(
    boxes: Sequence[Box], fields: Sequence[str], point: Mapping[str, Value], pattern: Mapping[str, Value]
) -> dict[str, Value]:
    """Fill in the traits that a point leaves open, as ``pattern`` has them where a box that holds the point does.

    ``fields`` are the op's traits. Of the boxes that hold the point, the one that has most of the pattern decides.
    """
    held, _ = covering(boxes, fields, point)
    like = max(held, key=lambda box: sum(pattern.get(field) in box.values[field] for field in fields))
    filled = dict(point)
    for field in fields:
        values = choices(like.values[field])
        filled.setdefault(field, pattern[field] if pattern.get(field) in values else values[0])
    return filled
