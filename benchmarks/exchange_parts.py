"""What each launch of a layer's exchange takes alone, in a CUDA graph of several, and how graphs of ranks are timed."""

from __future__ import annotations

import statistics
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
CALLS = 40
"""Calls of a part in a graph, so that ranks that do not begin at once matter little."""


def replayed(call: Call, repeats: int, calls: int) -> float:
    """Microseconds of a call in a graph: the slowest rank's median over replays that all ranks begin together."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    for _ in range(repeats):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


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
    return {"batch": batch, **{name: replayed(call, repeats, CALLS) for name, call in calls.items()}}
