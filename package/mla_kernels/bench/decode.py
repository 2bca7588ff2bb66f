"""A paged decode against what the machine can do and against the fastest torch formulation, in one process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import mla_kernels
from mla_kernels.bench.report import MissingPackageError, Progress, Row
from mla_kernels.bench.timing import Call, alternate
from mla_kernels.errors import ValueRangeError
from mla_kernels.kernel import LATENT
from mla_kernels.resolve import find

try:
    import torch
    from torch.nn.functional import scaled_dot_product_attention
except ImportError as error:
    raise MissingPackageError("torch", "torch") from error

ROW = 576
PAGE = 64
SCALE = 192**-0.5
_TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_KV_BYTES = {"fp32": 4 * ROW, "fp16": 2 * ROW, "bf16": 2 * ROW, "e4m3": ROW, "fp8_ds_mla": 656}


@dataclass(frozen=True, slots=True)
class Problem:
    """One cell of the table: every request has ``seq`` tokens, one of them new."""

    q_dtype: str
    kv_dtype: str
    num_heads: int
    batch: int
    seq: int

    @property
    def flop(self) -> int:
        """Two for each multiplication of ``Q K^T`` and ``P V``."""
        return 2 * self.batch * self.num_heads * self.seq * (ROW + LATENT)

    @property
    def bytes(self) -> int:
        """KV once, Q and the output."""
        size = _TORCH[self.q_dtype].itemsize
        return self.batch * (self.seq * _KV_BYTES[self.kv_dtype] + self.num_heads * (ROW + LATENT) * size)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured on: an arch, a number of cores, and how often."""

    arch: str | None
    threads: int | None
    repeats: int


def problems(dtypes: Sequence[str], heads: Sequence[int], batch: int, seq: int) -> tuple[Problem, ...]:
    """Every element type (``bf16``, or ``bf16:e4m3`` for Q and KV) with every number of heads."""
    result = []
    for name in dtypes:
        q_dtype, _, kv_dtype = name.partition(":")
        if q_dtype not in _TORCH or (kv_dtype or q_dtype) not in _KV_BYTES:
            raise ValueRangeError(
                "dtypes", repr(name), f"one of {', '.join(_TORCH)}, and after a colon {', '.join(_KV_BYTES)}"
            )
        result += [Problem(q_dtype, kv_dtype or q_dtype, num_heads, batch, seq) for num_heads in heads]
    return tuple(result)


def measure(cells: Sequence[Problem], settings: Settings, progress: Progress[Problem]) -> list[Row]:
    """Measure every problem on fresh random data; ceilings are measured in the same run.

    Returns
    -------
    list of dict
        Time, rates, the fraction of ``max(bytes / read rate, FLOP / GEMM rate)`` with the faster GEMM of the element
        type and fp32, and how many times faster than the fastest torch formulation, which reads a contiguous cache in
        the type of Q, dequantised beforehand.
    """
    use_cores(settings.threads)
    read = read_rate(settings.repeats)
    rates = {dtype: gemm_rate(dtype, settings.repeats) for dtype in ("fp32", *{cell.q_dtype for cell in cells})}
    gemm = {dtype: max(rate, rates["fp32"]) for dtype, rate in rates.items()}  # any type can be computed in fp32
    rows = []
    for cell in progress(cells, "decode"):
        calls = _torch_calls(cell, data := _Data(cell))
        times = alternate({"kernel": _kernel_call(cell, data, settings.arch), **calls}, settings.repeats)
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


def gemm_rate(dtype: str, repeats: int, size: int = 2048) -> float:
    """FLOP a second of a square matrix product in an element type."""
    a, b = (torch.randn(size, size).to(_TORCH[dtype]) for _ in range(2))
    return 2 * size**3 / alternate({"mm": lambda: a @ b}, max(3, repeats // 3))["mm"]


class _Data:
    """Random tensors of one problem: the paged cache as the kernel reads it, and the rows as torch does."""

    def __init__(self, cell: Problem) -> None:
        dtype = _TORCH[cell.q_dtype]
        width = -(-cell.seq // PAGE)
        self.q = torch.randn(cell.batch, 1, cell.num_heads, ROW).to(dtype)
        self.block_table = torch.randperm(cell.batch * width, dtype=torch.int32).reshape(cell.batch, width)
        self.seq_lens = torch.full((cell.batch,), cell.seq, dtype=torch.int32)
        rows = torch.randn(cell.batch * width * PAGE, ROW).to(dtype)
        self.kv_cache = _stored(rows, cell.kv_dtype, cell.batch * width)
        slots = self.block_table.long()[:, :, None] * PAGE + torch.arange(PAGE)
        gathered: torch.Tensor = mla_kernels.gather_kv(self.kv_cache, slots.flatten().int(), out_dtype=cell.q_dtype)
        self.rows = gathered.reshape(cell.batch, width * PAGE, ROW)[:, : cell.seq].contiguous()


def _stored(rows: torch.Tensor, kv_dtype: str, num_pages: int) -> torch.Tensor:
    """The rows as a paged cache; quantised by ``store_kv``."""
    if kv_dtype in _TORCH:
        return rows.reshape(num_pages, PAGE, ROW)
    cache = torch.empty(num_pages, PAGE, _KV_BYTES[kv_dtype], dtype=torch.uint8)
    scale = torch.ones(1) if kv_dtype == "e4m3" else None
    latent, rope = rows[:, :LATENT], rows[:, LATENT:]
    mla_kernels.store_kv(latent, rope, cache, torch.arange(len(rows)), scale=scale)
    return cache


def _kernel_call(cell: Problem, data: _Data, arch: str | None) -> Call:
    kernel = find(
        {
            "op": "decode",
            "arch": arch or "cpu",
            "q_dtype": cell.q_dtype,
            "kv_dtype": cell.kv_dtype,
            "kv_layout": "paged",
            "page_size": PAGE,
            "num_heads": cell.num_heads,
            "q_len": 1,
        }
    )
    plan = kernel.plan(data.seq_lens)
    out, lse = kernel(data.q, data.kv_cache, data.block_table, data.seq_lens, plan=plan, softmax_scale=SCALE)
    size = kernel.workspace_size(q=data.q, kv_cache=data.kv_cache, block_table=data.block_table)
    workspace = torch.empty(size, dtype=torch.uint8)
    return lambda: kernel(
        data.q, data.kv_cache, data.block_table, data.seq_lens, plan=plan, softmax_scale=SCALE, out=out, lse=lse,
        workspace=workspace,
    )  # fmt: skip


def _torch_calls(cell: Problem, data: _Data) -> dict[str, Call]:
    """The formulations that torch offers: the heads are the query rows of one shared KV head."""
    q, kv = data.q[:, 0], data.rows
    v = kv[..., :LATENT]

    def matmul() -> object:
        return torch.softmax(torch.matmul(q, kv.mT) * SCALE, dim=-1) @ v

    def sdpa() -> object:
        return scaled_dot_product_attention(q[:, None], kv[:, None], v[:, None], scale=SCALE)

    def square_sdpa() -> object:
        """With V as wide as K, which torch's flash attention on the CPU asks for."""
        return scaled_dot_product_attention(q[:, None], kv[:, None], kv[:, None], scale=SCALE)[..., :LATENT]

    return {"matmul": matmul, "SDPA": sdpa, "SDPA, V 576 wide": square_sdpa}
