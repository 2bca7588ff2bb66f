"""The states in which a launch is timed: after a rest, in a graph, between other kernels, and sustained."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from mla_kernels.diagnostics.bench.timing import Call, captured, on_device

from benchmarks.side_by_side.power import Power

METHOD = {
    "rested": "One launch in a graph of its own, after the device has been idle for 25 ms. Successive launches have "
    "different inputs, so that nothing is in the L2 cache. The median of 9.",
    "graph": "A CUDA graph of 2 to 200 launches with different inputs, replayed without a rest; the median of 9 "
    "replays, over the number of launches. Together the inputs exceed the L2 cache, and no two launches write to the "
    "same output. The device waits until the host has launched the graph, so that this is not in the time.",
    "between": "Before each launch of the same graph, another kernel reads 192 MiB of another tensor, as other kernels "
    "of a layer read weights, so that nothing of the launch before is left in the L2 cache. The time of a graph of "
    "that other kernel alone is subtracted; the two graphs take turns, and the median of 9 differences counts.",
    "sustained": "The same graph replayed back to back for two seconds, after half a second that is not counted. Clock "
    "and power are medians of NVML's readings; energy is the difference of NVML's energy counter, over the launches.",
}
"""What each state means."""
_REST_S = 0.025
_REPEATS = 9
_SETTLE_S = 0.5
_SAMPLE_S = 0.05
_LEAST_INPUT, _LARGEST_L2 = 1 << 30, 192 << 20
_COLUMNS = 8192
"""Of the bf16 matrix that is read between launches, which has the size of the largest L2 cache."""
_FEWEST, _MOST = 2, 24
_UNTYPED: Any = torch.cuda  # torch does not type these

Times = dict[str, float | None]


def problems(input_bytes: int) -> int:
    """How many problems a cell has: of a gibibyte together, from 2 to 24, but always of several L2 caches together."""
    return max(_FEWEST, min(_MOST, -(-_LEAST_INPUT // input_bytes)), -(-_LARGEST_L2 // input_bytes))


def times(calls: Sequence[Call], states: Iterable[str], seconds: float) -> dict[str, Times]:
    """The times of one launch in each of the states, of calls that have run before."""
    measures: dict[str, Callable[[], Times]] = {
        "rested": lambda: rested(calls),
        "graph": lambda: graph(calls),
        "between": lambda: between(calls),
        "sustained": lambda: sustained(calls, Power(), seconds),
    }
    return {state: measures[state]() for state in states}


def rested(calls: Sequence[Call]) -> Times:
    """Microseconds of one launch on an idle device."""
    graphs = [captured([call]) for call in calls[:_REPEATS]]
    taken = []
    for i in range(_REPEATS):
        torch.cuda.synchronize()
        time.sleep(_REST_S)
        taken.append(on_device(graphs[i % len(graphs)].replay))
    return {"us": statistics.median(taken) * 1e6}


def graph(calls: Sequence[Call]) -> Times:
    """Microseconds of one launch in a graph of all."""
    return {"us": _replayed(calls) / len(calls) * 1e6}


def between(calls: Sequence[Call]) -> Times:
    """Microseconds of one launch behind another kernel, without that kernel's."""
    weights = torch.ones(_LARGEST_L2 // 2 // _COLUMNS, _COLUMNS, dtype=torch.bfloat16, device="cuda")
    read = partial(torch.mv, weights, weights[0])
    read()
    both = captured([each for call in calls for each in (read, call)]).replay
    alone = captured([read] * len(calls)).replay
    for replay in (both, alone):
        replay()
    taken = statistics.median(on_device(both) - on_device(alone) for _ in range(_REPEATS))
    return {"us": taken / len(calls) * 1e6}


def sustained(calls: Sequence[Call], power: Power, seconds: float) -> Times:
    """Microseconds, clock, watts and millijoules of one launch under load."""
    replay = captured(calls).replay
    replays = max(1, round(_SAMPLE_S / on_device(replay)))
    _run(replay, replays, _SETTLE_S)
    power.start()
    start = time.perf_counter()
    launches = len(calls) * _run(replay, replays, seconds, power.sample)
    elapsed = time.perf_counter() - start
    return {"us": elapsed / launches * 1e6, **power.read(launches)}


def _replayed(calls: Sequence[Call]) -> float:
    """Median seconds of a graph."""
    replay = captured(calls).replay
    replay()
    return statistics.median(on_device(replay) for _ in range(_REPEATS))


def _run(replay: Call, replays: int, seconds: float, sample: Callable[[], None] = lambda: None) -> int:
    """Replay until the time is over, with one batch queued behind the one that runs; return the number of replays."""
    events: list[Any] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(replays):
            replay()
        events.append(_UNTYPED.Event())
        events[-1].record()
        if len(events) > 1:
            events[-2].synchronize()
        sample()
    torch.cuda.synchronize()
    return replays * len(events)
