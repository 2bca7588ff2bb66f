"""What a CUDA device can do at most, what it is, and how long the host is busy with a call."""

from __future__ import annotations

import gc
import re
import statistics
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from pathlib import Path

import torch
from mla_kernels.devices.driver import driver
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.timing import Call

_READ_BYTES = 4 << 30
_GEMM_SIZE = 8192
_CALLS = 100
"""Calls in a row without synchronising: two kernels each stay below the thousand launches that a stream queues."""
_DRIVER = Path("/proc/driver/nvidia/version")


def on_host(call: Call, repeats: int) -> float:
    """Median seconds that the host spends in one call, whose work the device does meanwhile."""
    call()  # what a first call finds is kept
    collecting = gc.isenabled()
    gc.disable()
    try:
        return statistics.median(_batch(call) for _ in range(repeats)) / _CALLS
    finally:
        if collecting:
            gc.enable()


def _batch(call: Call) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return time.perf_counter() - start


def read_rate(repeats: int) -> float:
    """Bytes a second of torch's fastest reduction over memory beyond every cache."""
    floats = torch.randn(_READ_BYTES // 4, device="cuda")
    rows = floats.view(-1, 1 << 14)
    reductions: Iterable[Call] = (
        floats.sum,
        floats.amax,
        floats.view(torch.bfloat16).amax,
        floats.view(torch.int32).amax,
        floats.view(torch.float64).sum,
        lambda: rows.sum(1),
        lambda: rows.amax(1),
        lambda: torch.mv(rows, rows[0]),
    )
    return _READ_BYTES / min(timing.replayed([reduction], repeats) for reduction in reductions)


def copy_rate(repeats: int) -> float:
    """Bytes a second, read and written, of torch's fastest copy beyond every cache.

    A copy in a graph is a node of the driver's, which is slower than torch's kernels are.
    """
    source = torch.randn(_READ_BYTES // 4, dtype=torch.bfloat16, device="cuda")
    target = torch.empty_like(source)
    copies: Iterable[Call] = (
        lambda: target.copy_(source),
        lambda: torch.neg(source, out=target),
        lambda: torch.neg(source.view(torch.float32), out=target.view(torch.float32)),
    )
    return 2 * source.nbytes / min(timing.replayed([copy], repeats) for copy in copies)


def gemm_rate(repeats: int) -> float:
    """FLOP a second of a square matrix product in bf16."""
    a, b = (torch.randn(_GEMM_SIZE, _GEMM_SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    return 2 * _GEMM_SIZE**3 / timing.replayed([lambda: torch.mm(a, b)] * 4, repeats)


def machine() -> dict[str, object]:
    """The current device, its driver and torch; the clock only where torch can ask for it."""
    properties = torch.cuda.get_device_properties()
    facts: dict[str, object] = {
        "gpu": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "sms": properties.multi_processor_count,
        "driver": _driver_version(),
        "cuda": driver().version,
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "date": date.today().isoformat(),
    }
    with suppress(Exception):  # torch asks through pynvml, which fails in as many ways as there are machines
        facts["sm_clock_mhz"] = torch.cuda.clock_rate()
    return facts


def _driver_version() -> str | None:
    """The version of the kernel module, such as ``580.65.06``."""
    try:
        found = re.search(r"\d{3}\.\d+(?:\.\d+)?", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return None
    return found[0] if found else None
