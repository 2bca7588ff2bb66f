"""How everything here is timed: interleaved repetitions, medians."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Call = Callable[[], object]
_LOOP = "a loop around nothing"
_REST = 0.03


def alternate(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """Median seconds of each call, taken in turns, so that a slow moment of the machine meets them all.

    Before each turn the process rests, because torch's threads spin for some 15 ms after their work and would take
    the cores of whoever comes next; then one call is not timed.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(_REST)
            call()
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def overheads(calls: Mapping[str, Call], number: int = 2000, repeats: int = 51) -> dict[str, float]:
    """Median seconds of each short call, in turns of ``number`` calls, without the loop's own time."""
    batches = {name: _batch(call, number) for name, call in {**calls, _LOOP: _nothing}.items()}
    collecting = gc.isenabled()
    gc.disable()
    try:
        medians = alternate(batches, repeats)
    finally:
        if collecting:
            gc.enable()
    loop = medians.pop(_LOOP)
    return {name: (median - loop) / number for name, median in medians.items()}


def _nothing() -> None:
    pass


def _batch(call: Call, number: int) -> Call:
    rounds: Sequence[int] = range(number)

    def run() -> None:
        for _ in rounds:
            call()

    return run
