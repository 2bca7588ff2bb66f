"""Dense MLA on GPUs as a backend of vLLM; to import this is to import vLLM.

Prefill stays vLLM's: what this replaces is the attention of decodes, which are absorbed.
"""

# mypy: disable-error-code="misc"
# (vLLM is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from typing import Any, ClassVar

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend,
    MLACommonImpl,
    MLACommonMetadataBuilder,
)

from mla_kernels.compat import _capabilities as capabilities
from mla_kernels.compat._vllm.combination import Combination
from mla_kernels.compat._vllm.decoding import (
    Capabilities,
    Decoding,
    Planning,
    kernel_block_sizes,
    require_plain,
    require_served,
    torch_dtypes,
)
from mla_kernels.devices.machine import current_arch


class DenseBackend(Combination, Capabilities, MLACommonBackend):
    """What vLLM asks before it has a layer."""

    supported_dtypes: ClassVar[list[torch.dtype]] = torch_dtypes(capabilities.gpu_archs())
    supported_kv_cache_dtypes: ClassVar[list[str]] = capabilities.cache_dtypes(capabilities.gpu_archs())

    @classmethod
    def archs(cls) -> tuple[str, ...]:
        """Those of the installed GPU payloads."""
        return capabilities.gpu_archs()

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        """Tokens of a block that every installed payload reads."""
        return kernel_block_sizes(capabilities.gpu_archs(), kv_cache_spec)

    @staticmethod
    def get_impl_cls() -> type[DenseImpl]:
        """What attends, one a layer."""
        return DenseImpl

    @staticmethod
    def get_builder_cls() -> type[DenseMetadataBuilder]:
        """What makes the metadata of a step."""
        return DenseMetadataBuilder


class DenseMetadataBuilder(Planning, MLACommonMetadataBuilder):
    """Plans a step once, for all layers."""


class DenseImpl(Decoding, MLACommonImpl):
    """One layer's attention."""

    supports_dcp: bool = True
    supports_mtp_with_cp_non_trivial_interleave_size: bool = True

    def __init__(  # noqa: PLR0917 (the signature is theirs)
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        **mla_args: Any,
    ) -> None:
        super().__init__(
            num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype, logits_soft_cap,
            attn_type, kv_sharing_target_layer_name, **mla_args,
        )  # fmt: skip
        require_plain(alibi_slopes=alibi_slopes, sliding_window=sliding_window, logits_soft_cap=logits_soft_cap)
        arch = current_arch()
        require_served(self, arch, get_current_vllm_config().model_config.dtype)
        self.supports_quant_query_input = capabilities.quantised_queries((arch,))
