"""What each launch of a layer's exchange takes alone, in a CUDA graph of several, and how graphs of ranks are timed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from mla_kernels.diagnostics.bench.timing import Call
from mla_kernels.distributed.agreement import all_agree, device_of
from mla_kernels.distributed.collectives import Collectives
from mla_kernels.distributed.exchange import merge_records
from mla_kernels.distributed.records import LayerShape, Records
from mla_kernels.distributed.symmetric_memory import ByCopies, Workspaces, allocator
from mla_kernels.formats import HEAD_DIM, LATENT

Row = dict[str, float]
_CALLS = 40
"""Calls of a part in a graph."""
_REST = 1_000_000
"""Clocks, some 500 us, in which the host gets ahead of its device."""


def in_turns(calls: Mapping[str, Call], repeats: int, in_graph: int) -> dict[str, float]:
    """Microseconds of each call: the slowest rank's median over replays of a graph of several.

    The calls take turns, and each turn begins with another call, so that all have the clocks that the power of the
    devices allows. A replay is in the stream behind a collective that is behind a rest. So the ranks begin together,
    and no device waits for its host.
    """
    graphs = {name: _captured(call, in_graph) for name, call in calls.items()}
    for graph in graphs.values():
        graph.replay()  # the first one takes longer
    times: dict[str, list[float]] = {name: [] for name in graphs}
    names = list(graphs)
    together = torch.zeros(1, device="cuda")
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            torch.cuda._sleep(_REST)  # type: ignore[no-untyped-call]
            dist.all_reduce(together)
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1000 / in_graph)
    slowest = torch.tensor([statistics.median(each) for each in times.values()], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return dict(zip(times, slowest.tolist(), strict=True))


def _captured(call: Call, in_graph: int) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(in_graph):
            call()
    return graph


class Parts:
    """The tensors of a layer of some requests, and each launch that an exchange may have."""

    def __init__(self, batch: int, heads: int) -> None:
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        device = device_of(None)
        self.shape = LayerShape(self.ranks, heads // self.ranks, batch, HEAD_DIM, LATENT, torch.bfloat16, device)
        self.own = torch.zeros(self.shape.num_heads, batch, HEAD_DIM, dtype=torch.bfloat16, device=device)
        self.partials = Records(self.shape)
        self.partials.bytes.zero_()
        allocate, timeout = allocator(None, device), timedelta(seconds=60)
        self.buffer = allocate(self.ranks * max(self.shape.query_bytes, self.shape.partial_bytes))
        self.collectives = Collectives(self.shape, None)
        copies = Workspaces(self.rank, allocate, timeout).exchange(self.shape)
        assert isinstance(copies, ByCopies)
        self.copying = copies
        self.kernels = Workspaces(
            self.rank, allocate, timeout, agree=partial(all_agree, group=None, device=device)
        ).exchange(self.shape)

    def of_peer(self, peer: int, size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """A part of a rank's memory."""
        return self.buffer.get_buffer(peer, (size // dtype.itemsize,), dtype)

    def barrier(self) -> None:
        """The barrier alone."""
        self.buffer.barrier(0, 60_000)

    def copies(self) -> None:
        """Own queries to every rank, a copy for each."""
        for peer in range(self.ranks):
            self.of_peer(peer, self.shape.query_bytes, torch.bfloat16).copy_(self.own.view(-1))

    def copy_here(self) -> None:
        """Own queries within the device."""
        self.of_peer(self.rank, self.shape.query_bytes, torch.bfloat16).copy_(self.own.view(-1))

    def copy_there(self) -> None:
        """Own queries to one other rank."""
        self.of_peer((self.rank + 1) % self.ranks, self.shape.query_bytes, torch.bfloat16).copy_(self.own.view(-1))

    def pull(self) -> None:
        """What all ranks have of the own heads, in one concatenation."""
        torch.cat([self.of_peer(peer, self.shape.partial_bytes) for peer in range(self.ranks)])

    def by_collectives(self) -> object:
        """A layer without its attention."""
        self.collectives.gather(self.own)
        return self.collectives.merge(self.partials, None)

    def by_copies(self) -> object:
        """The same by symmetric memory where Triton does not work."""
        self.copying.gather(self.own)
        return self.copying.merge(self.partials, None)

    def by_kernels(self) -> object:
        """The same by symmetric memory and two kernels in Triton."""
        self.kernels.gather(self.own)
        return self.merge_by_kernel()

    def merge_by_kernel(self) -> object:
        """The second of the two kernels."""
        return self.kernels.merge(self.kernels.partials(), None)

    def push_queries(self) -> None:
        """Own queries to every rank, in one launch."""
        torch._foreach_copy_(self.copying.query_places, self.copying.cut_queries(self.own))

    def push_partials(self) -> None:
        """Partial results to the ranks of their heads, in one launch."""
        torch._foreach_copy_(self.copying.partial_places, self.copying.cut_partials(self.partials))

    def calls(self) -> dict[str, Call]:
        """Each launch by name."""
        peer = (self.rank + 1) % self.ranks
        there = Records(self.shape, self.of_peer(peer, self.ranks * self.shape.partial_bytes, torch.uint8))
        return {
            "barrier": self.barrier,
            "queries, one launch": self.push_queries,
            "queries, a copy a rank": self.copies,
            "a copy within the device": self.copy_here,
            "a copy to a peer": self.copy_there,
            "partials, one launch": self.push_partials,
            "partials, pulled": self.pull,
            "merge": lambda: merge_records(self.partials, self.shape),
            "merge of a peer's memory": lambda: merge_records(there, self.shape),
            "all-gather": lambda: self.collectives.gather(self.own),
            "all-to-all": lambda: self.collectives.send(self.partials),
            "collectives": self.by_collectives,
            "copies and barriers": self.by_copies,
            "kernel: queries": lambda: self.kernels.gather(self.own),
            "kernel: merge": self.merge_by_kernel,
            "kernels": self.by_kernels,
        }


def parts(batch: int, repeats: int, heads: int) -> Row:
    """Microseconds of each launch, of so many requests and heads of all ranks."""
    calls = Parts(batch, heads).calls()
    return {"batch": batch, **in_turns(calls, repeats, _CALLS)}
