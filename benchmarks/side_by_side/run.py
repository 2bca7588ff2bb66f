"""Measures cell by cell: ours first and last, every other library between, all on the same tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mla_kernels.devices.machine import current_arch
from mla_kernels.diagnostics.bench.decode import device_of_arch
from mla_kernels.errors import ValueRangeError

from benchmarks.ops import cuda, run_cuda
from benchmarks.side_by_side import states
from benchmarks.side_by_side.cells import SUITES
from benchmarks.side_by_side.libraries import Library
from benchmarks.side_by_side.turns import Here, Processes, Task, Turn

Take = Callable[[Library, torch.Tensor | None], tuple[Turn, torch.Tensor | None]]


@dataclass(frozen=True, slots=True)
class Run:
    """What is measured, and how.

    Attributes
    ----------
    suite : str
        A key of ``SUITES``.
    libraries : Sequence[Library]
        Ours in exact arithmetic, and then the others; each is measured in the cells that it has.
    seconds : float
        Of sustained load.
    apart : bool
        Whether each library has a process of its own.
    command : str
        What measures the same again.
    """

    suite: str
    libraries: Sequence[Library]
    seconds: float
    apart: bool
    command: str


def measure(run: Run, out: Path) -> dict[str, Any]:
    """Measure the cells of a suite that ``out`` does not hold yet, and write the file after each cell.

    Returns
    -------
    dict
        ``suite``, ``method``, ``runs``, one for each time that the file was continued, and ``cells``: the number of the
        run that measured the cell, ``op``, ``title``, the fields of the problem, what it costs, the ``allowed error``
        of an output to ours, how many ``float64 requests`` of a problem were compared with attention in float64, and
        ``turns``, in the order in which they were measured.

    Raises
    ------
    ValueRangeError
        The file holds another suite, or was measured by another method.
    """
    suite = SUITES[run.suite]
    document = _read(out, run.suite, {state: states.METHOD[state] for state in suite.states})
    done = {cell["title"] for cell in document["cells"]}
    cells = [cell for cell in suite.cells if cell.title not in done]
    processes = Processes() if run.apart else None
    try:
        with torch.cuda.device(device_of_arch(current_arch()).ordinal):
            if cells:
                taking_part = [each for each in run.libraries if any(map(each.has, suite.cells))]
                document["runs"].append(_about(run, taking_part, processes))
            for cell in cells:
                measured = _cell(Task(cell, suite.states, run.seconds), run.libraries, processes)
                document["cells"].append(measured | {"run": len(document["runs"]) - 1})
                _write(document, out)
    finally:
        if processes:
            processes.close()
    return document


def _cell(task: Task, libraries: Sequence[Library], processes: Processes | None) -> dict[str, Any]:
    cell = task.cell
    take: Take = partial(processes.take, task) if processes else Here(task).take
    ours, *others = (library for library in libraries if library.has(cell))
    first, want = take(ours, None)
    turns = [first, *(take(library, want)[0] for library in others), take(ours, None)[0]]
    return {
        "op": cell.op,
        "title": cell.title,
        "problem": cell.problem.fields,
        **cell.problem.counts,
        "problems": task.problems,
        "allowed error": cell.close,
        **({"float64 requests": cell.float64_requests} if cell.float64_requests else {}),
        "turns": turns,
    }


def _about(run: Run, libraries: Sequence[Library], processes: Processes | None) -> dict[str, Any]:
    """What is the same in all cells of a run."""
    ceilings = {"read TB/s": cuda.read_rate(5) / 1e12, "GEMM TFLOP/s": cuda.gemm_rate(5) / 1e12}
    torch.cuda.empty_cache()
    return {
        "command": run.command,
        "machine": cuda.machine(),
        "payload": run_cuda.payload(current_arch()),
        "ceilings": ceilings,
        "libraries": processes.labels(libraries) if processes else [each.label for each in libraries],
        "apart": run.apart,
    }


def _read(out: Path, suite: str, method: Mapping[str, str]) -> dict[str, Any]:
    if not out.exists():
        return {"suite": suite, "method": method, "runs": [], "cells": []}
    document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if (document.get("suite"), document["method"]) != (suite, method):
        accepts = f"a new file, or one that holds the suite {suite} by today's method"
        raise ValueRangeError("json", str(out), accepts)
    return document


def _write(document: Mapping[str, Any], out: Path) -> None:
    partial_file = out.with_suffix(".part")
    partial_file.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    partial_file.replace(out)
