"""Dense decode in one call."""

from __future__ import annotations

from mla_kernels.api import selection
from mla_kernels.kernels.base import Plan
from mla_kernels.kernels.decode import plan_for
from mla_kernels.tensors import Packed, Tensor, compiling


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
        from mla_kernels.api import torch_ops

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
