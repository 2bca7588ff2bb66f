"""From an engine's step to the metadata of its layers, in buffers that a CUDA graph may read again."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Protocol

import torch

from mla_kernels.compat.flash_mla import get_mla_metadata
from mla_kernels.compat.flashmla_sparse.metadata import FlashMLASparseMetadata
from mla_kernels.errors import ValueRangeError


class CudaGraphSupport(Enum):
    """Batches that a full CUDA graph may hold; the names are vLLM's."""

    NEVER = 0
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    UNIFORM_BATCH = 2
    ALWAYS = 3


class CacheSpec(Protocol):
    """What is read of a cache's description."""

    block_size: int


class EngineConfig(Protocol):
    """What is read of an engine's configuration, by vLLM's names.

    ``cache_config.cache_dtype`` is ``auto``, ``bfloat16`` or ``fp8_ds_mla``; ``model_config`` has ``max_model_len``,
    ``hf_config.index_topk`` and ``get_num_attention_heads(parallel_config)``; ``scheduler_config`` has
    ``max_num_batched_tokens``.
    """

    cache_config: Any
    model_config: Any
    parallel_config: Any
    scheduler_config: Any


class Step(Protocol):
    """What is read of a step: vLLM's ``CommonAttentionMetadata``.

    ``query_start_loc_cpu`` is ``query_start_loc``, int32 [num_reqs + 1], on the host; ``block_table_tensor`` is int32
    [num_reqs, table_width], ``slot_mapping`` int64 [num_actual_tokens].
    """

    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor


class FlashMLASparseMetadataBuilder:
    """Makes a step's metadata; one builder for all layers whose caches are alike.

    Parameters
    ----------
    kv_cache_spec : CacheSpec
    layer_names : list[str]
        Has no effect.
    vllm_config : EngineConfig
    device : torch.device
        Of the caches and the metadata.
    """

    cudagraph_support: ClassVar[CudaGraphSupport] = CudaGraphSupport.UNIFORM_BATCH

    def __init__(
        self, kv_cache_spec: CacheSpec, layer_names: list[str], vllm_config: EngineConfig, device: torch.device
    ) -> None:
        model = vllm_config.model_config
        self.kv_cache_spec = kv_cache_spec
        self.model_config = model
        self.device = torch.device(device)
        self.num_heads: int = model.get_num_attention_heads(vllm_config.parallel_config)
        self.topk_tokens: int = getattr(model, "hf_text_config", model.hf_config).index_topk
        self.use_fp8_kv_cache = vllm_config.cache_config.cache_dtype == "fp8_ds_mla"
        self.topk_tokens_tensor = self._int32([self.topk_tokens])
        self.max_model_len_tensor = self._int32([model.max_model_len])
        self.dummy_block_table = self._int32([[0]])
        self.req_id_per_token_buffer = self._int32([0] * vllm_config.scheduler_config.max_num_batched_tokens)
        # All tokens of a step are one row of the batch, and sparse decode plans nothing: these fit every step.
        scheduled, num_splits = self._schedule(1)
        self.tile_scheduler_metadata_buffer, self.num_splits_buffer = scheduled.clone(), num_splits.clone()

    def build(
        self, common_prefix_len: int, common_attn_metadata: Step, fast_build: bool = False
    ) -> FlashMLASparseMetadata:
        """Describe a step.

        Parameters
        ----------
        common_prefix_len : int
            Has no effect.
        common_attn_metadata : Step
        fast_build : bool
            Has no effect.

        Returns
        -------
        FlashMLASparseMetadata
            Its tensors are the step's, or buffers of this builder that the next ``build`` overwrites.

        Raises
        ------
        ValueRangeError
            The step has more tokens than the engine's configuration allows.
        """
        step = common_attn_metadata
        return FlashMLASparseMetadata(
            num_reqs=step.num_reqs,
            max_query_len=step.max_query_len,
            max_seq_len=step.max_seq_len,
            num_actual_tokens=step.num_actual_tokens,
            query_start_loc=step.query_start_loc,
            slot_mapping=step.slot_mapping,
            block_table=step.block_table_tensor,
            req_id_per_token=self._requests(step),
            block_size=self.kv_cache_spec.block_size,
            topk_tokens=self.topk_tokens,
            fp8_extra_metadata=self._fp8_metadata(step.num_actual_tokens) if self.use_fp8_kv_cache else None,
        )

    def _requests(self, step: Step) -> torch.Tensor:
        """The request of each token; 0 for those that pad the step, so that a graph may read them."""
        buffer = self.req_id_per_token_buffer
        starts = torch.as_tensor(step.query_start_loc_cpu)
        requests = torch.repeat_interleave(torch.arange(len(starts) - 1, dtype=torch.int32), starts.diff())
        tokens = max(step.num_actual_tokens, len(requests))
        if tokens > len(buffer):
            accepts = f"up to {len(buffer)}, the engine's max_num_batched_tokens"
            raise ValueRangeError("common_attn_metadata.num_actual_tokens", str(tokens), accepts)
        buffer.zero_()
        buffer[: len(requests)].copy_(requests, non_blocking=True)
        return buffer[: step.num_actual_tokens]

    def _fp8_metadata(self, num_tokens: int) -> FlashMLASparseMetadata.FP8KernelMetadata:
        scheduled, num_splits = self._schedule(num_tokens)
        self.tile_scheduler_metadata_buffer.copy_(scheduled)
        self.num_splits_buffer.copy_(num_splits)
        return FlashMLASparseMetadata.FP8KernelMetadata(
            scheduler_metadata=self.tile_scheduler_metadata_buffer,
            num_splits=self.num_splits_buffer,
            dummy_block_table=self.dummy_block_table,
            cache_lens=self.max_model_len_tensor,
        )

    def _schedule(self, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        return get_mla_metadata(
            cache_seqlens=self.topk_tokens_tensor,
            num_q_tokens_per_head_k=max(num_tokens, 1) * self.num_heads,
            num_heads_k=1,
            num_heads_q=self.num_heads,
            is_fp8_kvcache=True,
            topk=self.topk_tokens,
        )

    def _int32(self, values: list[Any]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)
