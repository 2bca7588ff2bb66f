"""One rank of a group of processes on the CPU: ``python -m tests.runtime.distributed.worker TASK RANK WORLD FILE``.

It exits with 0 where the task ends as it should.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import mla_kernels as mla
import pytest
import torch
import torch.distributed as dist
from mla_kernels.distributed import ContextParallel, agreement, context_parallel
from mla_kernels.errors import DTypeError, GroupError, InvalidArgumentError, ShapeError, ValueRangeError

from tests.runtime.distributed.stand_in import allocator_of_processes

PAGE = 16
SCALE = 192**-0.5
TIME_OUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Problem:
    """A step of all ranks, whose tensors every rank makes alike."""

    interleave: int
    lengths: tuple[int, ...] = (200, 0, 65, 1, 17)
    q_len: int = 1
    heads: int = 4
    d_qk: int = 576

    def check(self, rank: int, world_size: int) -> None:
        """Compare a rank's results with attention to the whole cache."""
        torch.manual_seed(len(self.lengths) + self.interleave)
        q = torch.randn(len(self.lengths), self.q_len, self.heads * world_size, self.d_qk)
        rows = torch.randn(len(self.lengths), max(self.lengths), self.d_qk) / 4
        seq_lens = torch.tensor(self.lengths, dtype=torch.int32)
        want, want_lse = mla.decode(q, rows, seq_lens=seq_lens, softmax_scale=SCALE)
        own = slice(rank * self.heads, (rank + 1) * self.heads)
        parallel = ContextParallel(interleave=self.interleave)
        cache, table = self.part(rows, rank, world_size)
        step = parallel.step(q[:, :, own], cache, table, seq_lens)
        for _ in range(2):  # layers share a step
            out, lse = parallel.decode(q[:, :, own], cache, step, softmax_scale=SCALE)
            torch.testing.assert_close(out, want[:, :, own], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(lse, want_lse[:, own], rtol=1e-5, atol=1e-5)

    def part(self, rows: torch.Tensor, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The rank's pages, in which everything else is NaN, and their table."""
        tokens = torch.arange(rows.shape[1])
        width = -(-rows.shape[1] // PAGE)
        cache = torch.full((len(rows), width, PAGE, rows.shape[2]), torch.nan)
        for request, length in enumerate(self.lengths):
            held = rows[request, :length][tokens[:length] // self.interleave % world_size == rank]
            cache[request].flatten(0, 1)[: len(held)] = held
        return cache.flatten(0, 1), torch.arange(len(rows) * width, dtype=torch.int32).view(len(rows), width)


def results(rank: int, world_size: int) -> None:
    """Every way in which tokens, heads and widths are distributed."""
    for interleave in (1, 5, PAGE, 64):
        Problem(interleave).check(rank, world_size)
    for interleave in (1, 5, PAGE):
        Problem(interleave, q_len=3, lengths=(200, 3, 65, 0, 2)).check(rank, world_size)
    Problem(PAGE, heads=80, lengths=(40, 100)).check(rank, world_size)
    Problem(1, q_len=2, heads=80, lengths=(40, 1)).check(rank, world_size)
    Problem(1, d_qk=320).check(rank, world_size)
    Problem(PAGE, d_qk=512, lengths=(1,) * 9).check(rank, world_size)


def unequal_shapes(rank: int, world_size: int) -> None:
    """A rank with other requests, heads or another type is named on every rank, with what differs."""
    parallel = ContextParallel(interleave=PAGE)
    first, last = rank == 0, rank == world_size - 1
    for batch, heads, columns, dtype, says in (
        (2 + last, 4, 576, torch.float32, ("batch 2", "batch 3")),
        (2, 4 + first, 576, torch.float32, ("heads 4", "heads 5")),
        (2, 4, 100 if last else 576, torch.float32, ("columns 100", "columns 576")),
        (2, 4, 576, torch.bfloat16 if first else torch.float32, ("dtype torch.float32", "dtype torch.bfloat16")),
    ):
        q, cache = torch.zeros(batch, 1, heads, columns, dtype=dtype), torch.zeros(2, PAGE, 576, dtype=dtype)
        table, lengths = torch.zeros(batch, 1, dtype=torch.int32), torch.ones(batch, dtype=torch.int32)
        with pytest.raises(ShapeError, match=r"got [a-z]+ [\w.]+; accepts what rank \d has: [a-z]+ [\w.]+$") as error:
            parallel.step(q, cache, table, lengths)
        assert all(each in str(error.value) for each in says)


def other_queries(rank: int, world_size: int) -> None:
    """Queries of which the step knows nothing are refused before a rank sends them."""
    q, cache = torch.zeros(2, 1, 4, 576), torch.zeros(2, PAGE, 576)
    table, lengths = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
    parallel = ContextParallel(interleave=PAGE)
    step = parallel.step(q, cache, table, lengths)
    for other in (q[:1], q[:, :, :3], q.half(), torch.zeros(2, 1, 4, 512)):
        with pytest.raises(ShapeError, match="step"):
            parallel.decode(other, cache, step, softmax_scale=SCALE)


def a_failed_layer(rank: int, world_size: int) -> None:
    """A rank whose layer ended between its exchanges goes no further; what is refused before them ends nothing."""
    q, cache = torch.zeros(2, 1, 4, 576).half(), torch.zeros(2, PAGE, 576).half()
    table, lengths = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
    parallel = ContextParallel(interleave=PAGE)
    step = parallel.step(q, cache, table, lengths)
    with pytest.raises(DTypeError, match=r"^out_dtype: got fp32; accepts torch.float16, the type of q$"):
        parallel.decode(q, cache, step, softmax_scale=SCALE, out_dtype="fp32")
    parallel.decode(q, cache, step, softmax_scale=SCALE, out_dtype=torch.float16)
    with pytest.raises(DTypeError, match="kv_cache"):
        parallel.decode(q, cache.float(), step, softmax_scale=SCALE)
    for later in (
        partial(parallel.step, q, cache, table, lengths),
        partial(parallel.decode, q, cache, step, softmax_scale=SCALE),
    ):
        with pytest.raises(GroupError, match=r"ended in an error \(kv_cache: .*make a new ContextParallel on every"):
            later()


def a_lost_rank(rank: int, world_size: int) -> None:
    """The last rank ends after the step; the others' next layer ends with an error."""
    q, cache = torch.zeros(2, 1, 4, 576), torch.zeros(2, PAGE, 576)
    table, lengths = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
    parallel = ContextParallel(interleave=PAGE)
    step = parallel.step(q, cache, table, lengths)
    if rank == world_size - 1:
        return
    with pytest.raises(GroupError, match="rank"):
        parallel.decode(q, cache, step, softmax_scale=SCALE)


def symmetric_memory(rank: int, world_size: int) -> None:
    """The same results where ranks write into each other's memory."""
    allocate = allocator_of_processes(Path(sys.argv[4]).parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context_parallel, "choose", lambda group, choice: "symmetric_memory")
        patch.setattr(context_parallel, "allocator", lambda group, device: allocate)
        Problem(PAGE).check(rank, world_size)
        Problem(PAGE, q_len=3, lengths=(200, 3, 65, 0, 2)).check(rank, world_size)
        Problem(PAGE, heads=80, lengths=(40, 100)).check(rank, world_size)
        Problem(1, d_qk=320).check(rank, world_size)


def choices(rank: int, world_size: int) -> None:
    """All ranks choose the same exchange, and none waits for one that cannot."""
    assert ContextParallel(interleave=1).exchange == "collectives"
    assert ContextParallel(interleave=1, exchange="collectives").exchange == "collectives"
    with pytest.raises(GroupError, match="ranks that cannot: 0, 1"):
        ContextParallel(interleave=1, exchange="symmetric_memory")
    with pytest.raises(ValueRangeError, match="rank"):
        ContextParallel(interleave=1, exchange="collectives" if rank == 0 else "auto")
    with pytest.raises(ValueRangeError, match="auto, collectives, symmetric_memory"):
        ContextParallel(interleave=1, exchange="nccl")
    with pytest.raises(ValueRangeError, match=f"interleave: got {2**30}; accepts less than .* all {world_size} ranks"):
        ContextParallel(interleave=2**30)
    with pytest.raises(ValueRangeError, match="timeout"):
        ContextParallel(interleave=1, timeout=timedelta())
    for interleave in (0, 1.5, "3"):
        with pytest.raises(InvalidArgumentError, match="interleave"):
            ContextParallel(interleave=interleave)  # type: ignore[arg-type]
    cache = {
        "kv_cache": torch.ones(1, PAGE, 576),
        "block_table": torch.zeros(1, 1).int(),
        "seq_lens": torch.ones(1).int(),
    }
    step = partial(ContextParallel(interleave=1).step, **cache)
    for q in (torch.ones(1, 1, 4, 100), torch.ones(1, 4, 576), (torch.ones(1, 1, 4, 512), torch.ones(1, 1, 4, 64))):
        with pytest.raises(InvalidArgumentError, match=r"^q: got"):
            step(q)
    for obstacle, failure in ((0, -1), (-1, world_size - 1), (-1, -1)):
        own_obstacle, own_failure = ("wall" if rank == blocked else None for blocked in (obstacle, failure))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agreement, "_obstacle", lambda *_, reason=own_obstacle: reason)
            patch.setattr(agreement, "_failure", lambda *_, reason=own_failure: reason)
            works = obstacle == failure
            assert agreement.choose(None, "auto") == ("symmetric_memory" if works else "collectives")
            if works:
                assert agreement.choose(None, "symmetric_memory") == "symmetric_memory"
                continue
            unable = max(obstacle, failure)
            told = "wall" if rank == unable else f"see the message of rank {unable}"
            with pytest.raises(GroupError, match=told):
                agreement.choose(None, "symmetric_memory")


TASKS = {
    task.__name__: task
    for task in (results, symmetric_memory, choices, unequal_shapes, other_queries, a_failed_layer, a_lost_rank)
}


def main(task: str, rank: int, world_size: int, file: str) -> None:
    """Join the group and do the task."""
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world_size, timeout=TIME_OUT)
    TASKS[task](rank, world_size)
    os._exit(0)  # threads of the group may still wait for a rank that is lost


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
