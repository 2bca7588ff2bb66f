"""How calls of a few microseconds are timed: in turns of thousands, without the time of the loop around them."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence

from mla_kernels.diagnostics.bench.timing import Call, alternate

_LOOP = "a loop around nothing"


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
