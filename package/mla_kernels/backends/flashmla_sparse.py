"""The public path of the sparse backend, whose classes are in ``mla_kernels.compat.flashmla_sparse``.

DeepSeek Sparse Attention as an engine's backend: token-level top-k over a bf16 or an ``fp8_ds_mla`` cache. The classes,
their arguments and their results are those of vLLM's FlashMLA sparse backend, whose indexer fills a buffer of
positions; nothing of vLLM is imported. ``mla_kernels.compat.vllm`` registers the backend there.
"""

from mla_kernels.compat.flashmla_sparse import *  # noqa: F403
from mla_kernels.compat.flashmla_sparse import __all__ as __all__  # noqa: PLC0414
