"""The ops in one call: the kernel is looked up from the tensors, and cached.

A tensor is a torch tensor, a NumPy array or another object that speaks DLPack; outputs are allocated in the framework
and on the device of the first argument unless given. ``Packed`` arguments are one tensor of 576-wide rows, or a tuple
of latent ``[..., 512]`` and rope ``[..., 64]``. A ``uint8`` cache of 656-wide rows is ``fp8_ds_mla``, of 576-wide
ones ``e4m3``. Every op takes ``workspace`` (``uint8``, at least ``kernel.workspace_size(...)`` bytes; allocated unless
given), ``stream`` (a CUDA stream's address; by default the framework's current one) and ``check`` (read the device's
values and refuse bad ones before the launch; a CPU always does). Errors are those of ``mla_kernels.errors``: an
``InvalidArgumentError`` names the argument, and nothing has then been written.
"""

from __future__ import annotations

from mla_kernels import selection
from mla_kernels.attention_kernels import plan_for
from mla_kernels.frameworks import Packed, Tensor, compiling
from mla_kernels.kernel import Plan
from mla_kernels.selection import select


def decode(
    q: Packed,
    kv_cache: Packed,
    block_table: Tensor | None = None,
    seq_lens: Tensor | None = None,
    *,
    plan: Plan | None = None,
    softmax_scale: float,
    causal: bool = True,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    max_splits: int = 0,
    batch_invariant: bool = False,
    out: Tensor | None = None,
    lse: Tensor | bool | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attend from new tokens to a dense KV cache (MLA in its absorbed form, DeepSeek-V2, arXiv:2405.04434, 2.1).

    With K the 576-wide rows and V their first 512 columns, ``P = softmax(softmax_scale * q_scale * kv_scale * Q K^T)``
    and ``out = out_scale * kv_scale * P V``.

    Parameters
    ----------
    q : [batch, q_len, num_heads, 576], fp32 fp16 bf16
        The absorbed queries of the ``q_len`` newest tokens of each request.
    kv_cache : [num_pages, page_size, 576], the type of ``q`` or e4m3; [..., 656] for fp8_ds_mla
        Without a block table, page ``b`` is the cache of request ``b``.
    block_table : int32 [batch, table_width], optional
        The pages of each request in order; entries past its length are not read.
    seq_lens : int32 [batch]
        Tokens in the cache of each request, the new ones included; 0 is allowed.
    plan : Plan, optional
        From ``kernel.plan(seq_lens)``; made for this call unless given.
    softmax_scale : float
        Of the logits; DeepSeek models want ``192 ** -0.5`` times their YaRN factor.
    causal : bool
        New token ``s`` sees ``seq_lens - q_len + 1 + s`` keys (aligned at the bottom right); otherwise all.
    q_scale, kv_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    out_scale : float
        Factor of the output.
    max_splits : int
        Of the plan made for this call; 0 lets the kernel choose, see ``kernel.plan``.
    batch_invariant : bool
        Of the plan made for this call; see ``kernel.plan``.
    out : [batch, q_len, num_heads, 512], optional
    lse : float32 [batch, num_heads, q_len], optional
        ``False`` leaves it out.

    Returns
    -------
    out : [batch, q_len, num_heads, 512]
        0 where a token sees no key.
    lse : float32 [batch, num_heads, q_len], or None
        Natural logarithm of the sum of exponentials; -inf where a token sees no key.
    """
    if compiling():
        from mla_kernels import torch_ops

        torch_ops.require_defaults(out=out, workspace=workspace, stream=stream, check=check)
        return torch_ops.decode(
            q, kv_cache, block_table, seq_lens, plan, lse, softmax_scale, causal, q_scale, kv_scale, out_scale,
            max_splits, batch_invariant,
        )  # fmt: skip
    kernel = selection.decode_kernel(q, kv_cache, out, block_table is not None, plan)
    if plan is None and (max_splits or batch_invariant):
        plan = plan_for(kernel, q, seq_lens, max_splits=max_splits, batch_invariant=batch_invariant, stream=stream)
    return kernel.launch(  # type: ignore[no-any-return]
        q, kv_cache, block_table, seq_lens, plan=plan, softmax_scale=softmax_scale, causal=causal, q_scale=q_scale,
        kv_scale=kv_scale, out_scale=out_scale, out=out, lse=lse, workspace=workspace, stream=stream, check=check,
    )  # fmt: skip


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
        from mla_kernels import torch_ops

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
        from mla_kernels import torch_ops

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
