"""The MLA attention of ``flash_mla``, dense and sparse, with its arguments and results, on any arch that has variants.

``import mla_kernels.compat.flash_mla as flash_mla`` replaces the import. Metadata serves both conventions of FlashMLA:
an object that the first call fills, and two tensors that may be copied into buffers of a CUDA graph. The functions
accept every number of heads, page size and element type that the arch has kernels for.
"""

from __future__ import annotations

from typing import cast, overload

import torch

import mla_kernels as mla
from mla_kernels._types import Arch
from mla_kernels.compat import _dense, _sparse
from mla_kernels.compat._arguments import Names, require_torch
from mla_kernels.compat._caches import query_of
from mla_kernels.compat._schedule import FlashMLASchedMeta, TileSchedulerMetadata, both, schedule, unscheduled
from mla_kernels.devices.machine import arch_for
from mla_kernels.errors import InvalidArgumentError, UnsupportedError, ValueRangeError
from mla_kernels.formats import LATENT
from mla_kernels.scalars import count, flag, quoted
from mla_kernels.tensors import extents

__all__ = [
    "FlashMLASchedMeta",
    "flash_mla_sparse_fwd",
    "flash_mla_sparse_prefill",
    "flash_mla_with_kvcache",
    "get_mla_metadata",
]

_NAMES = Names(
    {
        "kv_cache": "k_cache",
        "seq_lens": "cache_seqlens",
        "extra_kv_cache": "extra_k_cache",
        "extra_indices": "extra_indices_in_kvcache",
    },
    alone={"plan": "tile_scheduler_metadata"},
)
_NAMES_OF_METADATA = Names(
    {"seq_lens": "cache_seqlens"},
    alone={
        "batch": "cache_seqlens",
        "q": "num_q_tokens_per_head_k",
        "q_len": "num_q_tokens_per_head_k",
        "num_heads": "num_heads_q",
    },
)
_NAMES_OF_PREFILL = Names({"softmax_scale": "sm_scale"})


@overload
def get_mla_metadata() -> tuple[FlashMLASchedMeta, None]: ...
@overload
def get_mla_metadata(
    cache_seqlens: torch.Tensor,
    num_q_tokens_per_head_k: int,
    num_heads_k: int,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
) -> tuple[TileSchedulerMetadata, torch.Tensor]: ...
def get_mla_metadata(  # noqa: PLR0917 (the signature is theirs)
    cache_seqlens: torch.Tensor | None = None,
    num_q_tokens_per_head_k: int | None = None,
    num_heads_k: int | None = None,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
) -> tuple[FlashMLASchedMeta, None] | tuple[TileSchedulerMetadata, torch.Tensor]:
    """Schedule a step: without arguments later, otherwise now, from its lengths and on their device.

    Parameters
    ----------
    cache_seqlens : int32 [batch], optional
        Tokens in the cache of each request, the new ones included.
    num_q_tokens_per_head_k : int, optional
        ``s_q * num_heads_q // num_heads_k``.
    num_heads_k : int, optional
    num_heads_q : int, optional
        Need not be given.
    is_fp8_kvcache : bool
        Changes nothing: caches of all types are scheduled alike.
    topk : int, optional
        Indices of each token, for sparse decode, which needs no schedule.

    Returns
    -------
    tile_scheduler_metadata : FlashMLASchedMeta, with arguments an int32 tensor [parts, 8] too
        Passed on alone, the object of newer callers: the first call fills it from its own lengths. Passed on with
        ``num_splits``, the tensor of older callers: the whole schedule, in bytes that may be copied to any address that
        16 divides. ``parts`` depends on the shape and the device, not on lengths: what a CUDA graph reads can be
        overwritten with the schedule of the next step. With ``topk``, one row of zeros.
    num_splits : None, with arguments int32 [batch + 1]
        Tells the batch by its length; what it holds is not read.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here.
    VariantNotFoundError
        The arch of the device has no decode variant.
    """
    if cache_seqlens is None and num_q_tokens_per_head_k is None and num_heads_k is None:
        return FlashMLASchedMeta(), None
    require_torch(cache_seqlens=cache_seqlens)
    (batch,) = extents("cache_seqlens", cache_seqlens, "batch")
    flag("is_fp8_kvcache", is_fp8_kvcache)
    q_len, num_heads = _query(num_q_tokens_per_head_k, num_heads_k, num_heads_q)
    lengths = cast(torch.Tensor, cache_seqlens)
    if topk is not None:
        _positive("topk", topk)
        return both(unscheduled(lengths, batch))
    arch = cast(Arch, arch_for("cache_seqlens", lengths))
    try:
        # The element types are not known yet, nor needed: all decode variants of an arch make the same plan.
        kernel = mla.lookup(op="decode", arch=arch, kv_layout="paged")
        return both(schedule(kernel, lengths, (batch, q_len, num_heads)))
    except InvalidArgumentError as error:
        raise _NAMES_OF_METADATA.renamed(error) from None


