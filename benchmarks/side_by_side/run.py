"""Measures cell by cell, in one process: ours first and last, every other library between, all on the same tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mla_kernels.devices.machine import current_arch
from mla_kernels.diagnostics.bench.decode import count, device_of_arch
from mla_kernels.diagnostics.bench.timing import Call

from benchmarks.ops import cuda, run_cuda
from benchmarks.peers import adapters
from benchmarks.side_by_side import states
from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.libraries import TENSORS, Launch, Library
from benchmarks.side_by_side.power import Power

CLOSE = 0.02
"""The largest relative error, in the norm of a problem's output, of a library that computes the same as ours."""


def measure(
    cells: Iterable[Cell], libraries: Sequence[Library], seconds: float, out: Path, command: str
) -> dict[str, Any]:
    """Measure the cells that ``out`` does not hold yet, each library for some seconds; write the file after each cell.

    Returns
    -------
    dict
        ``runs``, one for each time that the file was continued (``command``, ``machine``, ``payload``, ``ceilings``,
        ``libraries``), ``method``, and ``cells``: the number of the run, ``op``, ``title``, the fields of the problem,
        and ``turns``, the library, its output's relative error to ours, and the times in each state, in the order in
        which they were measured.
    """
    arch = current_arch()
    with torch.cuda.device(device_of_arch(arch).ordinal):
        document = _read(out)
        ceilings = {"read TB/s": cuda.read_rate(5) / 1e12, "GEMM TFLOP/s": cuda.gemm_rate(5) / 1e12}
        names = [library.label for library in libraries]
        about = {"command": command, "machine": cuda.machine(), "payload": run_cuda.payload(arch)}
        document["runs"].append({**about, "ceilings": ceilings, "libraries": names})
        done = {cell["title"] for cell in document["cells"]}
        for cell in cells:
            if cell.title not in done:
                document["cells"].append(_cell(cell, libraries, seconds) | {"run": len(document["runs"]) - 1})
                _write(document, out)
    return document


def device() -> torch.device:
    """The device that tensors are made on."""
    return torch.device("cuda", torch.cuda.current_device())


def _cell(cell: Cell, libraries: Sequence[Library], seconds: float) -> dict[str, Any]:
    torch.cuda.empty_cache()
    number = count(cell.problem.input_bytes)
    tensors = TENSORS[cell.op](cell.problem, device(), number)
    ours, *others = (library for library in libraries if library.has(cell.op))
    turns = [_turn(library, cell, tensors, seconds) for library in (ours, *others, ours)]
    return {
        "op": cell.op,
        "title": cell.title,
        "problem": cell.problem.fields,
        **cell.problem.counts,
        "problems": number,
        "turns": turns,
    }


def _turn(library: Library, cell: Cell, tensors: Any, seconds: float) -> dict[str, Any]:
    """One library's times; whatever it raises becomes a note, so that the others are measured."""
    turn: dict[str, Any] = {"library": library.label}
    try:
        launch = library.prepare(cell, tensors)
        turn["error"] = error = _error(library, launch, tensors)
        if not error < CLOSE:  # NaN is not close either
            return turn | {"note": f"its output differs from ours by {error:.2g} of the norm"}
        return turn | _times([partial(launch, i) for i in range(len(tensors.q))], seconds)
    except Exception as error:
        return turn | {"note": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}


def _times(calls: Sequence[Call], seconds: float) -> dict[str, Any]:
    for call in calls:
        call()
    torch.cuda.synchronize()
    return {
        "rested": states.rested(calls),
        "graph": states.graph(calls),
        "sustained": states.sustained(calls, Power(), seconds),
    }


def _error(library: Library, launch: Launch, tensors: Any) -> float:
    """The largest relative error of a problem's output to ours; of ours, 0 where every element was written."""
    if library.ours:
        tensors.out.fill_(float("nan"))
        for i in range(len(tensors.q)):
            launch(i)
        return 0.0 if bool(tensors.out.isfinite().all()) else float("nan")
    return max(adapters.relative_error(launch(i), tensors.out[i]) for i in range(len(tensors.q)))


def _read(out: Path) -> dict[str, Any]:
    if out.exists():
        document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return document
    return {"method": states.METHOD, "runs": [], "cells": []}


def _write(document: Mapping[str, Any], out: Path) -> None:
    partial_file = out.with_suffix(".part")
    partial_file.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    partial_file.replace(out)
