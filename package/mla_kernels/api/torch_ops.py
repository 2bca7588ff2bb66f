"""The ops as ``torch.library`` ops, for ``torch.compile``: each launches its kernel, and a fake says what it returns.

Compiled code allocates its own outputs and chooses its own stream, so ``out``, ``workspace`` and ``stream`` belong to
eager calls only. Importing this module imports torch and registers the ops.
"""

# ruff: noqa: PLR0917  (torch.library passes arguments by position)

from __future__ import annotations

from collections.abc import Callable

import torch

from mla_kernels.api import selection
from mla_kernels.api.selection import select
from mla_kernels.errors import UnsupportedError
from mla_kernels.formats import HEAD_DIM, LATENT
from mla_kernels.kernels.base import Plan
from mla_kernels.kernels.decode import plan_for
from mla_kernels.tensors import Packed, Tensor

_NAMESPACE = "mla_kernels"
_TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SCALES = "float softmax_scale, float q_scale, float kv_scale, float out_scale"


def require_defaults(**arguments: object) -> None:
    """Refuse what a compiled graph decides for itself.

    Raises
    ------
    UnsupportedError
        An argument was given.
    """
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise UnsupportedError(name, type(value).__name__, "None under torch.compile, which allocates for itself")


def decode(
    q: Packed, kv_cache: Packed, block_table: Tensor | None, seq_lens: Tensor, plan: Plan | None,
    lse: Tensor | bool | None, softmax_scale: float, causal: bool, q_scale: float, kv_scale: float, out_scale: float,
    max_splits: int, batch_invariant: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``mla_kernels.decode`` in a graph."""
    if lse is not False:
        require_defaults(lse=lse)
    made_by, shape, buffer = "", [0, 0, 0], None
    if plan is not None:
        made_by, shape, buffer = plan.variant, [plan.batch, plan.q_len, plan.num_heads], plan.buffer
        max_splits, batch_invariant = plan.max_splits, plan.batch_invariant
    out, sums = torch.ops.mla_kernels.decode(
        *_pair(q), *_pair(kv_cache), block_table, seq_lens, buffer, made_by, shape, softmax_scale, q_scale, kv_scale,
        out_scale, causal, max_splits, batch_invariant,
    )  # fmt: skip
    return out, None if lse is False else sums


def sparse_decode(
    q: Packed, kv_cache: Packed, indices: Tensor, topk_length: Tensor | None, attn_sink: Tensor | None,
    extra_kv_cache: Packed | None, extra_indices: Tensor | None, extra_topk_length: Tensor | None,
    lse: Tensor | bool | None, return_max_logits: bool, softmax_scale: float, q_scale: float, kv_scale: float,
    out_scale: float, max_splits: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """``mla_kernels.sparse_decode`` in a graph."""
    if lse is not False:
        require_defaults(lse=lse)
    out, sums, max_logits = torch.ops.mla_kernels.sparse_decode(
        *_pair(q), *_pair(kv_cache), indices, topk_length, attn_sink, *_pair(extra_kv_cache), extra_indices,
        extra_topk_length, softmax_scale, q_scale, kv_scale, out_scale, max_splits,
    )  # fmt: skip
    returned = (out, None if lse is False else sums)
    return (*returned, max_logits) if return_max_logits else returned


def sparse_prefill(
    q: Packed, kv: Packed, indices: Tensor, topk_length: Tensor | None, attn_sink: Tensor | None,
    extra_kv: Packed | None, extra_indices: Tensor | None, extra_topk_length: Tensor | None, softmax_scale: float,
    q_scale: float, kv_scale: float, out_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``mla_kernels.sparse_prefill`` in a graph."""
    return torch.ops.mla_kernels.sparse_prefill(  # type: ignore[no-any-return]
        *_pair(q), *_pair(kv), indices, topk_length, attn_sink, *_pair(extra_kv), extra_indices, extra_topk_length,
        softmax_scale, q_scale, kv_scale, out_scale,
    )  # fmt: skip


def merge_states(
    o: Tensor, lse: Tensor, counts: Tensor | None, out_dtype: str | None, out_lse: Tensor | bool | None
) -> tuple[Tensor, Tensor]:
    """``mla_kernels.merge_states`` in a graph."""
    if out_lse is not False:
        require_defaults(out_lse=out_lse)
    out, sums = torch.ops.mla_kernels.merge_states(o, lse, counts, out_dtype)
    return out, None if out_lse is False else sums


def store_kv(latent: Tensor, rope: Tensor, kv_cache: Packed, slot_mapping: Tensor, scale: Tensor | None) -> None:
    """``mla_kernels.store_kv`` in a graph."""
    torch.ops.mla_kernels.store_kv(latent, rope, *_pair(kv_cache), slot_mapping, scale)


def gather_kv(
    kv_cache: Packed, indices: Tensor, kv_dtype: str | None, out_dtype: str | None, kv_scale: float
) -> Tensor:
    """``mla_kernels.gather_kv`` in a graph."""
    return torch.ops.mla_kernels.gather_kv(*_pair(kv_cache), indices, kv_dtype, out_dtype, kv_scale)


def to_global_indices(req_id: Tensor, block_table: Tensor, token_indices: Tensor, page_size: int) -> Tensor:
    """``mla_kernels.to_global_indices`` in a graph."""
    return torch.ops.mla_kernels.to_global_indices(req_id, block_table, token_indices, page_size)


def _pair(packed: Packed | None) -> tuple[Tensor | None, Tensor | None]:
    return packed if isinstance(packed, tuple) else (packed, None)


def _packed(latent: Tensor | None, rope: Tensor | None) -> Packed | None:
    return latent if rope is None else (latent, rope)


def _define(schema: str, fake: Callable[..., object]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Register the decorated function as the op ``schema``; ``fake`` returns empty tensors of the right shape."""

    def register(function: Callable[..., object]) -> Callable[..., object]:
        name = f"{_NAMESPACE}::{schema.partition('(')[0]}"
        torch.library.define(name, schema[schema.index("(") :], tags=torch.Tag.pt2_compliant_tag)
        torch.library.impl(name, "CompositeExplicitAutograd", function)
        torch.library.register_fake(name, fake)
        return function

    return register


def _fake_decode(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    batch, q_len, num_heads = q.shape[:3]
    return q.new_empty((batch, q_len, num_heads, LATENT)), _floats(q, batch, num_heads, q_len)


@_define(
    "decode(Tensor q, Tensor? q_rope, Tensor kv_cache, Tensor? kv_rope, Tensor? block_table, Tensor seq_lens,"
    f" Tensor? plan, str plan_variant, SymInt[] plan_shape, {_SCALES}, bool causal, SymInt max_splits,"
    " bool batch_invariant) -> (Tensor, Tensor)",
    _fake_decode,
)
def _decode(
    q: Tensor, q_rope: Tensor | None, kv_cache: Tensor, kv_rope: Tensor | None, block_table: Tensor | None,
    seq_lens: Tensor, buffer: Tensor | None, plan_variant: str, plan_shape: list[int], softmax_scale: float,
    q_scale: float, kv_scale: float, out_scale: float, causal: bool, max_splits: int, batch_invariant: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    plan = None
    if buffer is not None:
        batch, q_len, num_heads = plan_shape
        plan = Plan(buffer, plan_variant, batch, q_len, num_heads, max_splits, batch_invariant)
    queries, cache = _packed(q, q_rope), _packed(kv_cache, kv_rope)
    kernel = selection.decode_kernel(queries, cache, None, block_table is not None, plan)
    if plan is None and (max_splits or batch_invariant):
        plan = plan_for(kernel, queries, seq_lens, max_splits=max_splits, batch_invariant=batch_invariant)
    return kernel.launch(  # type: ignore[no-any-return]
        queries, cache, block_table, seq_lens, plan=plan, softmax_scale=softmax_scale, causal=causal, q_scale=q_scale,
        kv_scale=kv_scale, out_scale=out_scale,
    )  # fmt: skip


def _fake_sparse_decode(q: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    out, lse = _fake_decode(q)
    return out, lse, torch.empty_like(lse)


@_define(
    "sparse_decode(Tensor q, Tensor? q_rope, Tensor kv_cache, Tensor? kv_rope, Tensor indices, Tensor? topk_length,"
    " Tensor? attn_sink, Tensor? extra_kv_cache, Tensor? extra_kv_rope, Tensor? extra_indices,"
    f" Tensor? extra_topk_length, {_SCALES}, SymInt max_splits) -> (Tensor, Tensor, Tensor)",
    _fake_sparse_decode,
)
def _sparse_decode(
    q: Tensor, q_rope: Tensor | None, kv_cache: Tensor, kv_rope: Tensor | None, indices: Tensor,
    topk_length: Tensor | None, attn_sink: Tensor | None, extra_kv_cache: Tensor | None, extra_kv_rope: Tensor | None,
    extra_indices: Tensor | None, extra_topk_length: Tensor | None, softmax_scale: float, q_scale: float,
    kv_scale: float, out_scale: float, max_splits: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    queries, cache = _packed(q, q_rope), _packed(kv_cache, kv_rope)
    kernel = select(selection.sparse_decode, (queries, cache, indices, None))
    return kernel.launch(  # type: ignore[no-any-return]
        queries, cache, indices, topk_length=topk_length, attn_sink=attn_sink,
        extra_kv_cache=_packed(extra_kv_cache, extra_kv_rope), extra_indices=extra_indices,
        extra_topk_length=extra_topk_length, softmax_scale=softmax_scale, q_scale=q_scale, kv_scale=kv_scale,
        out_scale=out_scale, max_splits=max_splits, return_max_logits=True,
    )  # fmt: skip


def _fake_sparse_prefill(q: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    q_len, num_heads = q.shape[:2]
    return q.new_empty((q_len, num_heads, LATENT)), _floats(q, q_len, num_heads), _floats(q, q_len, num_heads)


@_define(
    "sparse_prefill(Tensor q, Tensor? q_rope, Tensor kv, Tensor? kv_rope, Tensor indices, Tensor? topk_length,"
    " Tensor? attn_sink, Tensor? extra_kv, Tensor? extra_kv_rope, Tensor? extra_indices, Tensor? extra_topk_length,"
    f" {_SCALES}) -> (Tensor, Tensor, Tensor)",
    _fake_sparse_prefill,
)
def _sparse_prefill(
    q: Tensor, q_rope: Tensor | None, kv: Tensor, kv_rope: Tensor | None, indices: Tensor, topk_length: Tensor | None,
    attn_sink: Tensor | None, extra_kv: Tensor | None, extra_kv_rope: Tensor | None, extra_indices: Tensor | None,
    extra_topk_length: Tensor | None, softmax_scale: float, q_scale: float, kv_scale: float, out_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    queries, rows = _packed(q, q_rope), _packed(kv, kv_rope)
    kernel = select(selection.sparse_prefill, (queries, rows, indices, None))
    return kernel.launch(  # type: ignore[no-any-return]
        queries, rows, indices, topk_length=topk_length, attn_sink=attn_sink,
        extra_kv=_packed(extra_kv, extra_kv_rope), extra_indices=extra_indices, extra_topk_length=extra_topk_length,
        softmax_scale=softmax_scale, q_scale=q_scale, kv_scale=kv_scale, out_scale=out_scale,
    )  # fmt: skip


def _fake_merge_states(o: Tensor, lse: Tensor, counts: Tensor | None, out_dtype: str | None) -> tuple[Tensor, Tensor]:
    _, num_tokens, num_heads, head_dim = o.shape
    dtype = _TORCH[out_dtype] if out_dtype else o.dtype
    return o.new_empty((num_tokens, num_heads, head_dim), dtype=dtype), _floats(o, num_tokens, num_heads)


@_define("merge_states(Tensor o, Tensor lse, Tensor? counts, str? out_dtype) -> (Tensor, Tensor)", _fake_merge_states)
def _merge_states(o: Tensor, lse: Tensor, counts: Tensor | None, out_dtype: str | None) -> tuple[Tensor, Tensor]:
    kernel = select(selection.merge_states, (o, None), out_dtype)
    return kernel.launch(o, lse, counts)  # type: ignore[no-any-return]


@_define(
    "store_kv(Tensor latent, Tensor rope, Tensor(a!) kv_cache, Tensor(b!)? kv_rope, Tensor slot_mapping, Tensor? scale)"
    " -> ()",
    lambda *_: None,
)
def _store_kv(
    latent: Tensor, rope: Tensor, kv_cache: Tensor, kv_rope: Tensor | None, slots: Tensor, scale: Tensor | None
) -> None:
    cache = _packed(kv_cache, kv_rope)
    select(selection.store_kv, (latent, cache)).launch(latent, rope, cache, slots, scale=scale)


def _fake_gather_kv(
    kv_cache: Tensor, kv_rope: Tensor | None, indices: Tensor, kv_dtype: str | None, out_dtype: str | None, _: float
) -> Tensor:
    config = selection.gather_kv(_packed(kv_cache, kv_rope), None, kv_dtype, out_dtype)
    return kv_cache.new_empty((indices.shape[0], HEAD_DIM), dtype=_TORCH[str(config["out_dtype"])])


@_define(
    "gather_kv(Tensor kv_cache, Tensor? kv_rope, Tensor indices, str? kv_dtype, str? out_dtype, float kv_scale)"
    " -> Tensor",
    _fake_gather_kv,
)
def _gather_kv(
    kv_cache: Tensor, kv_rope: Tensor | None, indices: Tensor, kv_dtype: str | None, out_dtype: str | None, scale: float
) -> Tensor:
    cache = _packed(kv_cache, kv_rope)
    return select(selection.gather_kv, (cache, None), kv_dtype, out_dtype).launch(cache, indices, kv_scale=scale)


@_define(
    "to_global_indices(Tensor req_id, Tensor block_table, Tensor token_indices, SymInt page_size) -> Tensor",
    lambda req_id, block_table, token_indices, page_size: token_indices.new_empty(token_indices.shape),
)
def _to_global_indices(req_id: Tensor, block_table: Tensor, token_indices: Tensor, page_size: int) -> Tensor:
    kernel = select(selection.to_global_indices, (token_indices,), page_size)
    return kernel.launch(req_id, block_table, token_indices, page_size=page_size)


def _floats(like: Tensor, *shape: int) -> Tensor:
    return like.new_empty(shape, dtype=torch.float32)
