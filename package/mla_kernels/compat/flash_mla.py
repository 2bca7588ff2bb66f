"""The dense MLA decode of ``flash_mla``, with its arguments and results, on any arch that has a decode variant.

``import mla_kernels.compat.flash_mla as flash_mla`` replaces the import. Metadata comes in both conventions of
FlashMLA: an object that the first call fills, and two tensors that may be copied into buffers of a CUDA graph. What is
served is wider: any number of heads, page size and element type that the arch takes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast, overload

import torch

import mla_kernels as mla
from mla_kernels import selection
from mla_kernels._types import Arch
from mla_kernels.compat._arguments import Names, require_one_dtype, shape_of
from mla_kernels.compat._schedule import plan_in, schedule
from mla_kernels.devices import arch_for
from mla_kernels.errors import (
    DeviceError,
    DTypeError,
    InvalidArgumentError,
    ShapeError,
    UnsupportedError,
    ValueRangeError,
)
from mla_kernels.frameworks import extents
from mla_kernels.kernel import LATENT

ROPE = 64

_NAMES = Names({"kv_cache": "k_cache", "seq_lens": "cache_seqlens"}, alone={"plan": "tile_scheduler_metadata"})
_NAMES_OF_METADATA = Names(
    {"seq_lens": "cache_seqlens"},
    alone={
        "batch": "cache_seqlens",
        "q": "num_q_tokens_per_head_k",
        "q_len": "num_q_tokens_per_head_k",
        "num_heads": "num_heads_q",
    },
)


@dataclass
class FlashMLASchedMeta:
    """The schedule of a step, filled by the first ``flash_mla_with_kvcache`` that is given it.

    Attributes
    ----------
    have_initialized : bool
        Whether it is filled; set it to False to have it filled anew.
    config : FlashMLASchedMeta.Config or None
        What it was filled for, and all that it then serves.
    tile_scheduler_metadata, num_splits : int32 tensors or None
        What ``get_mla_metadata(cache_seqlens, ...)`` gives.
    """

    @dataclass(frozen=True)
    class Config:
        """The shapes of a decode, and its mask."""

        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool

        def __str__(self) -> str:
            return ", ".join(f"{name} = {value}" for name, value in asdict(self).items())

    have_initialized: bool = False
    config: Config | None = None
    tile_scheduler_metadata: torch.Tensor | None = None
    num_splits: torch.Tensor | None = None


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
) -> tuple[torch.Tensor, torch.Tensor]: ...
def get_mla_metadata(  # noqa: PLR0917 (the signature is theirs)
    cache_seqlens: torch.Tensor | None = None,
    num_q_tokens_per_head_k: int | None = None,
    num_heads_k: int | None = None,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
) -> tuple[FlashMLASchedMeta, None] | tuple[torch.Tensor, torch.Tensor]:
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
    is_fp8_kvcache, topk
        False and None.

    Returns
    -------
    tile_scheduler_metadata : FlashMLASchedMeta, or int32 [parts, 8]
        The whole schedule, in bytes that may be copied to any address that 16 divides. ``parts`` depends on the shape
        and the device, not on lengths: what a CUDA graph reads can be overwritten with the schedule of the next step.
    num_splits : None, or int32 [batch + 1]
        Tells the batch by its length; what it holds is not read.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here.
    VariantNotFoundError
        The arch of the device has no decode variant.
    """
    _require_dense(is_fp8_kvcache=is_fp8_kvcache, topk=topk)
    if cache_seqlens is None and num_q_tokens_per_head_k is None and num_heads_k is None:
        return FlashMLASchedMeta(), None
    (batch,) = extents("cache_seqlens", cache_seqlens, "batch")
    q_len, num_heads = _query(num_q_tokens_per_head_k, num_heads_k, num_heads_q)
    lengths = cast(torch.Tensor, cache_seqlens)
    arch = cast(Arch, arch_for("cache_seqlens", lengths))
    try:
        # The element types are not known yet, nor needed: all decode variants of an arch make the same plan.
        kernel = mla.lookup(op="decode", arch=arch, kv_layout="paged")
        return schedule(kernel, lengths, (batch, q_len, num_heads))
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
    q : [batch, s_q, num_heads_q, 576], fp16 bf16 fp32
    k_cache : [num_pages, page_size, num_heads_k, 576]
        Of the type of ``q``; query head ``h`` uses KV head ``h // (num_heads_q // num_heads_k)``. Nothing is copied.
    block_table : int32 [batch, table_width]
        The pages of each request in order; entries past its length are not read.
    cache_seqlens : int32 [batch]
        Tokens in the cache of each request, the new ones included; 0 is allowed.
    head_dim_v : int
        512.
    tile_scheduler_metadata, num_splits
        What ``get_mla_metadata`` gives, or copies of its tensors. Lengths may differ from those that were scheduled:
        that unbalances the work, and changes no result beyond rounding.
    softmax_scale : float, optional
        Of the logits; 576 ** -0.5 by default.
    causal : bool
        New token ``s`` sees ``cache_seqlens - s_q + 1 + s`` keys; otherwise all.
    is_fp8_kvcache, indices, attn_sink, extra_k_cache, extra_indices_in_kvcache, topk_length, extra_topk_length
        False and None.

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
        The arch has no decode variant for the arguments.
    """
    _require_dense(
        is_fp8_kvcache=is_fp8_kvcache, indices=indices, attn_sink=attn_sink, extra_k_cache=extra_k_cache,
        extra_indices_in_kvcache=extra_indices_in_kvcache, topk_length=topk_length, extra_topk_length=extra_topk_length,
    )  # fmt: skip
    if head_dim_v != LATENT:
        raise UnsupportedError("head_dim_v", repr(head_dim_v), f"{LATENT}, because values are the latents")
    if not isinstance(q, torch.Tensor):
        raise DTypeError("q", type(q).__name__, "a torch tensor")
    batch, s_q, h_q, _ = shape_of("q", q, "batch", "s_q", "num_heads_q", LATENT + ROPE)
    _, page_size, h_k, _ = shape_of("k_cache", k_cache, "num_pages", "page_size", "num_heads_k", LATENT + ROPE)
    require_one_dtype(q=q, k_cache=k_cache)
    if h_k == 0 or h_q % h_k:
        raise ShapeError("k_cache", f"{h_k} heads", f"a divisor of {h_q}, the heads of q")
    shape_of("cache_seqlens", cache_seqlens, batch)
    group = h_q // h_k
    shape = (batch, s_q, group)
    try:
        queries = [q.narrow(2, head * group, group) for head in range(h_k)]
        caches = k_cache.unbind(2)
        kernel = selection.decode_kernel(queries[0], caches[0], None, True)
        scheduled: object = tile_scheduler_metadata
        if isinstance(tile_scheduler_metadata, FlashMLASchedMeta):
            if num_splits is not None:
                raise UnsupportedError("num_splits", "a tensor", "None beside a FlashMLASchedMeta, which holds its own")
            config = FlashMLASchedMeta.Config(batch, s_q, h_q, page_size, h_k, causal)
            scheduled, num_splits = _filled(tile_scheduler_metadata, config, kernel, cache_seqlens, q)
        plan = plan_in(scheduled, num_splits, kernel, shape, q)
        scale = (LATENT + ROPE) ** -0.5 if softmax_scale is None else softmax_scale
        out = q.new_empty(batch, s_q, h_q, LATENT)
        lse = q.new_empty(batch, h_q, s_q, dtype=torch.float32)
        for head, (query, cache) in enumerate(zip(queries, caches, strict=True)):
            kernel.launch(
                query, cache, block_table, cache_seqlens, plan=plan, softmax_scale=scale, causal=causal,
                out=out.narrow(2, head * group, group), lse=lse.narrow(1, head * group, group),
            )  # fmt: skip
    except InvalidArgumentError as error:
        raise _NAMES.renamed(error) from None
    return out, lse.nan_to_num_(nan=torch.nan, posinf=torch.inf, neginf=torch.inf)


def _require_dense(*, is_fp8_kvcache: bool, **sparse: object) -> None:
    why = "because this door serves dense decode in the type of q"
    if is_fp8_kvcache:
        instead = "mla_kernels.decode reads fp8_ds_mla caches where the arch has a variant"
        raise UnsupportedError("is_fp8_kvcache", repr(is_fp8_kvcache), f"False, {why}; {instead}")
    for name, value in sparse.items():
        if value is not None:
            got = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
            instead = "mla_kernels.sparse_decode attends to selected slots"
            raise UnsupportedError(name, got, f"None, {why}; {instead}")


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
    if not isinstance(number, int) or number < 1:
        raise ValueRangeError(argument, repr(number), "an integer from 1")
    return number


def _filled(
    meta: FlashMLASchedMeta, config: FlashMLASchedMeta.Config, kernel: mla.Kernel, lengths: object, q: torch.Tensor
) -> tuple[object, torch.Tensor | None]:
    """The tensors of ``meta``, which the first use makes."""
    if not meta.have_initialized:
        lengths = cast(torch.Tensor, lengths)
        if lengths.device != q.device:
            raise DeviceError("cache_seqlens", str(lengths.device), f"{q.device}, as q has")
        shape = (config.b, config.s_q, config.h_q // config.h_k)
        meta.tile_scheduler_metadata, meta.num_splits = schedule(kernel, lengths, shape)
        meta.config, meta.have_initialized = config, True
    if meta.config != config:
        accepts = f"one for {config}: each configuration needs its own"
        raise ValueRangeError("tile_scheduler_metadata", f"a FlashMLASchedMeta for {meta.config}", accepts)
    return meta.tile_scheduler_metadata, meta.num_splits
