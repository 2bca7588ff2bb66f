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
        q_rope: torch.Tensor | None = None,
        k_rope: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write the new latents, and attend by absorbed queries.

        Parameters
        ----------
        q : tensor
            ``[tokens, heads, v_head_dim]`` where ``q_rope`` has the other columns, and ``[tokens, heads, head_dim]``
            where it is absent; in any order of memory.
        k : tensor, optional
            ``[tokens, 1, v_head_dim]`` where ``k_rope`` has the other columns, else ``[tokens, 1, head_dim]``.
        v : tensor, optional
        layer : RadixAttention
        forward_batch : ForwardBatch
        save_kv_cache : bool
        q_rope : tensor, optional
            ``[tokens, heads, head_dim - v_head_dim]``; of no columns for a model without rope.
        k_rope : tensor, optional
            ``[tokens, 1, head_dim - v_head_dim]``.

        Returns
        -------
        tensor
            Latents ``[tokens, heads * v_head_dim]``.
        """
        if k is not None and save_kv_cache:
            where = KVWriteLoc.for_batch(forward_batch)
            if k_rope is None:
                self.token_to_kv_pool.set_kv_buffer(layer, where, k, v)
            else:
                self.token_to_kv_pool.set_mla_kv_buffer(layer, where, k, k_rope)
        step = self.forward_metadata
        assert isinstance(step, Step)
        heads, tokens = layer.tp_q_head_num, q.shape[0]
        planned = tokens if step.bounds is not None else step.plan.batch * step.plan.q_len
        # Zeros stay where a token is of no request: a CUDA graph is padded with such, and, after SGLang prepared the
        # steps of drafts, the tokens of ranks that share experts are.
        padded = step.bounds is not None or tokens != planned
        out = (q.new_zeros if padded else q.new_empty)(tokens, heads, layer.v_head_dim)
        queries = [each[:planned] for each in (q, q_rope) if each is not None and each.shape[-1]]
        self._attend(queries, out[:planned], layer, step)
        return out.view(tokens, heads * layer.v_head_dim)

    def _attend(self, queries: list[torch.Tensor], out: torch.Tensor, layer: Any, step: Step) -> None:
        """Attend by a plan; queries, one tensor or two, and cache are read where they are."""
        if layer.logit_cap:
            raise UnsupportedError("logit_cap", f"{layer.logit_cap}", "0: dense MLA has no such thing")
        if (window := layer.sliding_window_size) > 0:
            raise UnsupportedError("sliding_window_size", f"{window}", "-1: a query sees every token before it")
        # One head of slots [slots, 1, head_dim]. SGLang writes an fp8 cache without a scale, so none is applied.
        cache = self.token_to_kv_pool.get_key_buffer(layer.layer_id)[:, 0].unflatten(0, (-1, self.page_size))
        shape = (step.plan.batch, step.plan.q_len) if step.bounds is None else (1, -1)
        widths = [layer.head_dim] if len(queries) == 1 else [layer.v_head_dim, layer.head_dim - layer.v_head_dim]
        rows = [each.view(*shape, layer.tp_q_head_num, width) for each, width in zip(queries, widths, strict=True)]
        step.kernel(
            rows[0] if len(rows) == 1 else tuple(rows),
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
