"""The ops around attention on CUDA: cells of every variant, the bytes that they move, and how they are timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mla_kernels
import torch
from mla_kernels.diagnostics.bench.problems import BYTES
from mla_kernels.diagnostics.bench.tensors import DTYPES, seeded
from mla_kernels.diagnostics.tables import Row
from mla_kernels.formats import FORMATS, HEAD_DIM, LATENT
from mla_kernels.kernels.base import Kernel

from benchmarks.ops import run_cuda
from benchmarks.ops.run_cuda import Bench

METHOD = {
    "us": f"{run_cuda.REPLAYED} Few rows stay in the L2.",
    "TB/s": "What is read and what is written, once; padding of a cache's rows included.",
    "of ceiling": "Of the copy's rate.",
}
ROW_BYTES = {row.name: row.token_bytes for row in FORMATS if (row.d_qk, row.d_v) == (HEAD_DIM, LATENT)}
PAGE = 64
MANY, FEW = 1 << 18, 128
"""Rows of a cell: a prompt's, and a decode step's."""
TOPK = 2048
ORDERS = ("in order", "permuted")


@dataclass(frozen=True, slots=True)
class CacheCell:
    """Rows through one variant of ``store_kv``, ``gather_kv`` or ``to_global_indices``.

    Attributes
    ----------
    op : str
    source, target : str
        Element types of what is read and of what is written.
    rows : int
        Tokens.
    order : str
        Of the slots: ``in order`` or ``permuted``.
    """

    op: str
    source: str
    target: str
    rows: int
    order: str

    @property
    def counts(self) -> dict[str, int]:
        """Bytes read and written."""
        if self.op == "to_global_indices":
            return {"bytes": 8 * self.rows * TOPK}
        index = 8 if self.op == "store_kv" else 4
        return {"bytes": self.rows * (ROW_BYTES[self.source] + ROW_BYTES[self.target] + index)}

    @property
    def input_bytes(self) -> int:
        """Half of what is moved."""
        return self.counts["bytes"] // 2

    def config(self, arch: str) -> dict[str, object]:
        """What to look up for it."""
        config: dict[str, object] = {"op": self.op, "arch": arch, "page_size": PAGE}
        if self.op == "store_kv":
            return config | {"in_dtype": self.source, "kv_dtype": self.target}
        return config | (
            {"kv_dtype": self.source, "out_dtype": self.target} if self.op == "gather_kv" else {"topk": TOPK}
        )

    @property
    def fields(self) -> dict[str, object]:
        """What tells this cell from another, as columns of the table."""
        return {"op": self.op, "from": self.source, "to": self.target, "rows": self.rows, "order": self.order}


def cells(arch: str) -> tuple[CacheCell, ...]:
    """Every variant of an arch that has rows of the default width, over many rows in both orders and over few."""
    return tuple(_cells(arch))


def _cells(arch: Any) -> Iterator[CacheCell]:
    sizes = ((MANY, ORDERS[0]), (MANY, ORDERS[1]), (FEW, ORDERS[1]))
    for op, source, target in (("store_kv", "in_dtype", "kv_dtype"), ("gather_kv", "kv_dtype", "out_dtype")):
        for variant in mla_kernels.variants(op=op, arch=arch, d_qk=HEAD_DIM):
            for rows, order in sizes:
                yield CacheCell(op, str(variant.baked[source]), str(variant.baked[target]), rows, order)
    if mla_kernels.variants(op="to_global_indices", arch=arch):
        for rows in (MANY // 8, MANY // 64, FEW):
            yield CacheCell("to_global_indices", "int32", "int32", rows, ORDERS[1])


class CacheTensors:
    """The positional and named arguments of each problem of a cell."""

    def __init__(self, cell: CacheCell, device: torch.device, count: int = 1) -> None:
        self._generator, self._device = seeded(device), device
        make = {"store_kv": self._store, "gather_kv": self._gather, "to_global_indices": self._translate}[cell.op]
        self.problems: list[tuple[tuple[torch.Tensor, ...], dict[str, Any]]] = [make(cell) for _ in range(count)]

    def _store(self, cell: CacheCell) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        latent, rope = self._parts(cell.rows, cell.source)
        scale = {"scale": torch.full((1,), 0.0137, device=self._device)} if cell.target == "e4m3" else {}
        return (latent, rope, self._cache(cell.rows, cell.target), self._slots(cell)), scale

    def _gather(self, cell: CacheCell) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        cache = self._cache(cell.rows, cell.source)
        latent, rope = self._parts(cell.rows, cell.source if cell.source in BYTES else "bf16")
        scale = torch.ones(1, device=self._device) if cell.source == "e4m3" else None
        mla_kernels.store_kv(latent, rope, cache, torch.arange(cell.rows, device=self._device), scale=scale)
        out = torch.empty(cell.rows, HEAD_DIM, dtype=DTYPES[cell.target], device=self._device)
        return (cache, self._slots(cell).int()), {"out": out}

    def _translate(self, cell: CacheCell) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        table_width = 512  # pages of a request
        table = (
            torch.randperm(FEW * table_width, device=self._device, generator=self._generator)
            .int()
            .view(FEW, table_width)
        )
        shape = (cell.rows, TOPK)
        positions = torch.randint(table_width * PAGE, shape, device=self._device, generator=self._generator).int()
        requests = torch.arange(cell.rows, device=self._device).int() % FEW
        return (requests, table, positions), {"page_size": PAGE, "out": torch.empty_like(positions)}

    def _parts(self, rows: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Random latents and rope parts, views of one tensor as a projection gives them."""
        made = torch.randn(rows, HEAD_DIM, dtype=DTYPES[dtype], device=self._device, generator=self._generator)
        return made[:, :LATENT], made[:, LATENT:]

    def _cache(self, rows: int, dtype: str) -> torch.Tensor:
        stored = DTYPES.get(dtype, torch.uint8)
        width = HEAD_DIM if dtype in DTYPES else ROW_BYTES[dtype]
        return torch.empty(rows // PAGE, PAGE, width, dtype=stored, device=self._device)

    def _slots(self, cell: CacheCell) -> torch.Tensor:
        if cell.order == ORDERS[0]:
            return torch.arange(cell.rows, device=self._device)
        return torch.randperm(cell.rows, device=self._device, generator=self._generator)


def times(bench: Bench, kernel: Kernel, tensors: CacheTensors) -> Mapping[str, float | None]:
    """Microseconds of a launch."""

    def launch(i: int) -> None:
        positional, named = tensors.problems[i]
        kernel(*positional, **named)

    return {"us": bench.replayed(launch, len(tensors.problems))}


def of_copy(cell: CacheCell, us: float | None, ceilings: Mapping[str, float]) -> Row:
    """The rate of a cell, and the fraction of a copy's."""
    if us is None:
        return {"TB/s": None, "of ceiling": None}
    rate = cell.counts["bytes"] / us / 1e6
    return {"TB/s": rate, "of ceiling": rate / ceilings["copy TB/s"]}


OP = run_cuda.Op("caches", METHOD, times, CacheTensors, of_copy, ("copy TB/s",))
