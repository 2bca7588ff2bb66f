"""The kernel that merges partial results of attention."""

from __future__ import annotations

from mla_kernels.kernels.base import Kernel
from mla_kernels.tensors import Tensor, empty, extents


class MergeStatesKernel(Kernel):
    """Merges partial attention results by their log-sum-exp."""

    __slots__ = ()

    def launch(
        self,
        o: Tensor,
        lse: Tensor,
        counts: Tensor | None = None,
        *,
        out: Tensor | None = None,
        out_lse: Tensor | bool | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Launch; parameters, results and errors are those of ``mla_kernels.merge_states``."""
        _, num_tokens, num_heads, head_dim = extents("o", o, "num_states", "num_tokens", "num_heads", "head_dim")
        if out is None:
            out = empty("out", o, (num_tokens, num_heads, head_dim), self._out_dtype())
        if out_lse is None:
            out_lse = empty("out_lse", o, (num_tokens, num_heads), "fp32")
        elif out_lse is False:
            out_lse = None
        self._finish((o, lse, counts, out, out_lse), o, workspace, stream, check)
        return out, out_lse

    __call__ = launch
