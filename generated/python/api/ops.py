"""The ops in one call: the kernel is looked up from the tensors, and cached. Generated; see codegen/ops.

A tensor is a torch tensor, a NumPy array or another object that speaks DLPack; outputs are allocated in the framework
and on the device of the first argument unless given. ``Packed`` arguments are one tensor of ``d_qk``-wide rows, or a
tuple of latent and rope, such as ``[..., 512]`` and ``[..., 64]``. Errors are those of ``mla_kernels.errors``: an
``InvalidArgumentError`` names the argument, and nothing has then been written.
"""

from __future__ import annotations

from mla_kernels.api import selection
from mla_kernels.api.selection import select
from mla_kernels.errors import ShapeError
from mla_kernels.kernels.base import Plan
from mla_kernels.kernels.planned import plan_for, require_planned
from mla_kernels.scalars import ZERO
from mla_kernels.tensors import DTypeLike, Packed, Tensor, compiling


def decode(
    q: Packed,
    kv_cache: Packed,
    block_table: Tensor | None = None,
    seq_lens: Tensor | None = None,
    *,
    cu_seqlens_q: Tensor | None = None,
    token_seq_lens: Tensor | None = None,
    plan: Plan | None = None,
    compute_dtype: DTypeLike | None = None,
    softmax_scale: float,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    causal: bool = True,
    max_splits: int = 0,
    batch_invariant: bool = False,
    max_q_len: int = 0,
    out: Tensor | None = None,
    lse: Tensor | bool | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attend from new tokens to a dense KV cache (absorbed MLA; DeepSeek-V2, arXiv:2405.04434, 2.1).

    With K the rows of the cache and V their first ``d_v`` columns, ``P = softmax(softmax_scale * q_scale * kv_scale * Q
    K^T)`` and ``out = out_scale * kv_scale * P V``. ``d_qk`` and ``d_v`` are 576 and 512, 512 and 512, or 320 and 256.

    Parameters
    ----------
    q : [batch, q_len, num_heads, d_qk], fp32 fp16 bf16 e4m3
        The absorbed queries of the ``q_len`` newest tokens of each request.
    kv_cache : [num_pages, page_size, d_qk], the type of ``q`` or e4m3; uint8 [..., 656] for fp8_ds_mla
        Without a block table, page ``b`` is the cache of request ``b``. Keys that any token of a request sees must be
        finite: a NaN or an infinity reaches the outputs of all its tokens, also of those that do not see it.
    block_table : int32 [num_requests, table_width], optional
        The pages of each request in order; entries past its length are not read.
    seq_lens : int32 [num_requests]
        Tokens in the cache of each request, the new ones included; 0 is allowed. There are ``batch`` requests, or as
        many as ``cu_seqlens_q`` says.
    cu_seqlens_q : int32 [num_bounds], optional
        For requests with different numbers of new tokens: request ``r`` has tokens ``cu_seqlens_q[r]`` to
        ``cu_seqlens_q[r + 1]`` of ``q``, whose ``batch`` is then 1. It has ``num_requests + 1`` elements; tokens from
        the last one on belong to no request, and nothing is written for them.
    token_seq_lens : int32 [batch, q_len], optional
        How many of its request's first keys each query token sees, 0 to ``seq_lens``; [1, num_tokens] with
        ``cu_seqlens_q``, and tokens of no request may say anything. ``causal`` has no effect then.
    plan : Plan, optional
        From ``kernel.plan(seq_lens)``; made for this call unless given.
    compute_dtype : str or dtype, optional
        ``e4m3``, over an e4m3 cache, multiplies in e4m3, to which Q and P are rounded. By default, or with ``exact``,
        neither is rounded to 8 bits.
    softmax_scale : float
        Factor of the logits: ``head_dim ** -0.5`` of the head before absorption, which has ``qk_nope_head_dim +
        qk_rope_head_dim`` columns. With YaRN it is multiplied by ``m ** 2``, where ``m = 0.1 * mscale_all_dim *
        ln(factor) + 1``. For DeepSeek-V3 it is 0.1352, ``192 ** -0.5 * 1.3689 ** 2``, and never ``576 ** -0.5``; for
        DeepSeek-V4, whose heads have 512 columns, ``512 ** -0.5``.
    q_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    kv_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    out_scale : float
        Factor of the output.
    causal : bool
        New token ``s`` sees ``seq_lens - q_len + 1 + s`` keys (aligned at the bottom right); otherwise all.
    max_splits : int
        Only without ``plan``. With a plan, pass it to ``kernel.plan``.
    batch_invariant : bool
        Only without ``plan``. With a plan, pass it to ``kernel.plan``. ``mla_kernels.batch_invariant`` switches it on
        for all calls.
    max_q_len : int
        With ``cu_seqlens_q``: the most new tokens of a request. Only without ``plan``. With a plan, pass it to
        ``kernel.plan``.
    out : [batch, q_len, num_heads, d_v], optional
    lse : float32 [batch, num_heads, q_len], optional
        ``False`` leaves it out; ``True`` allocates it, as None does.
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.

    Returns
    -------
    out : [batch, q_len, num_heads, d_v]
        0 where a token sees no key.
    lse : float32 [batch, num_heads, q_len], or None
        Natural logarithm of the sum of exponentials; -inf where a token sees no key.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "q": q,
            "kv_cache": kv_cache,
            "block_table": block_table,
            "seq_lens": seq_lens,
            "cu_seqlens_q": cu_seqlens_q,
            "token_seq_lens": token_seq_lens,
            "plan": plan,
            "compute_dtype": compute_dtype,
            "softmax_scale": softmax_scale,
            "q_scale": q_scale,
            "kv_scale": kv_scale,
            "out_scale": out_scale,
            "causal": causal,
            "max_splits": max_splits,
            "batch_invariant": batch_invariant,
            "max_q_len": max_q_len,
            "out": out,
            "lse": lse,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        return torch_ops.call("decode", arguments)  # type: ignore[no-any-return]
    planned = selection.planned_decode_kernel(out, block_table is not None, plan, compute_dtype)
    kernel = planned or selection.decode_kernel(q, kv_cache, out, block_table is not None, plan, max_q_len, compute_dtype)
    if not (max_splits is ZERO and batch_invariant is False and max_q_len is ZERO):
        options = {"max_splits": max_splits, "batch_invariant": batch_invariant, "max_q_len": max_q_len}
        if plan is None:
            plan = plan_for(kernel, q, seq_lens, cu_seqlens_q, stream=stream, **options)
        else:
            require_planned(plan, options)
    while True:
        try:
            return kernel.launch(  # type: ignore[no-any-return]
                q,
                kv_cache,
                block_table,
                seq_lens,
                cu_seqlens_q=cu_seqlens_q,
                token_seq_lens=token_seq_lens,
                plan=plan,
                softmax_scale=softmax_scale,
                q_scale=q_scale,
                kv_scale=kv_scale,
                out_scale=out_scale,
                causal=causal,
                out=out,
                lse=lse,
                workspace=workspace,
                stream=stream,
                check=check,
            )
        except ShapeError:  # the cache may have pages of another size
            if kernel is not planned:
                raise
            planned, kernel = None, selection.decode_kernel(q, kv_cache, out, block_table is not None, plan, max_q_len, compute_dtype)


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
    kv_dtype: DTypeLike | None = None,
    extra_kv_dtype: DTypeLike | None = None,
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
    """Attend from new tokens to selected slots of a KV cache (DeepSeek Sparse Attention).

    Scales are as in ``decode``. ``d_qk`` and ``d_v`` are 576 and 512, 512 and 512, or 320 and 256.

    Parameters
    ----------
    q : [batch, q_len, num_heads, d_qk], fp32 fp16 bf16 e4m3
    kv_cache : [num_pages, page_size, d_qk], the type of ``q`` or e4m3; uint8 [..., 656] for fp8_ds_mla, [..., 528] for fp8_ds_mla or fp8_ds_v41, [..., 584] for fp8_ds_v4, [..., 288] for fp4_ds_v41, [..., 368] for mxfp4_ds_v4, [..., 352] for nvfp4_ds_mla
    indices : int32 [batch, q_len, topk]
        Global slots, ``page * page_size + offset``; a negative one is absent.
    topk_length : int32 [batch, q_len] or [batch], optional
        Only so many of a row's indices count; the others may be anything.
    attn_sink : float32 [num_heads], optional
        A logit without a value: ``out`` is multiplied by ``1 / (1 + exp(attn_sink - lse))``; ``lse`` is unchanged.
    extra_kv_cache : [extra_num_pages, extra_page_size, d_qk], optional
        A second cache, attended together with the first.
    extra_indices : int32 [batch, q_len, extra_topk], optional
        Global slots of the second cache.
    extra_topk_length : int32 [batch, q_len] or [batch], optional
        Only so many of a row's indices count; the others may be anything.
    kv_dtype : str or dtype, optional
        The format of the cache; by default what its element type and row width say. It is needed where two formats have
        rows of as many bytes.
    extra_kv_dtype : str or dtype, optional
        The format of the second cache; by default what its rows say, and that of the first one where they are alike.
    softmax_scale : float
        Factor of the logits: ``head_dim ** -0.5`` of the head before absorption, which has ``qk_nope_head_dim +
        qk_rope_head_dim`` columns. With YaRN it is multiplied by ``m ** 2``, where ``m = 0.1 * mscale_all_dim *
        ln(factor) + 1``. For DeepSeek-V3 it is 0.1352, ``192 ** -0.5 * 1.3689 ** 2``, and never ``576 ** -0.5``; for
        DeepSeek-V4, whose heads have 512 columns, ``512 ** -0.5``.
    q_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    kv_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    out_scale : float
        Factor of the output.
    max_splits : int
        The most parts that a row is split into; 0 lets the payload choose, or is 1 with
        ``mla_kernels.batch_invariant``.
    out : [batch, q_len, num_heads, d_v], optional
    lse : float32 [batch, num_heads, q_len], optional
        ``False`` leaves it out; ``True`` allocates it, as None does.
    max_logits : float32 [batch, num_heads, q_len], optional
    return_max_logits : bool
        Whether to allocate and return ``max_logits``.
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.

    Returns
    -------
    out : [batch, q_len, num_heads, d_v]
        0 where no index counts.
    lse : float32 [batch, num_heads, q_len], or None
        Natural logarithm of the sum of exponentials; -inf where no index counts.
    max_logits : float32 [batch, num_heads, q_len]; only where it is given or asked for
        The largest scaled logit; -inf where no index counts.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "q": q,
            "kv_cache": kv_cache,
            "indices": indices,
            "topk_length": topk_length,
            "attn_sink": attn_sink,
            "extra_kv_cache": extra_kv_cache,
            "extra_indices": extra_indices,
            "extra_topk_length": extra_topk_length,
            "kv_dtype": kv_dtype,
            "extra_kv_dtype": extra_kv_dtype,
            "softmax_scale": softmax_scale,
            "q_scale": q_scale,
            "kv_scale": kv_scale,
            "out_scale": out_scale,
            "max_splits": max_splits,
            "out": out,
            "lse": lse,
            "max_logits": max_logits,
            "return_max_logits": return_max_logits,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        return torch_ops.call("sparse_decode", arguments)  # type: ignore[no-any-return]
    kernel = select(selection.sparse_decode, (q, kv_cache, indices, extra_kv_cache, out), kv_dtype, extra_kv_dtype)
    return kernel.launch(  # type: ignore[no-any-return]
        q,
        kv_cache,
        indices,
        topk_length=topk_length,
        attn_sink=attn_sink,
        extra_kv_cache=extra_kv_cache,
        extra_indices=extra_indices,
        extra_topk_length=extra_topk_length,
        softmax_scale=softmax_scale,
        q_scale=q_scale,
        kv_scale=kv_scale,
        out_scale=out_scale,
        max_splits=max_splits,
        out=out,
        lse=lse,
        max_logits=max_logits,
        return_max_logits=return_max_logits,
        workspace=workspace,
        stream=stream,
        check=check,
    )


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
    """Attend from the tokens of a prompt to selected rows of one unpaged KV tensor.

    Scales are as in ``decode``, and everything else as in ``sparse_decode``. ``d_qk`` and ``d_v`` are 576 and 512, 512
    and 512, or 320 and 256.

    Parameters
    ----------
    q : [q_len, num_heads, d_qk], fp32 fp16 bf16
        Where there is no rope part, ``d_qk`` is 512.
    kv : [kv_len, d_qk], the type of ``q``
    indices : int32 [q_len, topk]
        Rows of ``kv``; a negative one is absent.
    topk_length : int32 [q_len], optional
        Only so many of a row's indices count; the others may be anything.
    attn_sink : float32 [num_heads], optional
        A logit without a value: ``out`` is multiplied by ``1 / (1 + exp(attn_sink - lse))``; ``lse`` is unchanged.
    extra_kv : [extra_kv_len, d_qk], optional
        Further rows, attended together with the first.
    extra_indices : int32 [q_len, extra_topk], optional
        Rows of ``extra_kv``.
    extra_topk_length : int32 [q_len], optional
        Only so many of a row's indices count; the others may be anything.
    softmax_scale : float
        Factor of the logits: ``head_dim ** -0.5`` of the head before absorption, which has ``qk_nope_head_dim +
        qk_rope_head_dim`` columns. With YaRN it is multiplied by ``m ** 2``, where ``m = 0.1 * mscale_all_dim *
        ln(factor) + 1``. For DeepSeek-V3 it is 0.1352, ``192 ** -0.5 * 1.3689 ** 2``, and never ``576 ** -0.5``; for
        DeepSeek-V4, whose heads have 512 columns, ``512 ** -0.5``.
    q_scale : float
        Factor of ``q``.
    kv_scale : float
        Factor of ``kv``, of keys and of values.
    out_scale : float
        Factor of the output.
    out : [q_len, num_heads, d_v], optional
    max_logits : float32 [q_len, num_heads], optional
    lse : float32 [q_len, num_heads], optional
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.

    Returns
    -------
    out : [q_len, num_heads, d_v]
        0 where no index counts.
    max_logits : float32 [q_len, num_heads]
        The largest scaled logit; -inf where no index counts.
    lse : float32 [q_len, num_heads]
        Natural logarithm of the sum of exponentials; -inf where no index counts. Always returned.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "q": q,
            "kv": kv,
            "indices": indices,
            "topk_length": topk_length,
            "attn_sink": attn_sink,
            "extra_kv": extra_kv,
            "extra_indices": extra_indices,
            "extra_topk_length": extra_topk_length,
            "softmax_scale": softmax_scale,
            "q_scale": q_scale,
            "kv_scale": kv_scale,
            "out_scale": out_scale,
            "out": out,
            "max_logits": max_logits,
            "lse": lse,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        return torch_ops.call("sparse_prefill", arguments)  # type: ignore[no-any-return]
    kernel = select(selection.sparse_prefill, (q, kv, indices, out))
    return kernel.launch(  # type: ignore[no-any-return]
        q,
        kv,
        indices,
        topk_length=topk_length,
        attn_sink=attn_sink,
        extra_kv=extra_kv,
        extra_indices=extra_indices,
        extra_topk_length=extra_topk_length,
        softmax_scale=softmax_scale,
        q_scale=q_scale,
        kv_scale=kv_scale,
        out_scale=out_scale,
        out=out,
        max_logits=max_logits,
        lse=lse,
        workspace=workspace,
        stream=stream,
        check=check,
    )


def merge_states(
    o: Tensor,
    lse: Tensor,
    counts: Tensor | None = None,
    *,
    out_dtype: DTypeLike | None = None,
    out: Tensor | None = None,
    out_lse: Tensor | bool | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> tuple[Tensor, Tensor]:
    """Merge partial attention results: ``lse = logsumexp_i lse_i``, ``out = sum_i exp(lse_i - lse) o_i``.

    Parameters
    ----------
    o : [num_states, num_tokens, num_heads, head_dim], fp32, or the type of the output
    lse : float32 [num_states, num_tokens, num_heads]
        Natural logarithms; a state with -inf or +inf is empty, and adds nothing. One with NaN makes the whole row NaN.
    counts : int32 [num_tokens], optional
        Only the first so many states of a token count.
    out_dtype : str or dtype, optional
        By default the type of ``out``, otherwise of ``o``.
    out : [num_tokens, num_heads, head_dim], optional
    out_lse : float32 [num_tokens, num_heads], optional
        ``False`` leaves it out; ``True`` allocates it, as None does.
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.

    Returns
    -------
    out : [num_tokens, num_heads, head_dim]
        0 where no state counts, or all are empty.
    out_lse : float32 [num_tokens, num_heads], or None
        -inf there.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "o": o,
            "lse": lse,
            "counts": counts,
            "out_dtype": out_dtype,
            "out": out,
            "out_lse": out_lse,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        return torch_ops.call("merge_states", arguments)  # type: ignore[no-any-return]
    kernel = select(selection.merge_states, (o, out), out_dtype)
    return kernel.launch(  # type: ignore[no-any-return]
        o,
        lse,
        counts,
        out=out,
        out_lse=out_lse,
        workspace=workspace,
        stream=stream,
        check=check,
    )


def store_kv(
    latent: Tensor,
    rope: Tensor | None,
    kv_cache: Packed,
    slot_mapping: Tensor,
    *,
    scale: Tensor | None = None,
    kv_dtype: DTypeLike | None = None,
    power_of_two_scales: bool = False,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> None:
    """Write new tokens into a KV cache, quantising where its format is quantised.

    ``d_qk`` and ``d_v`` are 576 and 512, 512 and 512, or 320 and 256.

    Parameters
    ----------
    latent : [num_tokens, d_latent], fp32 fp16 bf16
        ``d_latent`` and ``d_rope`` are the columns of the format; most have 512 and 64.
    rope : [num_tokens, d_rope], the type of ``latent``; or None where the format has no rope part
    kv_cache : [num_pages, page_size, d_qk], the type of ``latent`` or e4m3; uint8 [..., 656] for fp8_ds_mla, [..., 528] for fp8_ds_mla or fp8_ds_v41, [..., 584] for fp8_ds_v4, [..., 288] for fp4_ds_v41, [..., 352] for nvfp4_ds_mla
    slot_mapping : int64 [num_tokens]
        Where each token goes, ``page * page_size + offset``; a token with a negative slot is skipped. Of two tokens
        with one slot, either stays.
    scale : float32 [1], optional
        What one unit of an e4m3 element stands for; needed for e4m3, refused otherwise.
    kv_dtype : str or dtype, optional
        The format of the cache; by default what its element type and row width say. It is needed where two formats have
        rows of as many bytes.
    power_of_two_scales : bool
        Whether the scales in the rows of an fp8_ds_mla cache are powers of two: the least one from ``max(amax / 448,
        1e-4)``, as vLLM and FlashMLA store it. By default a scale is ``amax / 448``, and that of a group of zeros
        2^-126. Refused for other caches.
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "latent": latent,
            "rope": rope,
            "kv_cache": kv_cache,
            "slot_mapping": slot_mapping,
            "scale": scale,
            "kv_dtype": kv_dtype,
            "power_of_two_scales": power_of_two_scales,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        torch_ops.call("store_kv", arguments)
        return
    kernel = select(selection.store_kv, (latent, kv_cache), kv_dtype)
    kernel.launch(
        latent,
        rope,
        kv_cache,
        slot_mapping,
        scale=scale,
        power_of_two_scales=power_of_two_scales,
        workspace=workspace,
        stream=stream,
        check=check,
    )


def gather_kv(
    kv_cache: Packed,
    indices: Tensor,
    *,
    kv_dtype: DTypeLike | None = None,
    out_dtype: DTypeLike | None = None,
    kv_scale: float = 1.0,
    out: Packed | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> Tensor:
    """Read selected rows of a KV cache, dequantised.

    ``d_qk`` and ``d_v`` are 576 and 512, 512 and 512, or 320 and 256.

    Parameters
    ----------
    kv_cache : [num_pages, page_size, d_qk], fp32 fp16 bf16 e4m3; uint8 [..., 656] for fp8_ds_mla, [..., 528] for fp8_ds_mla or fp8_ds_v41, [..., 584] for fp8_ds_v4, [..., 288] for fp4_ds_v41, [..., 368] for mxfp4_ds_v4, [..., 352] for nvfp4_ds_mla
    indices : int32 [num_rows]
        Global slots; a negative one gives a row of zeros.
    kv_dtype : str or dtype, optional
        The format of the cache; by default what its element type and row width say. It is needed where two formats have
        rows of as many bytes.
    out_dtype : str or dtype, optional
        By default the type of ``out``, otherwise of the cache; ``bf16`` for a quantised one.
    kv_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    out : [num_rows, d_qk], optional
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.

    Returns
    -------
    out : [num_rows, d_qk]
        A tuple of latent and rope where one was given.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "kv_cache": kv_cache,
            "indices": indices,
            "kv_dtype": kv_dtype,
            "out_dtype": out_dtype,
            "kv_scale": kv_scale,
            "out": out,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        return torch_ops.call("gather_kv", arguments)
    kernel = select(selection.gather_kv, (kv_cache, out), kv_dtype, out_dtype)
    return kernel.launch(
        kv_cache,
        indices,
        kv_scale=kv_scale,
        out=out,
        workspace=workspace,
        stream=stream,
        check=check,
    )


def to_global_indices(
    req_id: Tensor,
    block_table: Tensor,
    token_indices: Tensor,
    *,
    page_size: int,
    out: Tensor | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> Tensor:
    """Translate positions within a request to global slots of a paged cache.

    Parameters
    ----------
    req_id : int32 [num_tokens]
        The request of each token: its row of the block table.
    block_table : int32 [num_requests, table_width]
    token_indices : int32 [num_tokens, topk]
        Positions within the request; a negative one is absent.
    page_size : int
        Slots of a page.
    out : int32 [num_tokens, topk], optional
    workspace : uint8 tensor, optional
        At least ``kernel.workspace_size(...)`` bytes; allocated unless given.
    stream : int, optional
        The address of a CUDA stream; by default the current stream of the framework. It has no effect on a CPU. What
        the call allocates is memory of that stream, as under ``torch.cuda.stream``.
    check : bool
        Read the device's lengths, indices and slots before the launch, and refuse bad ones. A CPU always does.

    Returns
    -------
    out : int32 [num_tokens, topk]
        ``block_table[req, position // page_size] * page_size + position % page_size``; -1 for an absent position, one
        past the table, a page that is negative, or a slot beyond int32.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        arguments = {
            "req_id": req_id,
            "block_table": block_table,
            "token_indices": token_indices,
            "page_size": page_size,
            "out": out,
            "workspace": workspace,
            "stream": stream,
            "check": check,
        }
        return torch_ops.call("to_global_indices", arguments)
    kernel = select(selection.to_global_indices, (token_indices,), page_size)
    return kernel.launch(
        req_id,
        block_table,
        token_indices,
        page_size=page_size,
        out=out,
        workspace=workspace,
        stream=stream,
        check=check,
    )
