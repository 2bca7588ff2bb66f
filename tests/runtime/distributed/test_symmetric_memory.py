"""The exchange by symmetric memory, by threads that share memory: a rank may be late anywhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from mla_kernels.distributed import agreement, symmetric_memory
from mla_kernels.distributed.records import LayerShape, Records
from mla_kernels.distributed.symmetric_memory import ByCopies, Workspaces

from tests.runtime.distributed.stand_in import MOST_SECONDS, Rank, Threads

LATE = 0.02
"""Seconds in which the other ranks come as far as they can."""
LAYERS = 4
POINTS = ("before gather", "before A", "after A", "before send", "before B", "after B")


def shapes(world_size: int) -> list[LayerShape]:
    """Shapes of which the second and the third fit into the buffer of the first."""
    cpu = torch.device("cpu")
    return [
        LayerShape(world_size, 5, 7, 64, 64, torch.float32, cpu),
        LayerShape(world_size, 3, 1, 64, 32, torch.float16, cpu),
        LayerShape(world_size, 2, 6, 128, 64, torch.bfloat16, cpu),
    ]


def number(layer: int, *ranks: int) -> float:
    """Return a number that tells a layer from its neighbours, and a few ranks from each other."""
    return float(sum((rank + 1) * 4**place for place, rank in enumerate(ranks)) + 64 * (layer % 2))


def layers(rank: Rank, failed: list[str]) -> None:
    """Run layers of one rank, each of another shape than the one before; note what is not as it should be."""
    world_size = rank.threads.world_size
    workspaces = Workspaces(rank.rank, rank.allocate, timedelta(seconds=MOST_SECONDS))
    exchanges = [(shape, workspaces.exchange(shape)) for shape in shapes(world_size)]
    assert rank.allocations == 1
    for layer in range(LAYERS):
        shape, exchange = exchanges[layer % len(exchanges)]
        rank.pause("before gather")
        own = torch.full((shape.num_heads, shape.tokens, shape.d_qk), number(layer, rank.rank), dtype=shape.dtype)
        heads = exchange.gather(own).view(world_size, -1)
        if any((heads[other] != number(layer, other)).any() for other in range(world_size)):
            failed.append(f"layer {layer}: rank {rank.rank} has wrong queries")
        rank.pause("before send")
        partials = Records(shape)
        for other in range(world_size):
            heads_of_other = slice(other * shape.num_heads, (other + 1) * shape.num_heads)
            partials.out[heads_of_other] = number(layer, rank.rank, other)
            partials.lse[heads_of_other] = -number(layer, rank.rank, other)
        received = exchange.send(partials)
        for other in range(world_size):
            of_other, want = (
                slice(other * shape.num_heads, (other + 1) * shape.num_heads),
                number(layer, other, rank.rank),
            )
            if (received.out[of_other] != want).any() or (received.lse[of_other] != -want).any():
                failed.append(f"layer {layer}: rank {rank.rank} has wrong results of rank {other}")


def run(world_size: int, late: int, point: str, removed: str | None = None) -> list[str]:
    """Run all ranks, one of which is late at one point of each layer, and return what was wrong."""
    failed: list[str] = []

    def pause_of(rank: int) -> Callable[[str], None]:
        return lambda here: time.sleep(LATE) if (rank, here) == (late, point) else None

    def guarded(rank: int) -> None:
        try:
            layers(Rank(group, rank, pause_of(rank), removed), failed)
        except BaseException as error:
            failed.append(f"rank {rank}: {error!r}")
            group.meeting.abort()

    group = Threads(world_size)
    ranks = [threading.Thread(target=guarded, args=(rank,)) for rank in range(world_size)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    return failed


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_late_rank(world_size: int, point: str) -> None:
    for late in range(world_size):
        assert run(world_size, late, point) == []


@pytest.mark.parametrize(
    ("removed", "point", "what"),
    [
        ("A", "before gather", "wrong queries"),
        ("B", "before send", "wrong results"),
        ("B", "after A", "wrong queries"),
        ("A", "after B", "wrong results"),
    ],
)
def test_each_barrier_is_needed_twice(removed: str, point: str, what: str) -> None:
    """Without it what a rank reads is not there yet, or no longer there."""
    assert any(what in each for each in run(2, 0, point, removed))


def test_batches_that_grow_have_few_buffers() -> None:
    """Buffers are never given back, so that one for each batch would take memory of the square of the largest."""
    sizes: list[int] = []
    allocate = Rank(Threads(1), 0, lambda _: None).allocate
    workspaces = Workspaces(0, lambda size: sizes.append(size) or allocate(size), timedelta(seconds=1))  # type: ignore[func-returns-value]
    for tokens in range(1, 257):
        workspaces.exchange(LayerShape(1, 16, tokens, 576, 512, torch.bfloat16, torch.device("cpu")))
    assert len(sizes) < 20
    assert sum(sizes) < 8 * 256 * 16 * (576 + 512 + 2) * 2


def test_many_ranks() -> None:
    """More ranks than pairs of one copy."""
    assert run(70, 1, "before send") == []


def test_a_query_that_is_not_aligned() -> None:
    shape = LayerShape(1, 2, 3, 64, 64, torch.bfloat16, torch.device("cpu"))
    workspaces = Workspaces(0, Rank(Threads(1), 0, lambda _: None).allocate, timedelta(seconds=1))
    own = torch.randn(2 * 3 * 64 + 1).bfloat16()[1:].view(2, 3, 64)
    assert torch.equal(workspaces.exchange(shape).gather(own), own)


@pytest.mark.parametrize(("capability", "has"), [((8, 9), False), ((9, 0), True), ((10, 0), True)])
def test_the_kernels_are_for_devices_whose_fences_can_only_release(
    capability: tuple[int, int], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the kernels always works, so that the capability alone decides."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setitem(sys.modules, "mla_kernels.distributed.peer_kernels", SimpleNamespace(probe=lambda device: None))
    assert agreement._has_triton(torch.device("cuda")) is has


@pytest.mark.parametrize("all_agree", [True, False])
@pytest.mark.parametrize("compiles", [True, False])
def test_all_ranks_have_kernels_or_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiles: bool, all_agree: bool
) -> None:
    """A rank on which Triton fails says so, and each copies then."""
    said: list[bool] = []

    class Kernels:
        def __init__(self, *_: object) -> None:
            if not compiles:
                raise RuntimeError("no compiler")

    def agree(own: bool) -> bool:
        said.append(own)
        return own and all_agree

    monkeypatch.setattr(symmetric_memory, "ByPeerKernels", Kernels)
    monkeypatch.setattr(Workspaces, "_zeros", lambda self, shape: None)
    allocate = Rank(Threads(1), 0, lambda _: None).allocate
    exchange = Workspaces(0, allocate, timedelta(seconds=1), agree=agree).exchange(shapes(1)[0])
    assert said == [compiles]
    assert ("no compiler" in caplog.text) is not compiles
    assert isinstance(exchange, Kernels if compiles and all_agree else ByCopies)
