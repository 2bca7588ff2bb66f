"""How calls are timed: in turns on the host, and as replays of a graph on CUDA; medians of both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Call = Callable[[], object]

_REST_OF_HOST = 0.03
_REST_OF_DEVICE = 0.3
"""Seconds before replays are timed. Under load, an H200 reaches the limit of its power and lowers its clock by a tenth
or more. What is timed after a rest has the same clock whatever ran before it."""
_CLOCKS_TO_QUEUE = 500_000
"""For which the device waits: some 0.3 ms, in which the host queues a graph."""
_failed: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed: torch's allocator goes on to read them."""
_UNTYPED: Any = torch.cuda  # torch does not say what its events and streams take


def alternate(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """Median seconds of each call, taken in turns, so that a slow moment of the machine meets them all.

    Before each turn the process rests, because torch's threads spin for some 15 ms after their work and would take
    the cores of whoever comes next; then one call is not timed.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(_REST_OF_HOST)
            call()
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def replayed(calls: Sequence[Call], repeats: int) -> float:
    """Median seconds of one call: a graph of all of them, captured once, is replayed."""
    for call in calls[:2]:  # what a first call prepares cannot be captured
        call()
    torch.cuda.synchronize()
    graph = captured(calls)
    torch.cuda.synchronize()
    time.sleep(_REST_OF_DEVICE)
    graph.replay()
    return statistics.median(on_device(graph.replay) for _ in range(repeats)) / len(calls)


def on_device(queue: Call) -> float:
    """Seconds that the device takes for what a call queues, without the time in which the host queues it."""
    start, end = (_UNTYPED.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    _UNTYPED._sleep(_CLOCKS_TO_QUEUE)
    start.record()
    queue()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph, and what its calls have returned.

    These outputs are kept so that no two calls write to the same memory. Otherwise, where a library allocates its
    output, each call would get the memory of the one before; what is written there stays in the L2 cache and never
    reaches memory, while a library that gets its outputs from the caller writes all of them to memory.
    """

    graph: torch.cuda.CUDAGraph
    outputs: tuple[object, ...]

    def replay(self) -> None:
        """Launch the graph."""
        self.graph.replay()


def captured(calls: Sequence[Call]) -> Captured:
    """A graph of the calls, each of which has run before."""
    graph, stream = torch.cuda.CUDAGraph(), _UNTYPED.Stream()
    outputs: list[object] = []
    try:
        with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
            for call in calls:
                outputs.append(call())
    except BaseException:
        _failed.append(graph)
        raise
    return Captured(graph, tuple(outputs))
