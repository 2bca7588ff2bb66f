"""A step's metadata: page table, lengths and plan, made on the device and without waiting for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    bounds : tensor, optional
        ``int32 [batch + 1]``: where the new tokens of each request begin, if it does not have ``q_len`` of them.
    """

    kernel: Kernel
    plan: Plan
    table: torch.Tensor
    lengths: torch.Tensor
    bounds: torch.Tensor | None


class Ragged(NamedTuple):
    """Numbers of new tokens that differ between requests.

    Attributes
    ----------
    counts : tensor
        ``int32 [batch]``; SGLang's lengths leave these tokens out.
    bounds : tensor
        ``int32 [batch + 1]``: where the tokens of each request begin.
    """

    counts: torch.Tensor
    bounds: torch.Tensor


class NewTokens(NamedTuple):
    """The new tokens of each request of a step.

    Attributes
    ----------
    q_len : int
        The most of a request, where they differ.
    uncounted : int
        How many tokens at most, new ones or those of steps before, SGLang's lengths leave out.
    ragged : Ragged, optional
    """

    q_len: int
    uncounted: int = 0
    ragged: Ragged | None = None


class Buffers:
    """A page table, bounds, and lengths for each step, which a CUDA graph reads where they lie.

    Attributes
    ----------
    table : tensor
        ``int32 [requests, pages]``.
    lengths : tensor
        ``int32 [steps, requests]``.
    bounds : tensor
        ``int32 [requests + 1]``.
    """

    def __init__(self, steps: int, requests: int, pages: int, device: torch.device) -> None:
        self.table = torch.zeros(requests, pages, dtype=torch.int32, device=device)
        self.lengths = torch.ones(steps, requests, dtype=torch.int32, device=device)
        self.bounds = torch.zeros(requests + 1, dtype=torch.int32, device=device)


class Steps:
    """Makes the steps of one model runner.

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
        self._plans: dict[tuple[int, int, int, bool], Plan] = {}
        self._graphs: Buffers | None = None
        self._eager = Buffers(0, 0, 0, req_to_token.device)

    def allocate(self, requests: int, steps: int = 1) -> None:
        """Make the buffers that CUDA graphs of up to so many requests, and of so many steps in a row, read."""
        self._graphs = Buffers(steps, requests, self._first_slots.shape[1], self._first_slots.device)

    def captured(self, forward_batch: Any, *new: NewTokens) -> tuple[Step, ...]:
        """Steps that a graph is captured with or replayed for, one for each of ``new``; ``allocate`` comes before."""
        assert self._graphs is not None, "SGLang calls init_cuda_graph_state first"
        return self._made(forward_batch, new, self._graphs)

    def eager(self, forward_batch: Any, *new: NewTokens) -> tuple[Step, ...]:
        """Steps without a graph, one for each of ``new``."""
        held = (len(self._eager.lengths), *self._eager.table.shape)
        needed = (len(new), forward_batch.batch_size, self._pages(forward_batch, new))
        if any(has < needs for has, needs in zip(held, needed, strict=True)):
            steps, requests, pages = map(max, held, needed)
            self._eager = Buffers(steps, requests, pages, self._first_slots.device)
        return self._made(forward_batch, new, self._eager)

    def _pages(self, forward_batch: Any, new: Sequence[NewTokens]) -> int:
        """Columns of the table that the requests reach; all of them where the host does not know lengths."""
        every, lengths = self._first_slots.shape[1], forward_batch.seq_lens_cpu
        if lengths is None:
            return int(every)
        longest = int(lengths.max()) + max(each.uncounted for each in new)
        return min(int(every), -(-longest // self._page_size))

    def _made(self, forward_batch: Any, new: Sequence[NewTokens], buffers: Buffers) -> tuple[Step, ...]:
        """Steps in a row, which share one page table."""
        batch, pages = forward_batch.batch_size, self._pages(forward_batch, new)
        table = buffers.table[:batch]
        # Columns behind the last page of a request hold slots of earlier ones; no kernel reads them.
        slots = self._first_slots[:, :pages].index_select(0, forward_batch.req_pool_indices[:batch])
        torch.div(slots, self._page_size, rounding_mode="floor", out=table[:, :pages])
        steps = []
        for number, (q_len, uncounted, ragged) in enumerate(new):
            lengths = buffers.lengths[number, :batch]
            torch.add(forward_batch.seq_lens[:batch], uncounted if ragged is None else ragged.counts, out=lengths)
            bounds = None if ragged is None else buffers.bounds[: batch + 1].copy_(ragged.bounds)
            kernel, shape = self._kernels[q_len], (number, batch, q_len, ragged is not None)
            plan = kernel.plan(
                lengths,
                batch_invariant=self._batch_invariant,
                max_q_len=None if ragged is None else q_len,
                out=self._plans.get(shape),
            )
            self._plans[shape] = plan
            steps.append(Step(kernel, plan, table, lengths, bounds))
        return tuple(steps)
