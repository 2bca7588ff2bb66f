"""vLLM's classes around ``mla_kernels.backends.flashmla_sparse``; to import this is to import vLLM.

vLLM's layer absorbs W_UK and projects by W_UV itself: what is left to a backend is the cache and the attention.
"""

# mypy: disable-error-code="misc"
# (vLLM is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from vllm.config import get_current_vllm_config
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionMetadata,
    AttentionMetadataBuilder,
    MLAAttentionImpl,
)

import mla_kernels as mla
from mla_kernels.compat import _capabilities as capabilities
from mla_kernels.compat import flashmla_sparse
from mla_kernels.compat._vllm.combination import SparseCombination
from mla_kernels.compat._vllm.workspace import Workspace
from mla_kernels.devices.machine import current_arch
from mla_kernels.errors import UnsupportedError
from mla_kernels.formats import HEAD_DIM, LATENT
from mla_kernels.kernels.base import Kernel

_OP = "sparse_decode"


class FlashMLASparseBackend(SparseCombination, AttentionBackend):
    """What vLLM asks before it has a layer."""

    supported_dtypes: ClassVar[list[torch.dtype]] = flashmla_sparse.FlashMLASparseBackend.get_supported_dtypes()
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", *capabilities.SPARSE_CACHE_DTYPES]

    @staticmethod
    def get_name() -> str:
        """The name of vLLM's own, by which its layers know that an fp8 cache means ``fp8_ds_mla``."""
        return "FLASHMLA_SPARSE"

    @staticmethod
    def get_impl_cls() -> type[FlashMLASparseImpl]:
        """What attends, one a layer."""
        return FlashMLASparseImpl

    @staticmethod
    def get_builder_cls() -> type[FlashMLASparseMetadataBuilder]:
        """What makes the metadata of a step."""
        return FlashMLASparseMetadataBuilder

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """Widths of a key."""
        return flashmla_sparse.FlashMLASparseBackend.get_supported_head_sizes()

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """Blocks begin a whole number of rows apart: vLLM's layers read bf16 caches of this name as rows."""
        if spec.cache_dtype_str == "fp8_ds_mla":
            return spec
        return replace(spec, block_stride_alignment=spec.state_content_size_bytes)

    @classmethod
    def is_mla(cls) -> bool:
        """Latent attention only."""
        return True

    @classmethod
    def is_sparse(cls) -> bool:
        """Selected tokens only."""
        return True

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        """The builder reads where requests begin on the host."""
        return False


@dataclass
class FlashMLASparseMetadata(flashmla_sparse.FlashMLASparseMetadata, AttentionMetadata):
    """A step, all of whose tokens take the latent path, by one kernel and with scratch memory that layers share."""

    num_decodes: int = 0
    num_prefills: int = 0
    num_decode_tokens: int = 0
    prefill: None = None
    decode: None = None
    kernel: Kernel | None = None
    workspace: torch.Tensor | None = None


class FlashMLASparseMetadataBuilder(AttentionMetadataBuilder):
    """Makes a step's metadata, for layers whose caches and heads are alike; those of a draft may differ from others."""

    _cudagraph_support: ClassVar[Any] = AttentionCGSupport[
        flashmla_sparse.FlashMLASparseMetadataBuilder.cudagraph_support.name
    ]

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)  # the indexer wants decodes first
        layer = vllm_config.compilation_config.static_forward_context[layer_names[0]].impl
        dtype, self._heads = vllm_config.model_config.dtype, layer.num_heads
        numbers = {"block_size": kv_cache_spec.block_size, "num_heads": self._heads}
        _require_served(dtype, layer.kv_cache_dtype, HEAD_DIM, **numbers)
        self._own = flashmla_sparse.FlashMLASparseMetadataBuilder(kv_cache_spec, layer_names, vllm_config, device)
        self._workspace = Workspace(device)
        arch = current_arch()
        traits = capabilities.config_of(arch, dtype, layer.kv_cache_dtype, HEAD_DIM, LATENT, op=_OP)
        traits |= {"page_size": kv_cache_spec.block_size, "num_heads": self._heads}
        self._kernel = mla.lookup(op=_OP, arch=arch, **traits)  # type: ignore[arg-type]
        self._kernel.prepare(device.index or 0)

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> FlashMLASparseMetadata:
        """Describe a step."""
        made = self._own.build(common_prefix_len, common_attn_metadata, fast_build)
        own = {field.name: getattr(made, field.name) for field in fields(made)}
        tokens = made.num_actual_tokens
        rows = max(tokens, 1)  # of two microbatches, the second may have no token
        workspace = self._workspace.of(rows, lambda: self._needed(rows))
        return FlashMLASparseMetadata(
            **own,
            num_decodes=made.num_reqs,
            num_decode_tokens=tokens,
            kernel=self._kernel,
            workspace=workspace,
        )

    def _needed(self, tokens: int) -> int:
        """Bytes of workspace of a layer."""
        topk, device = self._own.topk_tokens, self._own.device.index or 0
        return self._kernel.workspace_size(batch=1, q_len=tokens, num_heads=self._heads, topk=topk, device=device)


