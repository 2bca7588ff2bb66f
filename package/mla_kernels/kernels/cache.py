"""The kernels around the KV cache: writing and reading its rows, and translating indices into it."""

from __future__ import annotations

from mla_kernels.formats import HEAD_DIM
from mla_kernels.kernels.base import Kernel
from mla_kernels.tensors import Packed, Tensor, empty, extents, first


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
