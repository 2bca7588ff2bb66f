"""The kernels around attention: merging partial results, writing and reading caches, translating indices."""

from __future__ import annotations

from mla_kernels.frameworks import Packed, Tensor, empty, extents, first
from mla_kernels.kernel import Kernel
from mla_kernels.widths import HEAD_DIM


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


class StoreKvKernel(Kernel):
    """Writes new tokens into a KV cache, quantising where the cache is narrower."""

    __slots__ = ()

    def launch(
        self,
        latent: Tensor,
        rope: Tensor,
        kv_cache: Packed,
        slot_mapping: Tensor,
        *,
        scale: Tensor | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> None:
        """Launch; parameters and errors are those of ``mla_kernels.store_kv``."""
        self._finish((latent, rope, kv_cache, slot_mapping, scale), latent, workspace, stream, check)

    __call__ = launch


class GatherKvKernel(Kernel):
    """Reads selected rows of a KV cache, dequantising where the cache is narrower."""

    __slots__ = ()

    def launch(
        self,
        kv_cache: Packed,
        indices: Tensor,
        *,
        kv_scale: float = 1.0,
        out: Packed | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> Tensor:
        """Launch; parameters, results and errors are those of ``mla_kernels.gather_kv``."""
        (num_rows,) = extents("indices", indices, "num_rows")
        if out is None:
            out = empty("out", first(kv_cache), (num_rows, HEAD_DIM), self._out_dtype())
        self._finish((kv_cache, indices, out, kv_scale), first(kv_cache), workspace, stream, check)
        return out

    __call__ = launch


class ToGlobalIndicesKernel(Kernel):
    """Translates token positions within requests to global slots of a paged cache."""

    __slots__ = ()

    def launch(
        self,
        req_id: Tensor,
        block_table: Tensor,
        token_indices: Tensor,
        *,
        page_size: int | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        stream: int | None = None,
        check: bool = False,
    ) -> Tensor:
        """Launch; parameters, results and errors are those of ``mla_kernels.to_global_indices``."""
        page_size = self._number("page_size", page_size)
        if out is None:
            out = empty("out", token_indices, extents("token_indices", token_indices, "num_tokens", "topk"), "int32")
        self._finish((req_id, block_table, token_indices, out, page_size), token_indices, workspace, stream, check)
        return out

    __call__ = launch
