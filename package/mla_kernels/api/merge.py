"""Merging of partial results in one call."""

from __future__ import annotations

from mla_kernels.api import selection
from mla_kernels.api.selection import select
from mla_kernels.tensors import Tensor, compiling


def merge_states(
    o: Tensor,
    lse: Tensor,
    counts: Tensor | None = None,
    *,
    out_dtype: str | None = None,
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
        Natural logarithms.
    counts : int32 [num_tokens], optional
        Only the first so many states of a token count.
    out_dtype : str, optional
        By default the type of ``out``, otherwise of ``o``.
    out : [num_tokens, num_heads, head_dim], optional
    out_lse : float32 [num_tokens, num_heads], optional
        ``False`` leaves it out.

    Returns
    -------
    out : [num_tokens, num_heads, head_dim]
        0 where no state counts, or all are empty.
    lse : float32 [num_tokens, num_heads], or None
        -inf there.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        torch_ops.require_defaults(out=out, workspace=workspace, stream=stream, check=check)
        return torch_ops.merge_states(o, lse, counts, out_dtype, out_lse)
    kernel = select(selection.merge_states, (o, out), out_dtype)
    return kernel.launch(  # type: ignore[no-any-return]
        o, lse, counts, out=out, out_lse=out_lse, workspace=workspace, stream=stream, check=check
    )
