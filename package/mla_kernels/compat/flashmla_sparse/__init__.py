"""DeepSeek Sparse Attention as an engine's backend: token-level top-k over a bf16 or an ``fp8_ds_mla`` cache.

The classes, their arguments and their results are those of vLLM's FlashMLA sparse backend, whose indexer fills a buffer
of positions; nothing of vLLM is imported. ``mla_kernels.compat.vllm`` registers the backend there.
"""

from mla_kernels.compat.flashmla_sparse.backend import FlashMLASparseBackend
from mla_kernels.compat.flashmla_sparse.builder import CudaGraphSupport, FlashMLASparseMetadataBuilder
from mla_kernels.compat.flashmla_sparse.indices import lse2_to_lse, triton_convert_req_index_to_global_index
from mla_kernels.compat.flashmla_sparse.layer import FlashMLASparseImpl
from mla_kernels.compat.flashmla_sparse.metadata import (
    FlashMLASparseDecodeAndContextMetadata,
    FlashMLASparseMetadata,
    MLASparsePrefillMetadata,
)

__all__ = [
    "CudaGraphSupport",
    "FlashMLASparseBackend",
    "FlashMLASparseDecodeAndContextMetadata",
    "FlashMLASparseImpl",
    "FlashMLASparseMetadata",
    "FlashMLASparseMetadataBuilder",
    "MLASparsePrefillMetadata",
    "lse2_to_lse",
    "triton_convert_req_index_to_global_index",
]
