"""Template contexts for models: their rows as Python calls, and the table of what serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from codegen.model import Arch, Matrix, Value, Variant
from codegen.models import EVERY, Model
from codegen.models.peers import Attention, asked


def context(matrix: Matrix) -> dict[str, Any]:
    """What ``_models.py`` prints: the rows in plain values."""
    names = [field.name for field in fields(Model)]
    return {
        "types": {field.name: field.type for field in fields(Model)},
        "calls": [{name: _literal(getattr(model, name)) for name in names} for model in matrix.models.rows],
    }


def page(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, Any]:
    """What ``MODELS.md`` prints: which formats each arch serves, who else does, and where the rows come from."""
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
                "window": f"{model.window:,}" if model.window else "-",
                "q_lens": ", ".join(map(str, model.q_lens)) or "not stated",
                "formats": ", ".join(f"`{name}`{_beside(model)}" for name in model.formats),
                "served": [_served(model, arch, variants) for arch in archs],
                "source": "; ".join([model.source, *(f"`{name}`: {text}" for name, text in model.sources)]),
            }
            for model in matrix.models.rows
        ],
        "unserved": [
            {"name": model.name, "where": "any arch" if arch == EVERY else f"`{arch}`", "reason": reason}
            for model in matrix.models.rows
            for arch, reason in model.unserved
        ],
        "unread": dict(matrix.models.unread),
        "attentions": [
            {
                "name": f"{'sparse' if attention.sparse else 'dense'} {attention.d_qk}/{attention.d_v}",
                "format": f"`{attention.format}`{_beside(attention)}",
                "readers": [_readers(matrix, attention, arch, variants) for arch in archs],
                "models": ", ".join(names),
            }
            for attention, names in asked(matrix.models).items()
        ],
        "peer_sources": list(matrix.peers.sources.values()),
    }


def _served(model: Model, arch: Arch, variants: Sequence[Variant]) -> str:
    """The formats that an arch decodes, and those of a sparse prefill; where not at every degree, the degrees."""
    found: dict[tuple[str, str], list[int]] = {}
    ours = [variant for variant in variants if variant.arch == arch.name]
    for degree in model.degrees:
        for points in _points(model, degree):
            if all(any(_serves(variant, point) for variant in ours) for point in points):
                found.setdefault((str(points[0]["op"]), str(points[0]["kv_dtype"])), []).append(degree)
    ops: dict[str, list[str]] = {}
    for (op, name), degrees in found.items():
        limit = "" if tuple(degrees) == model.degrees else f" (TP {', '.join(map(str, degrees))})"
        ops.setdefault(op, []).append(f"`{name}`{limit}")
    prefix = {"sparse_prefill": "prefill "}
    return "; ".join(f"{prefix.get(op, '')}{', '.join(names)}" for op, names in ops.items()) or "no"


def _beside(asker: Model | Attention) -> str:
    """The format of the second cache, where that is another one."""
    return f" + `{asker.extra_format}`" if asker.extra_format else ""


def _readers(matrix: Matrix, attention: Attention, arch: Arch, variants: Sequence[Variant]) -> str:
    """Who decodes this attention on an arch: we, and the packages of ``peers.toml`` with numbers of sources."""
    numbers = {name: number for number, name in enumerate(matrix.peers.sources, 1)}
    point: dict[str, Value] = {"kv_dtype": attention.format, "out_dtype": "bf16"}
    point |= {"op": "sparse_decode" if attention.sparse else "decode", "d_qk": attention.d_qk, "d_v": attention.d_v}
    if attention.extra_format:
        point["extra_kv_dtype"] = attention.extra_format
    ours = any(variant.arch == arch.name and _serves(variant, point) for variant in variants)
    others = (
        f"{peer.name}&nbsp;<sup>[{numbers[peer.source]}](#peer-{numbers[peer.source]})</sup>"
        for peer in matrix.peers.rows
        if peer.arch == arch.name and peer.serves(attention)
    )
    return ", ".join(["**mla-kernels**"] * ours + list(others)) or "-"


def _points(model: Model, degree: int) -> Iterator[list[dict[str, Value]]]:
    """What a rank launches, an op and a cache format each, as ``mla_kernels.models`` says it to a lookup.

    A decode is in the list once for each of ``q_lens``: it is served where all of them are.
    """
    rank: dict[str, Value] = {"out_dtype": "bf16", "d_qk": model.d_qk, "d_v": model.d_v}
    rank["num_heads"] = model.heads // degree
    if model.topk:
        rank["topk"] = model.topk
    extra: dict[str, Value] = {"extra_kv_dtype": model.extra_format} if model.extra_format else {}
    op = "sparse_decode" if model.topk else "decode"
    for name in model.formats:
        yield [{"op": op, "kv_dtype": name, **extra, **rank, "q_len": q_len} for q_len in model.q_lens or (1,)]
    if model.topk:
        yield [{"op": "sparse_prefill", "kv_dtype": "bf16", **rank}]


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
