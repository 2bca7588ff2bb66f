"""A library's turn in a cell: its output is compared with ours, then it is timed; here or in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.diagnostics.bench.problems import SCALE

from benchmarks.ops.sparse_tensors import SparsePrefillTensors
from benchmarks.peers import adapters
from benchmarks.side_by_side import states
from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.libraries import TENSORS, Launch, Library

_SAMPLES = 4096
"""Numbers of a problem's output that one process sends to another."""

Turn = dict[str, Any]
"""``library``, ``variant`` of ours, ``error`` to our output, and the times of each state.

A ``note`` says why there are none. ``error to float64`` is the relative error to attention in float64 over the same
bytes, in cells that have ``float64_requests``.
"""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell, the states to measure it in, and the seconds of sustained load."""

    cell: Cell
    states: tuple[str, ...]
    seconds: float

    @property
    def problems(self) -> int:
        """How many problems the cell has."""
        return states.problems(self.cell.problem.input_bytes)

    def tensors(self) -> Any:
        """The tensors of the cell, which are the same in every process."""
        torch.cuda.empty_cache()
        return TENSORS[self.cell.op](self.cell.problem, device(), self.problems)


class Here:
    """All libraries in this process, on the same tensors."""

    def __init__(self, task: Task) -> None:
        self._task, self._tensors = task, task.tensors()

    def take(self, library: Library, want: torch.Tensor | None) -> tuple[Turn, torch.Tensor | None]:
        """A library's turn and the output of every problem, where ``want`` is ours."""
        return _take(library, self._task, self._tensors, want, 1)


class Processes:
    """A process for each library, which lives as long as this object and makes the tensors of each cell anew."""

    def __init__(self) -> None:
        self._pools: dict[Library, ProcessPoolExecutor] = {}

    def labels(self, libraries: Iterable[Library]) -> list[str]:
        """The label of each library, from its own process; all of the processes start together."""
        futures = [self._pool(library).submit(_label, library) for library in libraries]
        return [future.result() for future in futures]

    def take(self, task: Task, library: Library, want: torch.Tensor | None) -> tuple[Turn, torch.Tensor | None]:
        """A library's turn and a sample of its output, where ``want`` is a sample of ours."""
        try:
            return self._pool(library).submit(_take_alone, library, task, want).result()
        except BrokenProcessPool:
            del self._pools[library]
            (label,) = self.labels([library])
            return {"library": label, "note": "its process ended"}, None

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools.values():
            pool.shutdown()

    def _pool(self, library: Library) -> ProcessPoolExecutor:
        if library not in self._pools:
            self._pools[library] = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        return self._pools[library]


def device() -> torch.device:
    """The device that tensors are made on."""
    return torch.device("cuda", torch.cuda.current_device())


def _label(library: Library) -> str:
    return library.label


def _take_alone(library: Library, task: Task, want: torch.Tensor | None) -> tuple[Turn, torch.Tensor | None]:
    try:
        tensors = task.tensors()
        step = max(1, tensors.out[0].numel() // _SAMPLES) | 1
        turn, got = _take(library, task, tensors, want, step)
        return turn, None if got is None else got.cpu()
    finally:
        torch.cuda.empty_cache()


def _take(
    library: Library, task: Task, tensors: Any, want: torch.Tensor | None, step: int
) -> tuple[Turn, torch.Tensor | None]:
    """A turn, and every ``step``-th number of our outputs; what a library raises becomes a note."""
    turn: Turn = {"library": library.label}
    try:
        launch = library.prepare(task.cell, tensors)
        if library.ours:
            turn["variant"] = library.variant(task.cell)
        turn["error"] = error = _error(library, launch, tensors, want, step)
        if task.cell.float64_requests:
            turn["error to float64"] = _error_to_float64(launch, tensors, task.cell.float64_requests)
        if error is not None and not error < task.cell.close:  # NaN is not close either
            return turn | {"note": f"its output differs from ours by {error:.2g} of the norm"}, None
        got = tensors.out.flatten(1)[:, ::step] if library.baseline else None
        calls = [partial(launch, i) for i in range(len(tensors.q))]
        return turn | states.times(calls, task.states, task.seconds), got
    except Exception as error:
        return turn | {"note": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}, None


def _error(library: Library, launch: Launch, tensors: Any, want: torch.Tensor | None, step: int) -> float | None:
    """The largest relative error of a problem's output to the baseline's; of its own, 0 where all was written."""
    if library.baseline:
        tensors.out.fill_(float("nan"))
        for i in range(len(tensors.q)):
            launch(i)
        return 0.0 if bool(tensors.out.isfinite().all()) else float("nan")
    if want is None:
        return None
    wanted = want.to(tensors.q.device)
    return max(adapters.relative_error(launch(i).flatten()[::step], wanted[i]) for i in range(len(tensors.q)))


def _error_to_float64(launch: Launch, tensors: Any, requests: int) -> float:
    """The relative error of a dense decode's or a sparse prefill's first problem, over so many requests or tokens."""
    if isinstance(tensors, SparsePrefillTensors):
        want, *_ = reference.sparse_prefill(
            tensors.q[0, :requests],
            tensors.kv[0],
            tensors.indices[0, :requests],
            softmax_scale=SCALE,
            dtype=torch.float64,
        )
        return adapters.relative_error(launch(0)[:requests], want)
    want, _ = reference.decode(
        tensors.q[0, :requests],
        tensors.kv_cache,
        tensors.block_table[0, :requests],
        tensors.seq_lens[:requests],
        softmax_scale=SCALE,
        dtype=torch.float64,
    )
    return adapters.relative_error(launch(0)[:requests], want)
