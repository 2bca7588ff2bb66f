"""A table of one op on CUDA: every cell against what the device can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from mla_kernels.api.lookup import find
from mla_kernels.devices.machine import Device
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.decode import NO_VARIANT, count, device_of_arch
from mla_kernels.diagnostics.tables import Progress, Row
from mla_kernels.errors import MlaError, VariantNotFoundError
from mla_kernels.kernels.base import Kernel
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.manifest import library_name, sha256

from benchmarks.ops import cuda

REPLAYED = (
    "A CUDA graph of one launch for each of several problems, over the number of problems; the median of its replays, "
    "after a rest: a device at the limit of its power lowers its clock. The problems have fresh random data, and what "
    "they read exceeds the L2."
)
OF_ATTENTION = ("read TB/s", "GEMM TFLOP/s")
"""The ceilings of attention."""


class Cell(Protocol):
    """One line of a table."""

    @property
    def fields(self) -> dict[str, object]:
        """What tells this cell from another, as columns of the table."""

    @property
    def counts(self) -> dict[str, int]:
        """What it costs: ``bytes``, and ``FLOP`` and ``tokens`` where it has some."""

    @property
    def input_bytes(self) -> int:
        """What several problems of it must keep out of the L2."""

    def config(self, arch: str) -> dict[str, object]:
        """What to look up for it."""


@dataclass(frozen=True, slots=True)
class Op:
    """How the cells of one op are measured.

    Attributes
    ----------
    name : str
    method : Mapping[str, str]
        What each column means.
    times : Callable
        The times of a cell, in microseconds by column, from a bench, a kernel and tensors.
    tensors : Callable
        Makes the problems of a cell from the cell, a device, and how many.
    rates : Callable
        What a time means for a cell, from the cell, the time and the ceilings.
    ceilings : tuple[str, ...]
        Those that the same run measures.
    """

    name: str
    method: Mapping[str, str]
    times: Callable[[Bench, Kernel, Any], Mapping[str, float | None]]
    tensors: Callable[[Any, torch.device, int], Any]
    rates: Callable[[Any, float | None, Mapping[str, float]], Row]
    ceilings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cells are measured on and with."""

    arch: str
    device: Device
    repeats: int
    ceilings: Mapping[str, float]

    @property
    def on(self) -> torch.device:
        """The device as torch names it."""
        return torch.device("cuda", self.device.ordinal)

    @property
    def own(self) -> bool:
        """Whether one-call ops find this arch's kernels for tensors of the device."""
        return self.arch == self.device.arch

    def replayed(self, call: Callable[[int], object], problems: int) -> float:
        """Microseconds of ``call(i)``, each for its problem."""
        return timing.replayed([partial(call, i) for i in range(problems)], self.repeats) * 1e6

    def on_host(self, call: Callable[[], object]) -> float | None:
        """Microseconds of the host in a one-call op; None where that finds another arch's kernel."""
        return cuda.on_host(call, self.repeats) * 1e6 if self.own else None


def measure(op: Op, cells: Sequence[Cell], arch: str, repeats: int, progress: Progress[Any]) -> dict[str, Any]:
    """Measure every cell, and the ceilings in the same run.

    Returns
    -------
    dict
        ``machine``, ``payload``, ``ceilings``, ``method``, ``repeats``, ``variants``, and ``rows``, one a cell.

    Raises
    ------
    ValueRangeError, DeviceError, PayloadError
        There is no such arch, nothing here runs it, or no payload of it is installed.
    """
    device = device_of_arch(arch)
    with torch.cuda.device(device.ordinal):
        known = {"read TB/s": cuda.read_rate, "GEMM TFLOP/s": cuda.gemm_rate, "copy TB/s": cuda.copy_rate}
        ceilings = {name: known[name](repeats) / 1e12 for name in op.ceilings}
        machine = cuda.machine()  # at the clock of the last ceiling
        bench = Bench(arch, device, repeats, ceilings)
        rows = [_row(op, bench, cell) for cell in progress(cells, op.name)]
    found = (row["variant"] for row in rows if row["variant"] != NO_VARIANT)
    return {
        "op": op.name,
        "arch": arch,
        "machine": machine,
        "payload": payload(arch),
        "variants": list(dict.fromkeys(found)),
        "method": op.method,
        "repeats": repeats,
        "ceilings": ceilings,
        "rows": rows,
    }


def of_attention(cell: Cell, us: float | None, ceilings: Mapping[str, float]) -> Row:
    """What a time means for attention: rates, and the fraction of the larger of two ceilings."""
    flop, moved = cell.counts["FLOP"], cell.counts["bytes"]
    intensity = {"FLOP/byte": flop / moved}
    if us is None:
        return {**intensity, "TFLOP/s": None, "TB/s": None, "of ceiling": None}
    tflops, tbs = flop / us / 1e6, moved / us / 1e6
    ceiling = max(tbs / ceilings["read TB/s"], tflops / ceilings["GEMM TFLOP/s"])
    return {**intensity, "TFLOP/s": tflops, "TB/s": tbs, "of ceiling": ceiling}


def payload(arch: str) -> dict[str, object]:
    """The payload of an arch: its name, version, commit, and the digest of its library."""
    (found,) = (each for each in payloads().found.values() if each.registry.arch == arch)
    return {
        "name": found.name,
        "version": found.version,
        "commit": found.manifest.revision,
        "library_sha256": sha256(found.folder / library_name(found.name)),
    }


def _row(op: Op, bench: Bench, cell: Cell) -> Row:
    """One cell; what goes wrong in it is a note, so that the others are measured."""
    columns = [name for name in op.method if name.endswith("us")]
    row: Row = {**cell.fields, **cell.counts, "variant": NO_VARIANT, **dict.fromkeys(columns)}
    try:
        torch.cuda.empty_cache()
        number = count(cell.input_bytes)
        tensors = op.tensors(cell, bench.on, number)
        row["problems"] = number
        try:
            kernel = find(cell.config(bench.arch))
        except VariantNotFoundError:
            pass
        else:
            row["variant"] = kernel.variant.name
            row |= op.times(bench, kernel, tensors)
    except (MlaError, RuntimeError) as error:
        row["note"] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return row | op.rates(cell, row["us"], bench.ceilings)
