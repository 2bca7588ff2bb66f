"""A step's metadata: page table, lengths and plan, made on the device and without waiting for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mla_kernels.kernels.base import Kernel, Plan


@dataclass(frozen=True, slots=True)
class Step:
    """What every layer of a step launches by.

    Attributes
    ----------
    kernel : Kernel
    plan : Plan
    table : tensor
        ``int32 [batch, pages]``.
    lengths : tensor
        ``int32 [batch]``, the new tokens included.
    """

    kernel: Kernel
    plan: Plan
    table: torch.Tensor
    lengths: torch.Tensor


class Buffers:
    """A page table and lengths that steps are written to; a CUDA graph reads them where they lie.

    Attributes
    ----------
    table : tensor
        ``int32 [requests, pages]``.
    lengths : tensor
        ``int32 [requests]``.
    """

    def __init__(self, requests: int, pages: int, device: torch.device) -> None:
        self.table = torch.zeros(requests, pages, dtype=torch.int32, device=device)
        self.lengths = torch.ones(requests, dtype=torch.int32, device=device)


class Steps:
    """Makes the steps of one backend.

    Parameters
    ----------
    kernels : Mapping[int, Kernel]
        By the number of new tokens of each request.
    req_to_token : tensor
        ``int32 [requests, tokens]``: the slot of each token, by SGLang's pool of requests.
    page_size : int
    batch_invariant : bool
        Whether the splits of a request depend on its own length only.
    """

    def __init__(
        self, kernels: Mapping[int, Kernel], req_to_token: torch.Tensor, page_size: int, batch_invariant: bool
    ) -> None:
        self._kernels = kernels
        self._first_slots = req_to_token[:, ::page_size]
        self._page_size = page_size
        self._batch_invariant = batch_invariant
        # A graph reads the buffer of the plan that it was captured with: one of its shape is refreshed in place.
        self._plans: dict[tuple[int, int], Plan] = {}
        self._graphs: Buffers | None = None
        self._eager = Buffers(0, 0, req_to_token.device)

    def allocate(self, requests: int) -> None:
        """Make the buffers that CUDA graphs of up to so many requests read."""
        self._graphs = Buffers(requests, self._first_slots.shape[1], self._first_slots.device)

    def captured(self, forward_batch: Any, drafted: int) -> Step:
        """A step that a graph is captured with or replayed for; ``allocate`` comes before it."""
        assert self._graphs is not None, "SGLang calls init_cuda_graph_state first"
        return self._made(forward_batch, drafted, self._graphs)

    def eager(self, forward_batch: Any, drafted: int) -> Step:
        """A step without a graph."""
        requests, pages = self._eager.table.shape
        needed = self._pages(forward_batch, drafted)
        if requests < forward_batch.batch_size or pages < needed:
            requests, pages = max(requests, forward_batch.batch_size), max(pages, needed)
            self._eager = Buffers(requests, pages, self._first_slots.device)
        return self._made(forward_batch, drafted, self._eager)

    def _pages(self, forward_batch: Any, drafted: int) -> int:
        """Columns of the table that the step's requests reach; all of them where the host does not know lengths."""
        every, lengths = self._first_slots.shape[1], forward_batch.seq_lens_cpu
        if lengths is None:
            return int(every)
        longest = int(lengths.max()) + drafted
        return min(int(every), -(-longest // self._page_size))

    def _made(self, forward_batch: Any, drafted: int, buffers: Buffers) -> Step:
        """A step of decodes, or of so many drafts of each request, which SGLang's lengths do not count."""
        batch, pages = forward_batch.batch_size, self._pages(forward_batch, drafted)
        lengths, table = buffers.lengths[:batch], buffers.table[:batch]
        torch.add(forward_batch.seq_lens[:batch], drafted, out=lengths)
        # Columns behind the last page of a request hold slots of earlier ones; no kernel reads them.
        slots = self._first_slots[:, :pages].index_select(0, forward_batch.req_pool_indices[:batch])
        torch.div(slots, self._page_size, rounding_mode="floor", out=table[:, :pages])
        q_len = max(1, drafted)
        kernel = self._kernels[q_len]
        plan = kernel.plan(lengths, batch_invariant=self._batch_invariant, out=self._plans.get((batch, q_len)))
        self._plans[batch, q_len] = plan
        return Step(kernel, plan, table, lengths)
