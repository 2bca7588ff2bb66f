"""Dense MLA on the CPU, in place of vLLM's ``CPU_MLA``; to import this is to import vLLM."""

# mypy: disable-error-code="misc"
# (vLLM is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from typing import Any, ClassVar

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend, CPUMLAImpl

from mla_kernels.compat import _capabilities as capabilities
from mla_kernels.compat._vllm.decoding import (
    Capabilities,
    Decoding,
    Planning,
    kernel_block_sizes,
    require_served,
    torch_dtypes,
)
from mla_kernels.compat.vllm import concat_and_cache_mla
from mla_kernels.devices.machine import HOST


class HostDecoding(Decoding):
    """A layer of the CPU, refused at start-up where the payload does not serve it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        require_served(self, HOST, get_current_vllm_config().model_config.dtype)
        self.supports_quant_query_input = capabilities.quantised_queries((HOST,))


class CpuBackend(Capabilities, CPUMLABackend):
    """What vLLM asks before it has a layer."""

    supported_dtypes: ClassVar[list[torch.dtype]] = torch_dtypes((HOST,))
    supported_kv_cache_dtypes: ClassVar[list[str]] = capabilities.cache_dtypes((HOST,))

    @classmethod
    def archs(cls) -> tuple[str, ...]:
        """The host's."""
        return (HOST,)

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        """Tokens of a block."""
        return kernel_block_sizes((HOST,), kv_cache_spec)

    @staticmethod
    def get_impl_cls() -> type[CpuImpl]:
        """What attends, one a layer."""
        return CpuImpl

    @staticmethod
    def get_builder_cls() -> type[CpuMetadataBuilder]:
        """What makes the metadata of a step."""
        return CpuMetadataBuilder


class CpuMetadataBuilder(Planning, MLACommonMetadataBuilder):
    """Plans a step once, for all layers."""


class CpuImpl(HostDecoding, CPUMLAImpl):
    """One layer's attention, and its writes to the cache."""

    def do_kv_cache_update(  # noqa: PLR0917 (the signature is theirs)
        self,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_cache_dtype: str,
        k_scale: torch.Tensor,
        skip_scale: bool = False,
    ) -> None:
        """Write new tokens into the cache; a negative slot is skipped."""
        if kv_cache.numel() == 0:
            return
        concat_and_cache_mla(
            kv_c_normed, k_pe.flatten(1), kv_cache, slot_mapping, kv_cache_dtype, k_scale.view(1), skip_scale
        )
