"""A paged decode on CUDA against what the device can do, and beside other kernels: replayed graphs, cold caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import mla_kernels
from mla_kernels.bench import cuda, peers
from mla_kernels.bench.problems import SCALE, Problem
from mla_kernels.bench.report import Progress, Row
from mla_kernels.bench.tensors import Tensors
from mla_kernels.bench.timing import Call
from mla_kernels.devices import Device, obstacle, runner
from mla_kernels.discovery import payloads
from mla_kernels.errors import DeviceError, MlaError, PayloadError, ValueRangeError, VariantNotFoundError
from mla_kernels.kernel import Kernel
from mla_kernels.manifest import library_name, sha256
from mla_kernels.resolve import find

NO_VARIANT = "no variant"
METHOD = {
    "us": "A CUDA graph of one launch, merge included, for each of several problems, over the number of problems; the "
    "median of its replays, after a rest: a device at the limit of its power lowers its clock. The problems have fresh "
    "random data and disjoint random pages of one cache that exceeds the L2. The plan is made before.",
    "with plan us": "The same with the plan made again before each launch.",
    "call us": "What one `mla.decode` takes of the host, with outputs, plan and workspace given.",
    "TFLOP/s": "Two for each multiplication, every new token with every key.",
    "TB/s": "KV once, Q and the output.",
    "of ceiling": "The larger of bytes over the read rate and FLOP over the matrix product's rate, over `us`.",
    "x peer": "The time of the fastest peer over ours.",
}
_LEAST_KV = 1 << 30
_FEWEST, _MOST = 2, 24


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


def measure(cells: Sequence[Problem], arch: str, repeats: int, progress: Progress[Problem]) -> dict[str, Any]:
    """Measure every cell, and in the same run the ceilings and every peer that can be imported.

    Returns
    -------
    dict
        ``machine``, ``payload``, ``ceilings``, ``method``, ``repeats``, ``variants``, ``peers`` that are not installed,
        and ``rows``, one a cell.

    Raises
    ------
    ValueRangeError, DeviceError, PayloadError
        There is no such arch, nothing here runs it, or no payload of it is installed.
    """
    device = _device(arch)
    with torch.cuda.device(device.ordinal):
        ceilings = {"read TB/s": cuda.read_rate(repeats) / 1e12, "GEMM TFLOP/s": cuda.gemm_rate(repeats) / 1e12}
        machine = cuda.machine()  # at the clock of the matrix products
        bench = Bench(arch, device, repeats, ceilings)
        rows = [_row(bench, cell) for cell in progress(cells, "decode")]
    found = (row["variant"] for row in rows if row["variant"] != NO_VARIANT)
    return {
        "op": "decode",
        "arch": arch,
        "machine": machine,
        "payload": _payload(arch),
        "variants": list(dict.fromkeys(found)),
        "method": METHOD,
        "repeats": repeats,
        "ceilings": ceilings,
        "not installed": [peer.name for peer in peers.PEERS if not peer.installed],
        "rows": rows,
    }


def count(cell: Problem) -> int:
    """Problems of a cell whose KV is a gibibyte together, but from 2 to 24 of them."""
    return max(_FEWEST, min(_MOST, -(-_LEAST_KV // cell.kv_bytes)))


def _device(arch: str) -> Device:
    known = payloads().arch(arch)
    if known is None or known.device != "cuda":
        names = [each.name for each in payloads().archs]
        raise ValueRangeError("arch", repr(arch), ", ".join(names))
    found = runner(known)
    if found is None or obstacle(known):
        raise DeviceError("arch", arch, f"a machine that runs it; {obstacle(known)}")
    if not torch.cuda.is_available():
        raise DeviceError("arch", arch, f"a torch that is built for CUDA; this is {torch.__version__}")
    if payloads().registry_of(arch) is None:
        raise PayloadError("; ".join([f"no payload of {arch} is in use", *map(str, payloads().rejected)]))
    return found


def _payload(arch: str) -> dict[str, object]:
    (payload,) = (each for each in payloads().found.values() if each.registry.arch == arch)
    return {
        "name": payload.name,
        "version": payload.version,
        "commit": payload.manifest.revision,
        "library_sha256": sha256(payload.folder / library_name(payload.name)),
    }


def _row(bench: Bench, cell: Problem) -> Row:
    """One cell; what goes wrong in it is a note, so that the others are measured."""
    row: Row = {
        **cell.fields,
        "tokens": cell.tokens,
        "FLOP": cell.flop,
        "bytes": cell.bytes,
        "variant": NO_VARIANT,
        "us": None,
        "with plan us": None,
        "call us": None,
        "peers": [],
    }
    try:
        torch.cuda.empty_cache()
        tensors = Tensors(cell, bench.on, count(cell))
        row["problems"] = len(tensors.q)
        try:
            kernel = find(cell.config(bench.arch))
        except VariantNotFoundError:
            pass
        else:
            row["variant"] = kernel.variant.name
            row |= _times(bench, kernel, tensors)
        time = partial(cuda.replayed, repeats=bench.repeats)
        compare = row["us"] is not None
        row["peers"] = [peers.measured(peer, tensors, time, compare) for peer in peers.PEERS if peer.installed]
    except (MlaError, RuntimeError) as error:
        row["note"] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return row | rates(cell, row["us"], bench.ceilings)


def rates(cell: Problem, us: float | None, ceilings: Mapping[str, float]) -> Row:
    """What a time means for a cell: rates, and the fraction of the larger of two ceilings."""
    intensity = {"FLOP/byte": cell.flop / cell.bytes}
    if us is None:
        return {**intensity, "TFLOP/s": None, "TB/s": None, "of ceiling": None}
    tflops, tbs = cell.flop / us / 1e6, cell.bytes / us / 1e6
    ceiling = max(tbs / ceilings["read TB/s"], tflops / ceilings["GEMM TFLOP/s"])
    return {**intensity, "TFLOP/s": tflops, "TB/s": tbs, "of ceiling": ceiling}


def _times(bench: Bench, kernel: Kernel, tensors: Tensors) -> dict[str, float | None]:
    """Microseconds of a launch, of a plan and a launch, and of the host in a call."""
    plan = kernel.plan(tensors.seq_lens)
    size = kernel.workspace_size(q=tensors.q[0], kv_cache=tensors.kv_cache, block_table=tensors.block_table[0])
    given = {
        "plan": plan,
        "workspace": torch.empty(size, dtype=torch.uint8, device=bench.on),
        "softmax_scale": SCALE,
    }
    problems = [
        ((q, tensors.kv_cache, table, tensors.seq_lens), {**given, "out": out, "lse": lse})
        for q, table, out, lse in zip(tensors.q, tensors.block_table, tensors.out, tensors.lse, strict=True)
    ]

    def launch(i: int) -> None:
        positional, named = problems[i]
        kernel(*positional, **named)

    def planned(i: int) -> None:
        kernel.plan(tensors.seq_lens, out=plan)
        launch(i)

    def each(call: Any) -> list[Call]:
        return [partial(call, i) for i in range(len(problems))]

    positional, named = problems[0]
    own = bench.arch == bench.device.arch  # otherwise mla.decode finds another arch's kernel for these tensors
    times: dict[str, float | None] = {
        "us": cuda.replayed(each(launch), bench.repeats) * 1e6,
        "with plan us": cuda.replayed(each(planned), bench.repeats) * 1e6,
    }
    call = cuda.on_host(lambda: mla_kernels.decode(*positional, **named), bench.repeats) * 1e6 if own else None
    return times | {"call us": call}
