"""What an engine asks before it has a layer: names, shapes and types, and the classes that do the work."""

from __future__ import annotations

import torch

from mla_kernels.compat.flashmla_sparse.builder import FlashMLASparseMetadataBuilder
from mla_kernels.compat.flashmla_sparse.layer import FlashMLASparseImpl
from mla_kernels.compat.flashmla_sparse.metadata import FlashMLASparseMetadata
from mla_kernels.formats import HEAD_DIM, format_named


class FlashMLASparseBackend:
    """The backend: stateless, asked by class."""

    accept_output_buffer: bool = True
    """``forward`` writes into an output that the engine owns."""

    @staticmethod
    def get_name() -> str:
        """The name that vLLM gave this backend."""
        return "FLASHMLA_SPARSE_VLLM_V1"

    @staticmethod
    def get_metadata_cls() -> type[FlashMLASparseMetadata]:
        """What ``build`` returns."""
        return FlashMLASparseMetadata

    @staticmethod
    def get_builder_cls() -> type[FlashMLASparseMetadataBuilder]:
        """What makes the metadata of a step."""
        return FlashMLASparseMetadataBuilder

    @staticmethod
    def get_impl_cls() -> type[FlashMLASparseImpl]:
        """What attends, one a layer."""
        return FlashMLASparseImpl

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """Shape of a layer's cache.

        Parameters
        ----------
        num_blocks, block_size : int
            Pages, and tokens in each.
        num_kv_heads : int
            1, and no dimension of the cache.
        head_size : int
            576.
        cache_dtype_str : str
            ``auto`` or ``bfloat16``: rows of ``head_size`` elements; ``fp8_ds_mla``: rows of 656 bytes, uint8.
        """
        in_bytes = cache_dtype_str == "fp8_ds_mla"
        return num_blocks, block_size, format_named(cache_dtype_str).token_bytes if in_bytes else head_size

    @classmethod
    def get_supported_dtypes(cls) -> list[torch.dtype]:
        """Element types of queries and outputs."""
        return [torch.bfloat16]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """Widths of a key."""
        return [HEAD_DIM]
