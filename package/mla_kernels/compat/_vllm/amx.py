"""Dense MLA on CPUs with AMX, in place of vLLM's ``AMX_MLA``: its prefill stays, decodes are this package's."""

# mypy: disable-error-code="misc"
# (vLLM is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from vllm.v1.attention.backends.mla.amx_mla import AMXMLABackend, AMXMLAImpl, AMXMLAMetadataBuilder

from mla_kernels.compat._vllm.cpu import HostDecoding
from mla_kernels.compat._vllm.decoding import Planning


class AmxBackend(AMXMLABackend):
    """What vLLM asks before it has a layer; its prefill decides what it serves."""

    @staticmethod
    def get_impl_cls() -> type[AmxImpl]:
        """What attends, one a layer."""
        return AmxImpl

    @staticmethod
    def get_builder_cls() -> type[AmxMetadataBuilder]:
        """What makes the metadata of a step."""
        return AmxMetadataBuilder


class AmxMetadataBuilder(Planning, AMXMLAMetadataBuilder):
    """Plans a step once, for all layers; what vLLM's prefill reads is its own builder's."""


class AmxImpl(HostDecoding, AMXMLAImpl):
    """One layer's attention."""
