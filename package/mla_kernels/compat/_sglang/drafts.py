"""A draft model's decode of several tokens in a row, one a step; to import this is to import SGLang."""

# mypy: disable-error-code="misc"
# (SGLang is not installed where types are checked, so that its classes are of any type)

from __future__ import annotations

from typing import Any

from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

from mla_kernels.compat._sglang.backend import surroundings
from mla_kernels.compat._sglang.decoding import Decoding
from mla_kernels.compat._sglang.serving import kernels_for
from mla_kernels.compat._sglang.steps import NewTokens, Step, Steps


class DraftStepBackend(Decoding, AttentionBackend):
    """The attention of one step; ``MultiStepDraftBackend`` prepares it.

    Parameters
    ----------
    model_runner : ModelRunner
        That of the draft model.
    """

    def __init__(self, model_runner: Any) -> None:
        super().__init__()
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.page_size = model_runner.page_size
        self.data_type = model_runner.kv_cache_dtype


class MultiStepDraftBackend:
    """The attention of every step that drafts one more token; the last token is drafted without one.

    Parameters
    ----------
    model_runner : ModelRunner
        That of the draft model.
    topk : int
        Drafts of each step; SGLang's number for the server, which is 1.
    speculative_num_steps : int
        How many tokens are drafted of each request.

    Attributes
    ----------
    attn_backends : list of DraftStepBackend
        One for each step.

    Raises
    ------
    InvalidArgumentError
        No kernel serves the draft model, its cache or the GPU; the message says what would be served.
    """

    needs_cpu_seq_lens: bool = False

    def __init__(self, model_runner: Any, topk: int, speculative_num_steps: int) -> None:
        around = surroundings(model_runner)
        kernels = kernels_for(model_runner, around)
        self.topk = topk
        self.speculative_num_steps = speculative_num_steps
        self.attn_backends = [DraftStepBackend(model_runner) for _ in range(speculative_num_steps - 1)]
        # SGLang's lengths are those before the first step, which writes a token and sees it.
        self._new = [NewTokens(1, uncounted=step + 1) for step in range(len(self.attn_backends))]
        slots = model_runner.req_to_token_pool.req_to_token
        self._steps = Steps(kernels, slots, model_runner.page_size, around.deterministic)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare all steps without a CUDA graph."""
        self._hand_out(self._steps.eager(forward_batch, *self._new))

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Allocate what CUDA graphs of up to ``max_bs`` requests read."""
        self._steps.allocate(max_bs, len(self.attn_backends))

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Prepare all steps that one CUDA graph is captured with or replayed for."""
        self._hand_out(self._steps.captured(forward_batch, *self._new))

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """Prepare nothing within a graph."""

    def _hand_out(self, steps: tuple[Step, ...]) -> None:
        for backend, step in zip(self.attn_backends, steps, strict=True):
            backend.forward_metadata = step
