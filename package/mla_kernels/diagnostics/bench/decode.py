"""Times paged decodes of one arch, each on several problems of random data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from mla_kernels.api.lookup import find
from mla_kernels.devices.machine import HOST, Device, devices, obstacle, runner
from mla_kernels.diagnostics.bench.problems import SCALE, Problem
from mla_kernels.diagnostics.bench.tensors import Tensors
from mla_kernels.diagnostics.bench.timing import Call, alternate, replayed
from mla_kernels.diagnostics.memory import lacks_memory
from mla_kernels.diagnostics.tables import Progress, Row
from mla_kernels.errors import DeviceError, PayloadError, ValueRangeError, VariantNotFoundError
from mla_kernels.kernels.base import Kernel
from mla_kernels.payloads.discovery import payloads

NO_VARIANT = "no variant"
_LEAST_INPUT = 1 << 30
_FEWEST, _MOST = 2, 24

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""What a call takes by position and by name."""


def measure(cells: Sequence[Problem], arch: str, repeats: int, progress: Progress[Problem]) -> list[Row]:
    """Time every cell; one that no variant serves has no time.

    Raises
    ------
    ValueRangeError, DeviceError, PayloadError
        There is no such arch, nothing here runs it, no payload of it is installed, or a cell takes too much memory.
    """
    device = device_of_arch(arch)
    return [_row(cell, arch, device, repeats) for cell in progress(cells, "decode")]


def device_of_arch(arch: str) -> Device:
    """The device that runs an arch.

    Raises
    ------
    ValueRangeError, DeviceError, PayloadError
        There is no such arch, nothing here runs it, or no payload of it is installed.
    """
    if arch == HOST:
        return devices()[-1]
    known = payloads().arch(arch)
    if known is None:
        raise ValueRangeError("arch", repr(arch), ", ".join(each.name for each in payloads().archs))
    found = runner(known)
    if found is None or obstacle(known):
        raise DeviceError("arch", arch, f"a machine that runs it; {obstacle(known)}")
    if not torch.cuda.is_available():
        raise DeviceError("arch", arch, f"a torch that is built for CUDA; this is {torch.__version__}")
    if payloads().registry_of(arch) is None:
        raise PayloadError("; ".join([f"no payload of {arch} is in use", *map(str, payloads().rejected)]))
    return found


def count(input_bytes: int) -> int:
    """Problems whose input is a gibibyte together, so that none finds its own in the L2, but from 2 to 24 of them."""
    return max(_FEWEST, min(_MOST, -(-_LEAST_INPUT // max(1, input_bytes))))


def calls_of(kernel: Kernel, tensors: Tensors) -> list[Arguments]:
    """The arguments of each problem; outputs, plan and workspace are given, so that a launch allocates nothing."""
    size = kernel.workspace_size(q=tensors.q[0], kv_cache=tensors.kv_cache, block_table=tensors.block_table[0])
    given = {
        "plan": kernel.plan(tensors.seq_lens),
        "workspace": torch.empty(size, dtype=torch.uint8, device=tensors.q.device),
        "softmax_scale": SCALE,
    }
    return [
        ((q, tensors.kv_cache, table, tensors.seq_lens), {**given, "out": out, "lse": lse})
        for q, table, out, lse in zip(tensors.q, tensors.block_table, tensors.out, tensors.lse, strict=True)
    ]


def _row(cell: Problem, arch: str, device: Device, repeats: int) -> Row:
    try:
        kernel = find(cell.config(arch))
    except VariantNotFoundError:
        return {**cell.fields, "us": None, "TFLOP/s": None, "TB/s": None, "variant": NO_VARIANT}
    try:
        seconds = _seconds(kernel, cell, device, repeats)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error) and "overflow" not in str(error):  # of the size of a tensor
            raise
        stated = " ".join(f"{name}={value}" for name, value in cell.fields.items())
        raise ValueRangeError("cell", stated, f"what fits into the memory of {device}") from error
    rates = {"TFLOP/s": cell.flop / seconds / 1e12, "TB/s": cell.bytes / seconds / 1e12}
    return {**cell.fields, "us": seconds * 1e6, **rates, "variant": kernel.variant.name}


def _seconds(kernel: Kernel, cell: Problem, device: Device, repeats: int) -> float:
    """Seconds of a launch, its plan made before."""
    if device.kind == "cpu":
        (call,) = _launches(kernel, Tensors(cell, torch.device("cpu")))
        return alternate({"decode": call}, repeats)["decode"]
    with torch.cuda.device(device.ordinal):
        tensors = Tensors(cell, torch.device("cuda", device.ordinal), count(cell.input_bytes))
        return replayed(_launches(kernel, tensors), repeats)


def _launches(kernel: Kernel, tensors: Tensors) -> list[Call]:
    return [partial(kernel, *positional, **named) for positional, named in calls_of(kernel, tensors)]
