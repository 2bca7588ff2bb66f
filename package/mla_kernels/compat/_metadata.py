"""The functions that schedule a step for the callers of FlashMLA and of sgl-flash-mla."""

from __future__ import annotations

from typing import cast, overload

import torch

import mla_kernels as mla
from mla_kernels._types import Arch
from mla_kernels.compat._arguments import Names, require_torch
from mla_kernels.compat._schedule import FlashMLASchedMeta, TileSchedulerMetadata, both, schedule, unscheduled
from mla_kernels.devices.machine import arch_for
from mla_kernels.errors import InvalidArgumentError, ValueRangeError
from mla_kernels.scalars import count, flag, quoted
from mla_kernels.tensors import extents

_NAMES_OF_METADATA = Names(
    {"seq_lens": "cache_seqlens"},
    alone={
        "batch": "cache_seqlens",
        "q": "num_q_tokens_per_head_k",
        "q_len": "num_q_tokens_per_head_k",
        "num_heads": "num_heads_q",
    },
)
_NAMES_OF_DECODING = Names({"cache_seqlens": "seqlens_k", "num_heads_k": "h_k", "num_heads_q": "h_q"})


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


def get_mla_decoding_metadata(  # noqa: PLR0917 (the signature is theirs)
    seqlens_k: torch.Tensor,
    num_q_tokens_per_head_k: int,
    h_k: int,
    h_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
    use_legacy: bool = False,
) -> tuple[TileSchedulerMetadata, torch.Tensor]:
    """Schedule a step in two tensors: sgl-flash-mla's name of ``get_mla_metadata`` with arguments.

    ``use_legacy`` changes nothing. The tensors are passed on, or assigned to an empty object, whose first call
    schedules anew.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here.
    VariantNotFoundError
        The arch of the device has no decode variant.
    """
    flag("use_legacy", use_legacy)
    try:
        return get_mla_metadata(seqlens_k, num_q_tokens_per_head_k, h_k, h_q, is_fp8_kvcache, topk)
    except InvalidArgumentError as error:
        raise _NAMES_OF_DECODING.renamed(error) from None


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
