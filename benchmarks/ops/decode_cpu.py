"""A paged decode against what the machine can do and against the fastest torch formulation, in one process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import mla_kernels
import torch
from mla_kernels.api.lookup import find
from mla_kernels.devices.machine import HOST
from mla_kernels.diagnostics.bench.decode import calls_of
from mla_kernels.diagnostics.bench.problems import SCALE, Problem
from mla_kernels.diagnostics.bench.tensors import DTYPES, Tensors
from mla_kernels.diagnostics.bench.timing import Call, alternate
from mla_kernels.diagnostics.tables import Progress, Row
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import HEAD_DIM, LATENT
from torch.nn.functional import scaled_dot_product_attention

_FIXED = {"q_len": 1, "page_size": 64, "lengths": "equal"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured on: a number of cores, and how often."""

    threads: int | None
    repeats: int


def measure(cells: Sequence[Problem], settings: Settings, progress: Progress[Problem]) -> list[Row]:
    """Measure every problem on fresh random data; ceilings are measured in the same run.

    Returns
    -------
    list of dict
        Time, rates, the fraction of ``max(bytes / read rate, FLOP / GEMM rate)`` with the faster GEMM of the element
        type and fp32, and how many times faster than the fastest torch formulation, which reads a contiguous cache in
        the type of Q, dequantised beforehand.
    """
    for cell in cells:
        for field, accepted in _FIXED.items():
            if (value := getattr(cell, field)) != accepted:
                raise ValueRangeError(field.replace("_", "-"), str(value), f"{accepted}, which is measured on a CPU")
    use_cores(settings.threads)
    read = read_rate(settings.repeats)
    rates = {dtype: gemm_rate(dtype, settings.repeats) for dtype in ("fp32", *{cell.q_dtype for cell in cells})}
    gemm = {dtype: max(rate, rates["fp32"]) for dtype, rate in rates.items()}  # any type can be computed in fp32
    rows = []
    for cell in progress(cells, "decode"):
        tensors = Tensors(cell, torch.device("cpu"))
        calls = {"kernel": _kernel_call(cell, tensors), **_torch_calls(tensors)}
        times = alternate(calls, settings.repeats)
        time = times.pop("kernel")
        fastest = min(times, key=lambda name: times[name])
        ceiling = max(cell.bytes / read, cell.flop / gemm[cell.q_dtype])
        rows.append(
            {
                "q": cell.q_dtype,
                "kv": cell.kv_dtype,
                "heads": cell.num_heads,
                "batch": cell.batch,
                "seq": cell.seq,
                "us": time * 1e6,
                "GB/s": cell.bytes / time / 1e9,
                "GFLOP/s": cell.flop / time / 1e9,
                "of ceiling": ceiling / time,
                "read GB/s": read / 1e9,
                "GEMM GFLOP/s": gemm[cell.q_dtype] / 1e9,
                **{f"torch {name} us": seconds * 1e6 for name, seconds in times.items()},
                "torch by": fastest,
                "x torch": times[fastest] / time,
            }
        )
    return rows


def use_cores(count: int | None) -> None:
    """Restrict the process to ``count`` of its cores, before any pool of threads starts."""
    if count is None:
        return
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(cores):
        raise ValueRangeError("threads", str(count), f"1 to {len(cores)}, the cores that this process may use")
    os.sched_setaffinity(0, cores[:count])
    torch.set_num_threads(count)


def read_rate(repeats: int) -> float:
    """Bytes a second that a sum over memory beyond every cache reads."""
    memory = torch.rand(1 << 26)
    times = alternate({"sum": memory.sum, "max": memory.max}, repeats)
    return memory.numel() * memory.itemsize / min(times.values())


def gemm_rate(dtype: str, repeats: int) -> float:
    """FLOP a second of a square matrix product in an element type.

    Of 2048 rows, or of fewer where that would take seconds: torch has no fast bf16 product on a CPU without its
    instructions.
    """
    largest = (torch.randn(2048, 2048).to(DTYPES[dtype]), torch.randn(2048, 2048).to(DTYPES[dtype]))

    def seconds(size: int, times: int) -> float:
        a, b = (each[:size, :size].contiguous() for each in largest)
        return alternate({"mm": lambda: a @ b}, times)["mm"]

    size = 256
    while size < len(largest[0]) and seconds(size, 1) < 0.02:
        size *= 2
    return 2 * size**3 / seconds(size, max(3, repeats // 3))


def _kernel_call(cell: Problem, tensors: Tensors) -> Call:
    kernel = find(cell.config(HOST))
    ((positional, named),) = calls_of(kernel, tensors)
    return lambda: kernel(*positional, **named)


def _torch_calls(tensors: Tensors) -> dict[str, Call]:
    """The formulations that torch offers: the heads are the query rows of one shared KV head."""
    q, kv = tensors.q[0, :, 0], _rows(tensors)
    v = kv[..., :LATENT]

    def matmul() -> object:
        return torch.softmax(torch.matmul(q, kv.mT) * SCALE, dim=-1) @ v

    def sdpa() -> object:
        return scaled_dot_product_attention(q[:, None], kv[:, None], v[:, None], scale=SCALE)

    def square_sdpa() -> object:
        """With V as wide as K, which torch's flash attention on the CPU asks for."""
        return scaled_dot_product_attention(q[:, None], kv[:, None], kv[:, None], scale=SCALE)[..., :LATENT]

    return {"matmul": matmul, "SDPA": sdpa, "SDPA, V 576 wide": square_sdpa}


def _rows(tensors: Tensors) -> torch.Tensor:
    """The cache of each request, ``[batch, seq, 576]``, in the type of Q."""
    cell = tensors.cell
    slots = tensors.block_table[0].long()[:, :, None] * cell.page_size + torch.arange(cell.page_size)
    slots = slots.view(cell.batch, -1)[:, : cell.seq].flatten().int()
    rows: torch.Tensor = mla_kernels.gather_kv(tensors.kv_cache, slots, out_dtype=cell.q_dtype)
    return rows.view(cell.batch, cell.seq, HEAD_DIM)
