"""One rank with a GPU: ``python -m tests.gpu.distributed.worker TASK EXCHANGE FILE RANK WORLD DEVICE``.

It exits with 0 where the task ends as it should, and with ``LACKS`` where the devices cannot use the exchange.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec

import mla_kernels as mla
import pytest
import torch
import torch.distributed as dist
from mla_kernels.distributed import ContextParallel, Step, context_parallel
from mla_kernels.distributed.symmetric_memory import ByPeerKernels
from mla_kernels.errors import GroupError, MlaError
from torch import Tensor

from tests.gpu.support.tensors import set_all_bits
from tests.support.compare import DENSE, LSE, assert_close

PAGE, WIDTH, SCALE = 64, 576, 192**-0.5
LACKS = 77
LAYERS, REPLAYS = 6, 50
TIME_OUT = timedelta(seconds=60)
SHORT_TIME_OUT = timedelta(seconds=2)
CLOCKS = 200_000
"""Some 100 us, in which a device does nothing."""


@dataclass(frozen=True)
class Problem:
    """A step of all ranks, whose tensors every rank makes alike; ``heads`` are those of all ranks."""

    lengths: tuple[int, ...]
    heads: int = 128
    q_len: int = 1

    def queries(self, number: int) -> Tensor:
        """Return the queries of so many layers."""
        torch.manual_seed(self.heads + self.q_len)
        return torch.randn(number, len(self.lengths), self.q_len, self.heads, WIDTH).bfloat16().cuda()

    def rows(self) -> Tensor:
        """Return the keys of all requests [batch, tokens, width]; those past a request's length are NaN."""
        torch.manual_seed(len(self.lengths))
        width = max(1, -(-max(self.lengths) // PAGE)) * PAGE
        rows = (torch.randn(len(self.lengths), width, WIDTH) / 4).bfloat16()
        for request, length in enumerate(self.lengths):
            rows[request, length:] = torch.nan
        return rows.cuda()

    def part(self, rank: int, world_size: int) -> tuple[Tensor, Tensor]:
        """Return the rank's pages and their table; every other page, and an additional one, is NaN."""
        pages = self.rows().view(len(self.lengths), -1, PAGE, WIDTH)
        own = pages[:, rank::world_size]
        cache = torch.full((len(pages), own.shape[1] + 1, PAGE, WIDTH), torch.nan, dtype=pages.dtype, device="cuda")
        cache[:, : own.shape[1]] = own
        table = torch.arange(cache.shape[0] * cache.shape[1], dtype=torch.int32, device="cuda")
        return cache.flatten(0, 1), table.view(cache.shape[:2])

    def seq_lens(self) -> Tensor:
        return torch.tensor(self.lengths, dtype=torch.int32, device="cuda")

    def want(self, queries: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return what one device gives."""
        rows = self.rows()
        pages = rows.view(-1, PAGE, WIDTH)
        table = torch.arange(len(pages), dtype=torch.int32, device="cuda").view(len(rows), -1)
        return [mla.decode(q, pages, table, self.seq_lens(), softmax_scale=SCALE) for q in queries]


PROBLEMS = (
    Problem((3000,)),
    Problem((3000, 20, 0, 641, 64)),
    Problem((20,), q_len=2),
    Problem((129, 1, 65, 2000, 64), q_len=2, heads=64),
    Problem((129, 2, 4097, 64), q_len=4),
    Problem((5000, 100), heads=64),
    Problem((200,) * 33),
    Problem((700, 3, 90, 64, 0, 1, 65), heads=100),
)
"""Requests that leave ranks without tokens are among them."""


class Rank:
    """A rank of a group in a problem."""

    def __init__(self, problem: Problem, parallel: ContextParallel, layers: int) -> None:
        self.problem, self.parallel = problem, parallel
        queries = problem.queries(layers)
        heads = problem.heads // parallel.world_size
        self.own = slice(parallel.rank * heads, (parallel.rank + 1) * heads)
        self.queries = queries[..., self.own, :].contiguous()
        self.want = problem.want(queries)
        self.cache, self.table = problem.part(parallel.rank, parallel.world_size)
        self.step: Step = parallel.step(self.queries[0], self.cache, self.table, problem.seq_lens())
        assert isinstance(self.step.exchange, ByPeerKernels) is parallel.has_triton
        self.poison()

    def poison(self) -> None:
        """Set all bits of what ranks exchange by, while no rank uses it."""
        torch.cuda.synchronize()
        for each in self.parallel._workspaces._workspaces:
            set_all_bits(each.buffer.get_buffer(self.parallel.rank, (each.bytes,), torch.uint8))
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()

    def layer(self, q: Tensor) -> tuple[Tensor, Tensor]:
        return self.parallel.decode(q, self.cache, self.step, softmax_scale=SCALE)

    def rest(self, turn: int) -> None:
        """Make one rank after the other late."""
        if turn % (self.parallel.world_size + 1) == self.parallel.rank:
            torch.cuda._sleep(CLOCKS)

    def compare(self, got: list[tuple[Tensor, Tensor]]) -> None:
        """Compare layers with one device's; partial results are rounded once more than those."""
        for layer, ((out, lse), (want, want_lse)) in enumerate(zip(got, self.want, strict=True)):
            name = f"{self.problem}, layer {layer}, rank {self.parallel.rank}: "
            assert_close(f"{name}out", out, want[:, :, self.own], DENSE.widened(2))
            assert_close(f"{name}lse", lse, want_lse[:, self.own], LSE.widened(2))


def results(parallel: ContextParallel) -> None:
    """Layers with other queries each, of all problems in turn, none of which waits for the host."""
    ranks = [Rank(problem, parallel, LAYERS) for problem in PROBLEMS]
    got: list[list[tuple[Tensor, Tensor]]] = [[] for _ in ranks]
    for layer in range(LAYERS):
        for turn, rank in enumerate(ranks):
            rank.rest(layer + turn)
            got[turn].append(rank.layer(rank.queries[layer]))
    torch.cuda.synchronize()
    for rank, layers in zip(ranks, got, strict=True):
        rank.compare(layers)


def replays(parallel: ContextParallel) -> None:
    """A graph of three layers, each time with other queries."""
    for problem in PROBLEMS[1:4]:
        rank = Rank(problem, parallel, 3 * REPLAYS)
        places = rank.queries[:3].clone()
        for q in places:
            rank.layer(q)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [rank.layer(q) for q in places]
        rank.poison()
        got = []
        for replay in range(REPLAYS):
            places.copy_(rank.queries[3 * replay : 3 * replay + 3])
            rank.rest(replay)
            graph.replay()
            got += [(out.clone(), lse.clone()) for out, lse in outputs]
        torch.cuda.synchronize()
        rank.compare(got)


def collectives_on_another_stream(parallel: ContextParallel) -> None:
    """Layers while another stream adds numbers of all ranks, of which another rank is late each time."""
    rank = Rank(PROBLEMS[1], parallel, REPLAYS)
    other, counts = torch.cuda.Stream(), torch.ones(REPLAYS, 1 << 16, device="cuda")
    # A kernel is loaded at its first launch, and the host then waits for its device. No rank may do so in the loop: the
    # other ranks would wait on their devices in the all-reduce, which holds multiprocessors that the layer needs.
    torch.cuda._sleep(1)
    rank.layer(rank.queries[0])
    dist.all_reduce(counts[0].clone())
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    got = []
    for layer in range(REPLAYS):
        rank.rest(layer)
        got.append(rank.layer(rank.queries[layer]))
        with torch.cuda.stream(other):
            rank.rest(layer + 1)
            dist.all_reduce(counts[layer])
    torch.cuda.synchronize()
    assert torch.equal(counts, torch.full_like(counts, parallel.world_size))
    rank.compare(got)


def a_lost_rank(parallel: ContextParallel) -> None:
    """The last rank ends after the step; the others' devices stop when the time-out is over."""
    rank = Rank(PROBLEMS[0], parallel, 1)
    if parallel.rank == parallel.world_size - 1:
        time.sleep(1)  # until the others have left the last barrier of the group
        return
    begin = time.monotonic()

    def layer() -> None:
        rank.layer(rank.queries[0])  # it raises already where it launches late
        torch.cuda.synchronize()

    with pytest.raises((RuntimeError, MlaError), match=r"CUDA|cuda"):
        layer()
    assert time.monotonic() - begin < 10 * SHORT_TIME_OUT.total_seconds()


TASKS = {task.__name__: task for task in (results, replays, collectives_on_another_stream, a_lost_rank)}


def main(task: str, exchange: str, file: str, rank: int, world_size: int, device: int) -> None:
    """Join the group and do the task."""
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=world_size, timeout=TIME_OUT)
    timeout = SHORT_TIME_OUT if task == "a_lost_rank" else TIME_OUT
    try:
        with pytest.MonkeyPatch.context() as patch:
            if exchange == "copies":  # symmetric memory where Triton does not work
                exchange = "symmetric_memory"
                patch.setattr(context_parallel, "have_triton", lambda group, device: False)
                expects_kernels = False
            else:
                expects_kernels = exchange == "symmetric_memory" and find_spec("triton") is not None
            parallel = ContextParallel(interleave=PAGE, exchange=exchange, timeout=timeout)  # type: ignore[arg-type]
    except GroupError as error:
        print(error, flush=True)
        os._exit(LACKS)
    assert parallel.has_triton is expects_kernels
    TASKS[task](parallel)
    os._exit(0)  # a group whose rank is lost cannot be taken down


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