def flash_mla_with_kvcache(  # noqa: PLR0917 (the signature is theirs)
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta | torch.Tensor,
    num_splits: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend from the new tokens of each request to its paged cache.

    Parameters
    ----------
    q : [batch, s_q, num_heads_q, d_qk], fp16 bf16 fp32
        ``d_qk`` is 576, or 512.
    k_cache : [num_pages, page_size, num_heads_k, d_qk]
        Of the type of ``q``. With ``is_fp8_kvcache`` it holds bytes, uint8, int8 or float8_e4m3fn: [..., 656] for 576
        columns (512 e4m3, four float32 scales, 64 bf16); for 512 columns [..., 584] of DeepSeek V4, FlashMLA's MODEL1,
        whose pages are padded to a multiple of 576 bytes, [..., 528] of V3.2 without rope, or [..., 288] of V4.1. Query
        head ``h`` uses KV head ``h // (num_heads_q // num_heads_k)``. Nothing is copied.
    block_table : int32 [batch, table_width]
        The pages of each request in order; entries past its length are not read. Ignored with ``indices``.
    cache_seqlens : int32 [batch]
        Tokens in the cache of each request, the new ones included; 0 is allowed. Ignored with ``indices``.
    head_dim_v : int
        512.
    tile_scheduler_metadata, num_splits
        What ``get_mla_metadata`` gives, or copies of its tensors. Lengths may differ from those that were scheduled:
        that unbalances the work, and changes no result beyond rounding.
    softmax_scale : float, optional
        Of the logits; ``d_qk ** -0.5`` by default.
    causal : bool
        New token ``s`` sees ``cache_seqlens - s_q + 1 + s`` keys; otherwise all. It must be False with ``indices``.
    is_fp8_kvcache : bool
        Whether caches hold bytes.
    indices : int32 [batch, s_q, topk], optional
        Attend to these slots only, ``page * page_size + offset``; one KV head. Negative ones, and those past the cache,
        select nothing.
    attn_sink : float32 [num_heads_q], optional
        A logit without a value: ``out`` is multiplied by ``exp(lse) / (exp(lse) + exp(attn_sink))``.
    extra_k_cache, extra_indices_in_kvcache, extra_topk_length
        A second cache, of the same kind of rows, with indices and lengths of its own, attended together with the first.
    topk_length : int32 [batch], optional
        Only so many of the leading indices count.

    Returns
    -------
    out : [batch, s_q, num_heads_q, 512]
        In the type of the queries; 0 where a token sees no key.
    lse : float32 [batch, num_heads_q, s_q]
        Natural logarithm of the sum of exponentials; +inf where a token sees no key.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here.
    VariantNotFoundError
        The arch has no variant for the arguments.
    """
    require_torch(q=q)
    _require_values(head_dim_v=head_dim_v)
    causal, is_fp8_kvcache = flag("causal", causal), flag("is_fp8_kvcache", is_fp8_kvcache)
    scale = query_of(q)[3] ** -0.5 if softmax_scale is None else softmax_scale
    sparse = {
        "attn_sink": attn_sink,
        "extra_k_cache": extra_k_cache,
        "extra_indices_in_kvcache": extra_indices_in_kvcache,
        "topk_length": topk_length,
        "extra_topk_length": extra_topk_length,
    }
    try:
        if indices is None:
            _require_absent(sparse)
            out, lse = _dense.decode(
                q, k_cache, block_table, cache_seqlens, tile_scheduler_metadata, num_splits, scale, causal,
                is_fp8_kvcache,
            )  # fmt: skip
        else:
            out, lse = _sparse.decode(
                q, k_cache, indices, extra_k_cache, extra_indices_in_kvcache, tile_scheduler_metadata, num_splits,
                causal, is_fp8_kvcache, softmax_scale=scale, attn_sink=attn_sink, topk_length=topk_length,
                extra_topk_length=extra_topk_length,
            )  # fmt: skip
    except InvalidArgumentError as error:
        raise _NAMES.renamed(error) from None
    return out, _plus_inf(lse)


def flash_mla_sparse_fwd(  # noqa: PLR0917 (the signature is theirs)
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    sm_scale: float,
    d_v: int = LATENT,
    attn_sink: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attend from the tokens of a prompt to selected rows.

    Parameters
    ----------
    q : [s_q, num_heads_q, d_qk], fp16 bf16 fp32
        ``d_qk`` is 576, or 512 where there is no rope part.
    kv : [s_kv, 1, d_qk], the type of ``q``
    indices : int32 [s_q, 1, topk]
        Rows of ``kv``; negative ones, and those from ``s_kv``, select nothing.
    sm_scale : float
        Of the logits.
    d_v : int
        512.
    attn_sink : float32 [num_heads_q], optional
        A logit without a value: ``out`` is multiplied by ``exp(lse) / (exp(lse) + exp(attn_sink))``.
    topk_length : int32 [s_q], optional
        Only so many of the leading indices count.

    Returns
    -------
    out : [s_q, num_heads_q, 512]
        In the type of the queries; 0 where no index counts.
    max_logits : float32 [s_q, num_heads_q]
        The largest scaled logit; -inf where no index counts.
    lse : float32 [s_q, num_heads_q]
        Natural logarithm of the sum of exponentials; +inf where no index counts.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here.
    VariantNotFoundError
        The arch has no variant for the arguments.
    """
    require_torch(q=q)
    _require_values(d_v=d_v)
    try:
        out, max_logits, lse = _sparse.prefill(
            q, kv, indices, softmax_scale=sm_scale, attn_sink=attn_sink, topk_length=topk_length
        )
    except InvalidArgumentError as error:
        raise _NAMES_OF_PREFILL.renamed(error) from None
    return out, max_logits, _plus_inf(lse)


flash_mla_sparse_prefill = flash_mla_sparse_fwd
"""The older name of ``flash_mla_sparse_fwd``."""


def _require_values(**width: object) -> None:
    ((name, given),) = width.items()
    if not isinstance(given, int) or given != LATENT:
        raise UnsupportedError(name, quoted(given), f"{LATENT}, because values are the latents")


def _require_absent(sparse: dict[str, torch.Tensor | None]) -> None:
    for name, value in sparse.items():
        if value is not None:
            got = "a tensor" if isinstance(value, torch.Tensor) else quoted(value)
            raise UnsupportedError(name, got, "None, because indices is None")


def _plus_inf(lse: torch.Tensor) -> torch.Tensor:
    """FlashMLA's LSE of an empty row is +inf."""
    return lse.nan_to_num_(nan=torch.nan, posinf=torch.inf, neginf=torch.inf)


def _query(rows: object, h_k: object, h_q: object) -> tuple[int, int]:
    """``s_q`` and the query heads of one KV head, whose product is ``rows``.

    Payloads schedule rows, whatever tokens and heads they are of: where nobody says, each is a token of one head.
    """
    rows, h_k = _positive("num_q_tokens_per_head_k", rows), _positive("num_heads_k", h_k)
    h_q = h_k if h_q is None else _positive("num_heads_q", h_q)
    if h_q % h_k or rows % (h_q // h_k):
        accepts = f"one whose s_q * num_heads_q // num_heads_k is {rows}, with num_heads_k = {h_k}"
        raise ValueRangeError("num_heads_q", str(h_q), accepts)
    return rows // (h_q // h_k), h_q // h_k


def _positive(argument: str, number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueRangeError(argument, quoted(number), "an integer from 1")
    return count(argument, number, least=1)
