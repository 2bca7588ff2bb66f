"""Dense decode in the shapes of FlashMLA: query heads grouped over KV heads, with one schedule."""

from __future__ import annotations

from typing import cast

import torch

from mla_kernels.api import selection
from mla_kernels.compat._arguments import require_one_dtype, shape_of
from mla_kernels.compat._caches import query_of, rows_of
from mla_kernels.compat._schedule import FlashMLASchedMeta, filled_by_call, plan_in, schedule
from mla_kernels.errors import DeviceError, ShapeError
from mla_kernels.formats import LATENT
from mla_kernels.kernels.base import Kernel


def decode(  # noqa: PLR0917 (the arguments of the adapter)
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: object,
    scheduled: object,
    num_splits: object,
    softmax_scale: float,
    causal: bool,
    is_fp8_kvcache: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and natural LSE of ``flash_mla_with_kvcache`` without indices; -inf where a token sees no key."""
    batch, s_q, h_q, d_qk = query_of(q)
    cache = rows_of("k_cache", k_cache, is_fp8_kvcache, d_qk)
    _, page_size, h_k, _ = cache.shape
    if not is_fp8_kvcache:
        require_one_dtype(q=q, k_cache=cache)
    if h_k == 0 or h_q % h_k:
        raise ShapeError("k_cache", f"{h_k} heads", f"a divisor of {h_q}, the heads of q")
    shape_of("cache_seqlens", cache_seqlens, batch)
    group = h_q // h_k
    shape = (batch, s_q, group)
    queries = [q.narrow(2, head * group, group) for head in range(h_k)]
    caches = cache.unbind(2)
    kernel = selection.decode_kernel(queries[0], caches[0], None, True)
    meta = filled_by_call(scheduled, num_splits)
    if meta is not None:
        config = FlashMLASchedMeta.Config(batch, s_q, h_q, page_size, h_k, causal, is_fp8_kvcache)
        if not meta.have_initialized:
            _fill(meta, config, kernel, cast(torch.Tensor, cache_seqlens), q)
        meta.require(config)
        scheduled, num_splits = meta.tile_scheduler_metadata, meta.num_splits
    plan = plan_in(scheduled, num_splits, kernel, shape, q)
    out = q.new_empty(batch, s_q, h_q, LATENT)
    lse = q.new_empty(batch, h_q, s_q, dtype=torch.float32)
    for head, (query, rows) in enumerate(zip(queries, caches, strict=True)):
        kernel.launch(
            query, rows, block_table, cache_seqlens, plan=plan, softmax_scale=softmax_scale, causal=causal,
            out=out.narrow(2, head * group, group), lse=lse.narrow(1, head * group, group),
        )  # fmt: skip
    return out, lse


def _fill(
    meta: FlashMLASchedMeta, config: FlashMLASchedMeta.Config, kernel: Kernel, lengths: torch.Tensor, q: torch.Tensor
) -> None:
    if lengths.device != q.device:
        raise DeviceError("cache_seqlens", str(lengths.device), f"{q.device}, as q has")
    meta.fill(config, schedule(kernel, lengths, (config.b, config.s_q, config.h_q // config.h_k)))
