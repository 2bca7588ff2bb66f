"""The kernels of sparse attention: over selected slots of a cache, and over selected rows of one tensor."""

from __future__ import annotations

from mla_kernels.errors import UnsupportedError
from mla_kernels.formats import LATENT
from mla_kernels.kernels.base import Kernel
from mla_kernels.tensors import Packed, Tensor, empty, extents, first, widened, with_rope


class SparseDecodeKernel(Kernel):
    """Attention of new tokens over selected slots of a KV cache."""

    __slots__ = ()

    def launch(
        self,
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
        """Launch; parameters, results and errors are those of ``mla_kernels.sparse_decode``."""
        like = first(q)
        batch, q_len, num_heads, _ = extents("q", like, "batch", "q_len", "num_heads", "576")
        _require_both("extra_kv_cache", extra_kv_cache, extra_indices, extra_topk_length)
        topk_length, extra_topk_length = widened(topk_length, q_len), widened(extra_topk_length, q_len)
        if out is None:
            out = empty("out", like, (batch, q_len, num_heads, LATENT), self._out_dtype())
        if lse is None:
            lse = empty("lse", like, (batch, num_heads, q_len), "fp32")
        elif lse is False:
            lse = None
        if max_logits is None and return_max_logits:
            max_logits = empty("max_logits", like, (batch, num_heads, q_len), "fp32")
        arguments = (
            q, kv_cache, indices, out, lse, max_logits, topk_length, attn_sink,
            extra_kv_cache, extra_indices, extra_topk_length,
            softmax_scale, q_scale, kv_scale, out_scale, max_splits,
        )  # fmt: skip
        self._finish(arguments, like, workspace, stream, check)
        return (out, lse) if max_logits is None else (out, lse, max_logits)

    __call__ = launch


class SparsePrefillKernel(Kernel):
    """Attention of a prompt's tokens over selected rows of one unpaged KV tensor."""

    __slots__ = ()

    def launch(
        self,
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
        """Launch; parameters, results and errors are those of ``mla_kernels.sparse_prefill``."""
        like = first(q)
        q_len, num_heads, _ = extents("q", like, "q_len", "num_heads", "576")
        _require_both("extra_kv", extra_kv, extra_indices, extra_topk_length)
        q, kv, extra_kv = with_rope(q), with_rope(kv), with_rope(extra_kv)
        if out is None:
            out = empty("out", like, (q_len, num_heads, LATENT), self._out_dtype())
        if max_logits is None:
            max_logits = empty("max_logits", like, (q_len, num_heads), "fp32")
        if lse is None:
            lse = empty("lse", like, (q_len, num_heads), "fp32")
        arguments = (
            q, kv, indices, out, max_logits, lse, topk_length, attn_sink,
            extra_kv, extra_indices, extra_topk_length,
            softmax_scale, q_scale, kv_scale, out_scale,
        )  # fmt: skip
        self._finish(arguments, like, workspace, stream, check)
        return out, max_logits, lse

    __call__ = launch


def _require_both(name: str, extra: object, indices: object, lengths: object) -> None:
    """An extra cache and the indices into it come together, and lengths only with them."""
    if (extra is None) is not (indices is None):
        missing, given = ("extra_indices", name) if indices is None else (name, "extra_indices")
        raise UnsupportedError(missing, "None", f"a tensor, because {given} is given")
    if indices is None and lengths is not None:
        raise UnsupportedError("extra_topk_length", "a tensor", "None, because extra_indices is None")
