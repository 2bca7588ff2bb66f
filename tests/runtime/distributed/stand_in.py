"""What stands in for torch's symmetric memory where there is no GPU: memory that ranks share, and a real barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import torch
import torch.distributed as dist

MOST_SECONDS = 60


class Shared:
    """As much memory of each rank, and what makes a rank wait for the others."""

    def __init__(self, memory: Sequence[torch.Tensor], wait: Callable[[], object]) -> None:
        self.memory = memory
        self.wait = wait

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        elements = self.memory[rank].view(dtype)
        assert storage_offset + prod(sizes) <= len(elements)
        return elements[storage_offset : storage_offset + prod(sizes)].view(*sizes)

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        assert timeout_ms > 0
        self.wait()


class Threads:
    """Ranks that are threads of this process; each has a ``Rank``."""

    def __init__(self, world_size: int) -> None:
        self.meeting = threading.Barrier(world_size, timeout=MOST_SECONDS)
        self.memory: list[list[torch.Tensor]] = []
        self.world_size = world_size


class Rank:
    """A thread that may stop for a moment at one point, and may go past one of the two barriers of a layer."""

    def __init__(self, threads: Threads, rank: int, pause: Callable[[str], None], removed: str | None = None) -> None:
        self.threads = threads
        self.rank = rank
        self.pause = pause
        self.removed = removed
        self.barriers = 0
        self.allocations = 0

    def allocate(self, size: int) -> Shared:
        if self.rank == 0:
            self.threads.memory.append(
                [torch.full((size,), 255, dtype=torch.uint8) for _ in range(self.threads.world_size)]
            )
        self.threads.meeting.wait()
        memory = self.threads.memory[self.allocations]
        self.allocations += 1
        assert [len(each) for each in memory] == [size] * self.threads.world_size
        return Shared(memory, self.wait)

    def wait(self) -> None:
        name = "AB"[self.barriers % 2]
        self.barriers += 1
        self.pause(f"before {name}")
        if name != self.removed:
            self.threads.meeting.wait()
        self.pause(f"after {name}")


def allocator_of_processes(folder: Path) -> Callable[[int], Shared]:
    """Return what allocates memory that processes of the default group share through files."""
    rank, ranks = dist.get_rank(), range(dist.get_world_size())
    allocated: list[Shared] = []

    def allocate(size: int) -> Shared:
        files = [folder / f"memory_{len(allocated)}_{owner}" for owner in ranks]
        files[rank].write_bytes(b"\xff" * size)
        dist.barrier()
        memory = [torch.from_file(str(file), shared=True, size=size, dtype=torch.uint8) for file in files]
        allocated.append(Shared(memory, dist.barrier))
        return allocated[-1]

    return allocate
