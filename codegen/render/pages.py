"""The template contexts of ``VARIANTS.md`` and ``SUPPORT.md``, and how they and the commands say what is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from codegen.model import Allow, Arch, Box, Matrix, Range, Values, Variant, text_of, within

_ATTENTION = ("decode", "sparse_decode", "sparse_prefill")


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


def support(matrix: Matrix, payloads: Mapping[str, Sequence[Variant]]) -> dict[str, Any]:
    """What each arch serves: a row for each attention op, widths, and group of cache formats with the same limits."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for arch in sorted(matrix.archs.values(), key=_gpus_first):
        for op, form in product(_ATTENTION, matrix.formats.rows):
            of_op = [v for v in payloads.get(arch.payload, ()) if (v.arch, v.op) == (arch.name, op)]
            members = [variant for variant in of_op if _format_of(variant) == form.key]
            if members:
                limits = (_widest(members, name) for name in ("page_size", "num_heads", "q_len"))
                place = (arch.hardware, op, f"{form.d_qk}/{form.d_v}", *limits)
                groups.setdefault(place, []).append(_format(form.name, members, _queries(of_op)))
    return {"rows": [(*place, formats) for place, formats in groups.items()]}


def _format_of(variant: Variant) -> tuple[object, ...]:
    baked = dict(variant.baked)
    return baked["kv_dtype"], baked["d_qk"], baked["d_v"]


def _queries(variants: Sequence[Variant]) -> list[str]:
    return list(dict.fromkeys(str(dict(variant.baked)["q_dtype"]) for variant in variants))


def _gpus_first(arch: Arch) -> tuple[bool, list[float]]:
    return arch.device != "cuda", [float(capability) for capability in arch.capabilities]


def _format(kv_dtype: str, variants: Sequence[Variant], every: Sequence[str]) -> str:
    """A cache format, and the types of the queries that go with it unless they are its own."""
    queries = _queries(variants)
    if queries == [kv_dtype]:
        return f"`{kv_dtype}`"
    return f"`{kv_dtype}` with {'any' if len(every) > 1 and queries == list(every) else ', '.join(queries)} queries"


def _widest(variants: Sequence[Variant], name: str) -> str:
    """What any of the variants accepts: the widest of their values, where that holds all others."""
    accepted = [dict(variant.accepts)[name] for variant in variants if name in dict(variant.accepts)]
    for values in accepted:
        if all(within(other, values) for other in accepted):
            return "any" if values == Range(1, None, 1) else text_of(values)
    return "; ".join(dict.fromkeys(map(text_of, accepted))) or "-"


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
