"""Sparse attention in one call: from new tokens to slots of a cache, and from a prompt's tokens to rows of a tensor."""

from __future__ import annotations

from mla_kernels.api import selection
from mla_kernels.api.selection import select
from mla_kernels.tensors import Packed, Tensor, compiling


def sparse_decode(
    q: Packed,
    kv_cache: Packed,
    indices: Tensor,
    *,
    topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    extra_kv_cache: Packed | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    softmax_scale: float,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    max_splits: int = 0,
    out: Tensor | None = None,
    lse: Tensor | bool | None = None,
    max_logits: Tensor | None = None,
    return_max_logits: bool = False,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> tuple[Tensor, ...]:
    """Attend from new tokens to selected slots of a KV cache (DeepSeek Sparse Attention); scales as in ``decode``.

    Parameters
    ----------
    q : [batch, q_len, num_heads, 576], fp32 fp16 bf16
    kv_cache : [num_pages, page_size, 576], the type of ``q`` or e4m3; [..., 656] for fp8_ds_mla
    indices : int32 [batch, q_len, topk]
        Global slots, ``page * page_size + offset``; a negative one is absent.
    topk_length : int32 [batch, q_len] or [batch], optional
        Only so many of a row's indices count.
    attn_sink : float32 [num_heads], optional
        A logit without a value: ``out`` is multiplied by ``1 / (1 + exp(attn_sink - lse))``; ``lse`` is unchanged.
    extra_kv_cache, extra_indices, extra_topk_length
        A second cache, attended together with the first.
    max_splits : int
        The most parts that a row is split into; 0 lets the payload choose.
    out : [batch, q_len, num_heads, 512], optional
    lse, max_logits : float32 [batch, num_heads, q_len], optional
        ``lse=False`` leaves the former out.

    Returns
    -------
    out : [batch, q_len, num_heads, 512]
        0 where no index counts.
    lse : float32 [batch, num_heads, q_len], or None
        -inf where no index counts.
    max_logits : float32 [batch, num_heads, q_len]
        The largest scaled logit; only with ``return_max_logits`` or ``max_logits``.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        torch_ops.require_defaults(out=out, max_logits=max_logits, workspace=workspace, stream=stream, check=check)
        return torch_ops.sparse_decode(
            q, kv_cache, indices, topk_length, attn_sink, extra_kv_cache, extra_indices, extra_topk_length, lse,
            return_max_logits, softmax_scale, q_scale, kv_scale, out_scale, max_splits,
        )  # fmt: skip
    kernel = select(selection.sparse_decode, (q, kv_cache, indices, out))
    return kernel.launch(  # type: ignore[no-any-return]
        q, kv_cache, indices, topk_length=topk_length, attn_sink=attn_sink, extra_kv_cache=extra_kv_cache,
        extra_indices=extra_indices, extra_topk_length=extra_topk_length, softmax_scale=softmax_scale, q_scale=q_scale,
        kv_scale=kv_scale, out_scale=out_scale, max_splits=max_splits, out=out, lse=lse, max_logits=max_logits,
        return_max_logits=return_max_logits, workspace=workspace, stream=stream, check=check,
    )  # fmt: skip


def sparse_prefill(
    q: Packed,
    kv: Packed,
    indices: Tensor,
    *,
    topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    extra_kv: Packed | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    softmax_scale: float,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    out: Tensor | None = None,
    max_logits: Tensor | None = None,
    lse: Tensor | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend from the tokens of a prompt to selected rows of one unpaged KV tensor; otherwise as ``sparse_decode``.

    Parameters
    ----------
    q : [q_len, num_heads, 576], fp32 fp16 bf16
        Or [..., 512], where there is no rope part.
    kv : [kv_len, 576], the type of ``q``
        Or [kv_len, 512].
    indices : int32 [q_len, topk]
        Rows of ``kv``; a negative one is absent.
    topk_length : int32 [q_len], optional
    attn_sink : float32 [num_heads], optional
    extra_kv, extra_indices, extra_topk_length
        Further rows, attended together with the first.
    out : [q_len, num_heads, 512], optional
    max_logits, lse : float32 [q_len, num_heads], optional

    Returns
    -------
    out : [q_len, num_heads, 512]
    max_logits, lse : float32 [q_len, num_heads]
        -inf where no index counts; ``out`` is then 0.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        torch_ops.require_defaults(
            out=out, max_logits=max_logits, lse=lse, workspace=workspace, stream=stream, check=check
        )
        return torch_ops.sparse_prefill(
            q, kv, indices, topk_length, attn_sink, extra_kv, extra_indices, extra_topk_length, softmax_scale, q_scale,
            kv_scale, out_scale,
        )  # fmt: skip
    kernel = select(selection.sparse_prefill, (q, kv, indices, out))
    return kernel.launch(  # type: ignore[no-any-return]
        q, kv, indices, topk_length=topk_length, attn_sink=attn_sink, extra_kv=extra_kv, extra_indices=extra_indices,
        extra_topk_length=extra_topk_length, softmax_scale=softmax_scale, q_scale=q_scale, kv_scale=kv_scale,
        out_scale=out_scale, out=out, max_logits=max_logits, lse=lse, workspace=workspace, stream=stream, check=check,
    )  # fmt: skip
