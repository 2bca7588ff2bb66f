"""Sparse attention in the shapes of FlashMLA: one KV head, and indices of which any may be absent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import mla_kernels as mla
from mla_kernels.compat._arguments import require_one_dtype, shape_of
from mla_kernels.compat._caches import WIDTHS, kv_dtype_of, query_of, rows_of
from mla_kernels.compat._schedule import FlashMLASchedMeta, filled_by_call, require_tensors, unscheduled
from mla_kernels.errors import ShapeError, UnsupportedError

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def decode(  # noqa: PLR0917 (the arguments of the adapter)
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    extra_k_cache: torch.Tensor | None,
    extra_indices: torch.Tensor | None,
    scheduled: object,
    num_splits: object,
    causal: bool,
    is_fp8_kvcache: bool,
    kv_format: object,
    use_legacy: bool | None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and natural LSE of ``flash_mla_with_kvcache`` with indices; -inf where no index counts.

    ``options`` are those that ``mla_kernels.sparse_decode`` knows by the same names.
    """
    if causal:
        raise UnsupportedError("causal", str(causal), "False, because indices say what a token sees")
    batch, s_q, h_q, d_qk = query_of(q)
    cache = _one_head("k_cache", k_cache, is_fp8_kvcache, q)
    topk = shape_of("indices", indices, batch, s_q, "topk")[2]
    config = FlashMLASchedMeta.Config(batch, s_q, h_q, cache.shape[1], 1, causal, is_fp8_kvcache, topk)
    indices = _below(_slots(cache), indices)
    if extra_k_cache is not None:
        extra_k_cache = _one_head("extra_k_cache", extra_k_cache, is_fp8_kvcache, q)
        extra_topk = shape_of("extra_indices_in_kvcache", extra_indices, batch, s_q, "extra_topk")[2]
        config = replace(config, extra_page_block_size=extra_k_cache.shape[1], extra_topk=extra_topk)
        extra_indices = _below(_slots(extra_k_cache), extra_indices)
    _require_schedule(scheduled, num_splits, config, q)
    kv_dtype = kv_dtype_of(cache, d_qk, kv_format, use_legacy) if is_fp8_kvcache else None
    out, lse = mla.sparse_decode(
        q, cache, indices, extra_kv_cache=extra_k_cache, extra_indices=extra_indices, kv_dtype=kv_dtype, **options
    )
    return out, lse


def prefill(q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, **options: Any) -> States:
    """Output, largest logits and natural LSE of ``flash_mla_sparse_fwd``; both -inf where no index counts."""
    s_q, _, d_qk = shape_of("q", q, "s_q", "num_heads_q", "d_qk")
    if d_qk not in WIDTHS:
        raise ShapeError("q", f"shape {list(q.shape)}", f"[s_q, num_heads_q, {' or '.join(map(str, WIDTHS))}]")
    s_kv, h_kv, _ = shape_of("kv", kv, "s_kv", "num_heads_k", d_qk)
    require_one_dtype(q=q, kv=kv)
    if h_kv != 1:
        raise ShapeError("kv", f"{h_kv} heads", "1 head, which all of q attend to")
    shape_of("indices", indices, s_q, 1, "topk")
    return mla.sparse_prefill(q, kv[:, 0], _below(s_kv, indices)[:, 0], **options)


def _one_head(argument: str, k_cache: object, is_fp8_kvcache: bool, q: torch.Tensor) -> torch.Tensor:
    cache = rows_of(argument, k_cache, is_fp8_kvcache, q.shape[-1])
    if cache.shape[2] != 1:
        raise ShapeError(argument, f"{cache.shape[2]} heads", "1 head, because indices are given")
    if not is_fp8_kvcache:
        require_one_dtype(**{"q": q, argument: cache})
    return cache[:, :, 0]


def _slots(cache: torch.Tensor) -> int:
    return cache.shape[0] * cache.shape[1]


def _below(slots: int, indices: Any) -> Any:
    """The indices; on a CPU, which refuses those that are too large, -1 in their place."""
    return indices.where(indices < slots, -1) if isinstance(indices, torch.Tensor) and indices.is_cpu else indices


def _require_schedule(scheduled: object, num_splits: object, config: FlashMLASchedMeta.Config, q: torch.Tensor) -> None:
    meta = filled_by_call(scheduled, num_splits)
    if meta is None:
        require_tensors(scheduled, num_splits, 1, config.b, f"{config.b} requests with a topk", q)
        return
    if not meta.have_initialized:
        meta.fill(config, unscheduled(q, config.b))
    meta.require(config)