class FlashMLASparseImpl(MLAAttentionImpl):
    """One layer's attention."""

    is_sparse: ClassVar[bool] = True
    supports_dense_mha_prefill: bool = False
    supports_pcp: bool = False

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
        q_lora_rank: int | None,
        kv_lora_rank: int,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        qk_head_dim: int,
        v_head_dim: int,
        kv_b_proj: Any,
        indexer: Any = None,
        topk_indices_buffer: torch.Tensor | None = None,
        index_group_builder: Any = None,
        q_pad_num_heads: int | None = None,
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.kv_cache_dtype = kv_cache_dtype
        self._own = flashmla_sparse.FlashMLASparseImpl(
            num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype, logits_soft_cap,
            attn_type, kv_sharing_target_layer_name, topk_indices_buffer, indexer, q_lora_rank=q_lora_rank,
            kv_lora_rank=kv_lora_rank, qk_nope_head_dim=qk_nope_head_dim, qk_rope_head_dim=qk_rope_head_dim,
            qk_head_dim=qk_head_dim, v_head_dim=v_head_dim, kv_b_proj=kv_b_proj,
        )  # fmt: skip
        config = get_current_vllm_config()
        _require_served(config.model_config.dtype, kv_cache_dtype, head_size, num_heads=num_heads)
        if config.attention_config.hisparse_config is not None:
            raise UnsupportedError("hisparse_config", "a HiSparse cache", "None: a cache that is all on the GPU")

    @property
    def topk_indices_buffer(self) -> torch.Tensor:
        """Where the indexer writes."""
        return self._own.topk_indices_buffer

    @topk_indices_buffer.setter
    def topk_indices_buffer(self, buffer: torch.Tensor) -> None:
        self._own.topk_indices_buffer = buffer

    def record_logical_topk_ready(self) -> None:
        """Do nothing: the stream that selects tokens is the one that attends to them."""

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
        """Write new tokens into the cache."""
        if kv_cache.numel() > 0:
            self._own.write(kv_c_normed, k_pe, kv_cache, slot_mapping.flatten())

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: FlashMLASparseMetadata,
        layer: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Latents [num_tokens, num_heads, 512] of absorbed queries; no LSE, which is for context parallelism."""
        return self._own.attend(
            q,
            kv_c_and_k_pe_cache,
            attn_metadata,
            lse=False,
            kernel=attn_metadata.kernel or mla.sparse_decode,
            workspace=attn_metadata.workspace,
        )


def _require_served(dtype: torch.dtype, cache_dtype: str, head_size: int, **numbers: Any) -> None:
    """Refuse, before the first request, a layer that no kernel serves.

    Raises
    ------
    UnsupportedError
        It says what would be served.
    """
    asked: dict[str, Any] = {"dtype": dtype, "cache_dtype": cache_dtype, "head_size": head_size}
    error = capabilities.refusal(current_arch(), op=_OP, **asked, **numbers)
    if error is not None:
        raise error
