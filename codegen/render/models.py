"""Template contexts for models: their rows as Python calls, and the table of what serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from codegen.model import Arch, Matrix, Value, Variant
from codegen.models import EVERY, Model


def context(matrix: Matrix) -> dict[str, Any]:
    """What ``_models.py`` prints: the rows in plain values."""
    names = [field.name for field in fields(Model)]
    return {
        "types": {field.name: field.type for field in fields(Model)},
        "calls": [{name: _literal(getattr(model, name)) for name in names} for model in matrix.models.rows],
    }


def page(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, Any]:
    """What ``MODELS.md`` prints: which formats each arch serves, and where the rows come from."""
    archs = sorted(matrix.archs.values(), key=lambda arch: [tuple(map(int, at.split("."))) for at in arch.capabilities])
    archs.sort(key=lambda arch: arch.device != "cuda")
    return {
        "archs": [arch.name for arch in archs],
        "models": [
            {
                "name": model.name,
                "also": f" (also {', '.join(model.also)})" if model.also else "",
                "organisation": model.organisation,
                "heads": model.heads,
                "widths": f"{model.d_qk}/{model.d_v}",
                "topk": f"{model.topk:,}{', sink' * model.sink}" if model.topk else "-",
                "formats": ", ".join(f"`{name}`{_beside(model)}" for name in model.formats),
                "served": [_served(model, arch, variants) for arch in archs],
                "source": model.source,
            }
            for model in matrix.models.rows
        ],
        "unserved": [
            {"name": model.name, "where": "any arch" if arch == EVERY else f"`{arch}`", "reason": reason}
            for model in matrix.models.rows
            for arch, reason in model.unserved
        ],
        "unread": dict(matrix.models.unread),
    }


def _served(model: Model, arch: Arch, variants: Sequence[Variant]) -> str:
    """The formats that an arch decodes, and those of a sparse prefill; where not at every degree, the degrees."""
    found: dict[tuple[str, str], list[int]] = {}
    for degree in model.degrees:
        for point in _points(model, degree):
            if any(variant.arch == arch.name and _serves(variant, point) for variant in variants):
                found.setdefault((str(point["op"]), str(point["kv_dtype"])), []).append(degree)
    ops: dict[str, list[str]] = {}
    for (op, name), degrees in found.items():
        limit = "" if tuple(degrees) == model.degrees else f" (TP {', '.join(map(str, degrees))})"
        ops.setdefault(op, []).append(f"`{name}`{limit}")
    prefix = {"sparse_prefill": "prefill "}
    return "; ".join(f"{prefix.get(op, '')}{', '.join(names)}" for op, names in ops.items()) or "no"


def _beside(model: Model) -> str:
    """The format of the second cache, where that is another one."""
    return f" + `{model.extra_format}`" if model.extra_format else ""


def _points(model: Model, degree: int) -> Iterator[dict[str, Value]]:
    """What a rank launches, an op and a cache format each, as ``mla_kernels.models`` says it to a lookup."""
    rank: dict[str, Value] = {"out_dtype": "bf16", "d_qk": model.d_qk, "d_v": model.d_v}
    rank["num_heads"] = model.heads // degree
    if model.topk:
        rank["topk"] = model.topk
    extra: dict[str, Value] = {"extra_kv_dtype": model.extra_format} if model.extra_format else {}
    op = "sparse_decode" if model.topk else "decode"
    yield from ({"op": op, "kv_dtype": name, **extra, **rank} for name in model.formats)
    if model.topk:
        yield {"op": "sparse_prefill", "kv_dtype": "bf16", **rank}


def _serves(variant: Variant, point: Mapping[str, Value]) -> bool:
    baked, accepts = {"op": variant.op, **dict(variant.baked)}, dict(variant.accepts)
    return all(
        value == baked[name] if name in baked else value in accepts.get(name, ()) for name, value in point.items()
    )


def _literal(value: object) -> str:
    """A value as Python code of this project writes it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return f'"{value}"' if isinstance(value, str) else str(value)
