"""The template context of ``VARIANTS.md``, and how its cells and the command line say what a variant accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codegen.model import Allow, Box, Matrix, Values, Variant, text_of


def listing(matrix: Matrix, payloads: Mapping[str, Sequence[Variant]]) -> dict[str, Any]:
    """All variants, what may be added to them, and why not more."""
    by_table: dict[str, list[Allow]] = {}
    for allow in matrix.allows:
        by_table.setdefault(allow.where, []).append(allow)
    return {
        "total": sum(map(len, payloads.values())),
        "payloads": [
            {
                "name": payload,
                "variants": [
                    {"name": variant.name, "accepts": values_text(dict(variant.accepts)), "priority": variant.priority}
                    for variant in members
                ],
            }
            for payload, members in payloads.items()
        ],
        "allows": [
            {
                "op": tables[0].op,
                "arch": ", ".join(allow.arch for allow in tables),
                "points": [box_text(matrix, box) for box in tables[0].boxes],
                "reasons": reason_texts(tables[0]),
            }
            for tables in by_table.values()
        ],
    }


def box_text(matrix: Matrix, box: Box) -> str:
    """``q_dtype fp16, bf16; load tma``, of the fields that do not take all of their values."""
    narrowed = {name: values for name, values in box.values.items() if values != matrix.domains[name]}
    return values_text(narrowed) or "everything"


def reason_texts(allow: Allow) -> list[str]:
    """``load: the kernel loads KV by TMA``, for each field of which something is left out."""
    return [f"{field}: {reason}" for field, reason in allow.reasons.items()]


def values_text(values: Mapping[str, Values]) -> str:
    """``page_size 1 and up; kv_layout contiguous, paged``."""
    return "; ".join(f"{name} {text_of(some)}" for name, some in values.items())
