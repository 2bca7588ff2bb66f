"""What each of our backends of SGLang does in a layer: write the new latents, and attend by the plan of the step."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from mla_kernels.compat._sglang.steps import Step
from mla_kernels.errors import UnsupportedError


class Decoding:
    """Decode of a step that is planned.

    Attributes
    ----------
    token_to_kv_pool : MLATokenToKVPool
    page_size : int
    forward_metadata : Step
    """

    needs_cpu_seq_lens: bool = False
    token_to_kv_pool: Any
    page_size: int
    forward_metadata: Any

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
        step = self.forward_metadata
        assert isinstance(step, Step)
        heads, tokens = layer.tp_q_head_num, q.shape[0]
        planned = tokens if step.bounds is not None else step.plan.batch * step.plan.q_len
        # Zeros stay where a token is of no request: a CUDA graph is padded with such, and, after SGLang prepared the
        # steps of drafts, the tokens of ranks that share experts are.
        padded = step.bounds is not None or tokens != planned
        out = (q.new_zeros if padded else q.new_empty)(tokens, heads, layer.v_head_dim)
        self._attend(q[:planned], out[:planned], layer, step)
        return out.view(tokens, heads * layer.v_head_dim)

    def _attend(self, q: torch.Tensor, out: torch.Tensor, layer: Any, step: Step) -> None:
        """Attend by a plan; queries and cache are read where they are."""
        if layer.logit_cap:
            raise UnsupportedError("logit_cap", f"{layer.logit_cap}", "0: dense MLA has no such thing")
        if (window := layer.sliding_window_size) > 0:
            raise UnsupportedError("sliding_window_size", f"{window}", "-1: a query sees every token before it")
        # One head of slots [slots, 1, head_dim]. SGLang writes an fp8 cache without a scale, so none is applied.
        cache = self.token_to_kv_pool.get_key_buffer(layer.layer_id)[:, 0].unflatten(0, (-1, self.page_size))
        shape = (step.plan.batch, step.plan.q_len) if step.bounds is None else (1, -1)
        step.kernel(
            q.view(*shape, layer.tp_q_head_num, layer.head_dim),
            cache,
            step.table,
            step.lengths,
            cu_seqlens_q=step.bounds,
            plan=step.plan,
            softmax_scale=layer.scaling,
            causal=True,
            out=out.view(*shape, layer.tp_q_head_num, layer.v_head_dim),
            lse=False,
        )
