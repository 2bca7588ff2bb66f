"""The MLA attention of ``flash_mla``, dense and sparse, with its arguments and results, on any arch that has variants.

``import mla_kernels.compat.flash_mla as flash_mla`` replaces the import, also of sgl-flash-mla, whose arguments come
after FlashMLA's. Metadata serves both conventions of FlashMLA: an object that the first call fills, and two tensors
that may be copied into buffers of a CUDA graph. The functions accept every number of heads, page size and element type
that the arch has kernels for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from mla_kernels.compat import _dense, _sparse
from mla_kernels.compat._arguments import Names, require_torch
from mla_kernels.compat._caches import has_bytes, query_of
from mla_kernels.compat._metadata import get_mla_decoding_metadata, get_mla_metadata
from mla_kernels.compat._schedule import FlashMLASchedMeta
from mla_kernels.errors import InvalidArgumentError, UnsupportedError
from mla_kernels.formats import LATENT
from mla_kernels.scalars import flag, quoted

__all__ = [
    "FlashMLASchedMeta",
    "flash_mla_sparse_fwd",
    "flash_mla_sparse_prefill",
    "flash_mla_with_kvcache",
    "get_mla_decoding_metadata",
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
_NAMES_OF_PREFILL = Names({"softmax_scale": "sm_scale"})


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
    is_fp8_kvcache: bool | None = None,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    enable_batch_invariant: bool = False,
    use_legacy: bool | None = None,
    kv_format: str | None = None,
    descale_q: None = None,
    descale_k: None = None,
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
    is_fp8_kvcache : bool, optional
        Whether caches hold bytes. By default with ``indices`` what ``k_cache`` shows, and otherwise False.
    indices : int32 [batch, s_q, topk], optional
        Attend to these slots only, ``page * page_size + offset``; one KV head. Negative ones, and those past the cache,
        select nothing.
    attn_sink : float32 [num_heads_q], optional
        A logit without a value: ``out`` is multiplied by ``exp(lse) / (exp(lse) + exp(attn_sink))``.
    extra_k_cache, extra_indices_in_kvcache, extra_topk_length
        A second cache, of the same kind of rows, with indices and lengths of its own, attended together with the first.
    topk_length : int32 [batch], optional
        Only so many of the leading indices count.
    enable_batch_invariant : bool
        With ``indices``: a token's result does not depend on the other tokens of the call.
    use_legacy : bool, optional
        Which of two formats rows of 528 bytes have: V4.1's if it is False, otherwise V3.2's without rope.
    kv_format : str, optional
        ``V32``, ``V32_NO_ROPE``, ``V4``, ``V41`` or ``V41_FP4``: the format of the bytes.
    descale_q, descale_k : None
        Nothing here takes queries of e4m3.

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
    causal = flag("causal", causal)
    if is_fp8_kvcache is None:
        is_fp8_kvcache = indices is not None and has_bytes(k_cache)
    is_fp8_kvcache = flag("is_fp8_kvcache", is_fp8_kvcache)
    use_legacy = _optional_flag("use_legacy", use_legacy)
    is_invariant = flag("enable_batch_invariant", enable_batch_invariant)
    _require_absent({"descale_q": descale_q, "descale_k": descale_k}, "q is not e4m3 here: pass it as bf16")
    if not is_fp8_kvcache:
        _require_absent({"kv_format": kv_format}, "the cache is not fp8")
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
            given = sparse | {"kv_format": kv_format, "enable_batch_invariant": is_invariant or None}
            _require_absent(given, "indices is None")
            out, lse = _dense.decode(
                q, k_cache, block_table, cache_seqlens, tile_scheduler_metadata, num_splits, scale, causal,
                is_fp8_kvcache,
            )  # fmt: skip
        else:
            out, lse = _sparse.decode(
                q, k_cache, indices, extra_k_cache, extra_indices_in_kvcache, tile_scheduler_metadata, num_splits,
                causal, is_fp8_kvcache, kv_format, use_legacy, softmax_scale=scale, attn_sink=attn_sink,
                topk_length=topk_length, extra_topk_length=extra_topk_length, max_splits=int(is_invariant),
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
    use_legacy: bool | None = None,
    return_log2_lse: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
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
    use_legacy, return_log2_lse : bool, optional
        The first changes nothing. The second gives ``max_logits`` and ``lse`` over the natural logarithm of 2 if it is
        True, and None for both if it is False.

    Returns
    -------
    out : [s_q, num_heads_q, 512]
        In the type of the queries; 0 where no index counts.
    max_logits, lse : float32 [s_q, num_heads_q], or None
        The largest scaled logit, and the natural logarithm of the sum of exponentials; -inf and +inf where no index
        counts.

    Raises
    ------
    InvalidArgumentError
        An argument was refused, by its name here.
    VariantNotFoundError
        The arch has no variant for the arguments.
    """
    require_torch(q=q)
    _require_values(d_v=d_v)
    _, base_2 = _optional_flag("use_legacy", use_legacy), _optional_flag("return_log2_lse", return_log2_lse)
    try:
        out, max_logits, lse = _sparse.prefill(
            q, kv, indices, softmax_scale=sm_scale, attn_sink=attn_sink, topk_length=topk_length
        )
    except InvalidArgumentError as error:
        raise _NAMES_OF_PREFILL.renamed(error) from None
    if base_2 is False:
        return out, None, None
    lse = _plus_inf(lse)
    return (out, max_logits / math.log(2), lse / math.log(2)) if base_2 else (out, max_logits, lse)


flash_mla_sparse_prefill = flash_mla_sparse_fwd
"""The older name of ``flash_mla_sparse_fwd``."""


def _require_values(**width: object) -> None:
    ((name, given),) = width.items()
    if not isinstance(given, int) or given != LATENT:
        raise UnsupportedError(name, quoted(given), f"{LATENT}, because values are the latents")


def _optional_flag(argument: str, value: object) -> bool | None:
    return None if value is None else flag(argument, value)


def _require_absent(given: Mapping[str, object], reason: str) -> None:
    for name, value in given.items():
        if value is not None:
            got = "a tensor" if isinstance(value, torch.Tensor) else quoted(value)
            raise UnsupportedError(name, got, f"None, because {reason}")


def _plus_inf(lse: torch.Tensor) -> torch.Tensor:
    """FlashMLA's LSE of an empty row is +inf."""
    return lse.nan_to_num_(nan=torch.nan, posinf=torch.inf, neginf=torch.inf)
