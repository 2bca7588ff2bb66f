"""Dense MLA as an attention backend of SGLang; to import this is to import SGLang.

Decode, the verification of drafts and the extension of a draft model's cache are this package's. Prefill is that of the
class beneath, which SGLang's FlashMLA backend hands it to as well.
"""

# mypy: disable-error-code="misc"
# (SGLang is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.configs.model_config import is_deepseek_dsa
from sglang.srt.layers.attention.flashinfer_mla_backend import FlashInferMLAAttnBackend
from sglang.srt.layers.attention.verify_mask import maybe_create_verify_mask
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec
from sglang.srt.speculative.ragged_verify import resolve_ragged_verify_layout

from mla_kernels.compat._sglang.decoding import Decoding
from mla_kernels.compat._sglang.names import NAME
from mla_kernels.compat._sglang.serving import Surroundings, kernels_for, require_deterministic
from mla_kernels.compat._sglang.steps import NewTokens, Ragged, Steps


def surroundings(model_runner: Any) -> Surroundings:
    """What SGLang keeps for the process of a model runner."""
    parallel = get_parallel()
    return Surroundings(
        name=NAME,
        tensor_parallel=parallel.attn_tp_size,
        context_parallel=parallel.attn_dcp_size,
        speculative=get_spec(),
        sparse=is_deepseek_dsa(model_runner.model_config.hf_config),
        deterministic=bool(get_exec().deterministic.enable_deterministic_inference),
    )


class MlaKernelsBackend(Decoding, FlashInferMLAAttnBackend):
    """The attention of one model runner.

    Parameters
    ----------
    model_runner : ModelRunner
    skip_prefill : bool
    kv_indptr_buf, q_indptr_decode_buf : tensor, optional
        Buffers of the class beneath.
    prefill : str, optional
        The name of the backend that prefills this runner's requests; by default what the runner was given.

    Raises
    ------
    InvalidArgumentError
        No kernel serves the model, its cache or the GPU; the message says what would be served.
    """

    supports_ragged_verify_graph: bool = True

    def __init__(
        self,
        model_runner: Any,
        skip_prefill: bool = False,
        kv_indptr_buf: torch.Tensor | None = None,
        q_indptr_decode_buf: torch.Tensor | None = None,
        *,
        prefill: str | None = None,
    ) -> None:
        around = surroundings(model_runner)
        # Before the class beneath allocates anything.
        require_deterministic(model_runner, prefill or model_runner.prefill_attention_backend_str, around)
        kernels = kernels_for(model_runner, around)
        super().__init__(model_runner, skip_prefill, kv_indptr_buf, q_indptr_decode_buf)
        self.data_type = model_runner.kv_cache_dtype
        self._drafts = int(around.speculative.speculative_num_draft_tokens or 0)
        slots = model_runner.req_to_token_pool.req_to_token
        self._steps = Steps(kernels, slots, model_runner.page_size, around.deterministic)
        self._verify_mask = maybe_create_verify_mask(
            is_draft_runner=model_runner.is_draft_worker,
            skip_prefill=skip_prefill,
            max_bs=len(slots),
            max_context_len=self.max_context_len,
            num_draft_tokens=self._drafts,
            device=model_runner.device,
            is_read=False,
        )

    @property
    def verify_mask(self) -> Any:
        """Where SGLang writes a mask, which no chain needs; without it, it allocates one for the longest context."""
        return self._verify_mask

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare a step without a CUDA graph."""
        new = self._new_tokens(forward_batch)
        if new is None:
            super().init_forward_metadata(forward_batch)
        elif forward_batch.batch_size:
            (self.forward_metadata,) = self._steps.eager(forward_batch, new)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Allocate what CUDA graphs of up to ``max_bs`` requests read."""
        self._steps.allocate(max_bs)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Prepare a step that a CUDA graph is captured with or replayed for; the graph itself prepares nothing."""
        new = self._new_tokens(forward_batch)
        if new is None:
            super().init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)
        else:
            (self.forward_metadata,) = self._steps.captured(forward_batch, new)

    def forward_extend(  # noqa: PLR0917 (the signature is theirs)
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        q_rope: torch.Tensor | None = None,
        k_rope: torch.Tensor | None = None,
    ) -> Any:
        """Verify drafts or extend a draft model's cache, or leave a prefill to the class beneath."""
        mode = forward_batch.forward_mode
        if not mode.is_target_verify() and not mode.is_draft_extend_v2():
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, q_rope, k_rope)
        return self.forward_decode(q, k, v, layer, forward_batch, save_kv_cache, q_rope, k_rope)

    def _new_tokens(self, forward_batch: Any) -> NewTokens | None:
        """The new tokens of each request of a step; None for a prefill."""
        mode = forward_batch.forward_mode
        if mode.is_decode_or_idle():
            return NewTokens(1)
        if mode.is_target_verify():
            return NewTokens(self._drafts, self._drafts, self._ragged(forward_batch))
        # SGLang pads what a draft model is extended by to the number of draft tokens, and counts it.
        return NewTokens(self._drafts) if mode.is_draft_extend_v2() else None

    def _ragged(self, forward_batch: Any) -> Ragged | None:
        """The drafts that a step verifies of each request, where their numbers differ."""
        layout, batch = resolve_ragged_verify_layout(forward_batch), forward_batch.batch_size
        if layout is None:
            return None
        if layout.bs != batch:
            layout = layout.padded_to_bucket(padded_bs=batch, cap=self._drafts)
        return Ragged(layout.verify_lens, layout.qo_indptr_device)
