"""Dense MLA as an attention backend of SGLang; to import this is to import SGLang.

Decode and the verification of drafts are this package's. Prefill is that of the class beneath, which SGLang's FlashMLA
backend hands it to as well.
"""

# mypy: disable-error-code="misc"
# (SGLang is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.configs.model_config import is_deepseek_dsa
from sglang.srt.layers.attention.flashinfer_mla_backend import FlashInferMLAAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

from mla_kernels.compat._sglang.names import NAME
from mla_kernels.compat._sglang.serving import Surroundings, kernels_for
from mla_kernels.compat._sglang.steps import Step, Steps
from mla_kernels.errors import UnsupportedError


class MlaKernelsBackend(FlashInferMLAAttnBackend):
    """The attention of one model runner.

    Parameters
    ----------
    model_runner : ModelRunner
    skip_prefill : bool
    kv_indptr_buf, q_indptr_decode_buf : tensor, optional
        Buffers of the class beneath.

    Raises
    ------
    InvalidArgumentError
        No kernel serves the model, its cache or the GPU; the message says what would be served.
    """

    needs_cpu_seq_lens: bool = False
    # A verification has as many drafts for each request.
    supports_ragged_verify_graph: bool = False

    def __init__(
        self,
        model_runner: Any,
        skip_prefill: bool = False,
        kv_indptr_buf: torch.Tensor | None = None,
        q_indptr_decode_buf: torch.Tensor | None = None,
    ) -> None:
        asked, parallel = get_spec(), get_parallel()
        sparse = is_deepseek_dsa(model_runner.model_config.hf_config)
        around = Surroundings(NAME, parallel.attn_tp_size, parallel.attn_dcp_size, asked, sparse)
        # Before the class beneath allocates anything.
        kernels = kernels_for(model_runner, around)
        super().__init__(model_runner, skip_prefill, kv_indptr_buf, q_indptr_decode_buf)
        self.data_type = model_runner.kv_cache_dtype
        self._drafts = int(asked.speculative_num_draft_tokens or 0)
        slots = model_runner.req_to_token_pool.req_to_token
        invariant = bool(get_exec().deterministic.enable_deterministic_inference)
        self._steps = Steps(kernels, slots, model_runner.page_size, invariant)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare a step without a CUDA graph."""
        drafted = self._drafted(forward_batch)
        if drafted is None:
            super().init_forward_metadata(forward_batch)
        elif forward_batch.batch_size:
            self.forward_metadata = self._steps.eager(forward_batch, drafted)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Allocate what CUDA graphs of up to ``max_bs`` requests read."""
        self._steps.allocate(max_bs)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Prepare a step that a CUDA graph is captured with or replayed for; the graph itself prepares nothing."""
        drafted = self._drafted(forward_batch)
        if drafted is None:
            super().init_forward_metadata_out_graph(forward_batch, in_capture=in_capture)
        else:
            self.forward_metadata = self._steps.captured(forward_batch, drafted)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """The length of requests that pad a graph's batch."""
        return 1

    def forward_decode(  # noqa: PLR0917 (the signature is theirs)
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> torch.Tensor:
        """Latents ``[tokens, heads * v_head_dim]`` of absorbed queries ``[tokens, heads, head_dim]``."""
        if k is not None and save_kv_cache:
            self.token_to_kv_pool.set_kv_buffer(layer, KVWriteLoc.for_batch(forward_batch), k, v)
        return self._attend(q, layer)

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
        """Verify drafts, or leave a prefill to the class beneath."""
        if not forward_batch.forward_mode.is_target_verify():
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, q_rope, k_rope)
        return self.forward_decode(q, k, v, layer, forward_batch, save_kv_cache)

    def _drafted(self, forward_batch: Any) -> int | None:
        """Drafts that the step verifies of each request, 0 for ordinary decode, and None for a prefill."""
        if forward_batch.forward_mode.is_decode_or_idle():
            return 0
        return self._drafts if forward_batch.forward_mode.is_target_verify() else None

    def _attend(self, q: torch.Tensor, layer: Any) -> torch.Tensor:
        """Attend by this step's plan; queries and cache are read where they are."""
        if layer.logit_cap:
            raise UnsupportedError("logit_cap", f"{layer.logit_cap}", "0: dense MLA has no such thing")
        if (window := layer.sliding_window_size) > 0:
            raise UnsupportedError("sliding_window_size", f"{window}", "-1: a query sees every token before it")
        step = self.forward_metadata
        assert isinstance(step, Step)
        # One head of slots [slots, 1, head_dim]. SGLang writes an fp8 cache without a scale, so none is applied.
        cache = self.token_to_kv_pool.get_key_buffer(layer.layer_id)[:, 0].unflatten(0, (-1, self.page_size))
        out: torch.Tensor
        out, _ = step.kernel(
            q.view(step.plan.batch, step.plan.q_len, layer.tp_q_head_num, layer.head_dim),
            cache,
            step.table,
            step.lengths,
            plan=step.plan,
            softmax_scale=layer.scaling,
            causal=True,
            lse=False,
        )
        return out.view(-1, layer.tp_q_head_num * layer.v_head_dim)
