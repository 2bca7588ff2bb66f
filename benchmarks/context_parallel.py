"""Decode context parallelism against one device: ``torchrun --nproc-per-node 2 -m benchmarks.context_parallel JSON``.

Every cell is a decode of 128 heads over a bf16 cache with pages of 64 tokens, in a CUDA graph of ``--layers``. ``one
device`` has all tokens and heads. ``all-to-all`` and ``symmetric memory`` are the two exchanges of
``mla_kernels.distributed``: each rank has 128 / ranks of the heads and the pages of its rank. ``reduce-scatter`` is the
same by an all-gather of LSEs and a sum of scaled outputs. ``--parts`` adds a table of what each launch takes alone.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from functools import partial
from itertools import cycle
from math import prod
from pathlib import Path

import mla_kernels as mla
import torch
import torch.distributed as dist
from mla_kernels.diagnostics.bench.problems import SCALE
from mla_kernels.diagnostics.bench.timing import Call
from mla_kernels.distributed import ContextParallel, Step
from mla_kernels.formats import HEAD_DIM, LATENT

from benchmarks.exchange_parts import Row, in_turns, parts
from benchmarks.ops import cuda

HEADS, PAGE = 128, 64
CELLS = [(batch, seq << 10) for seq in (128, 512, 1024) for batch in (1, 4, 16) if batch * seq <= 8192]
"""Requests, and tokens of each."""
PARTS = (1, 4, 16)
"""Requests of the tables of parts."""
_LEAST_BYTES = 256 << 20
"""Of the caches of a cell on one rank."""


class Cell:
    """The tensors of a cell on one rank; all ranks make the same queries.

    Attributes
    ----------
    kv_caches : iterator of tensors
        Layer after layer in turn; together they are several times as large as the L2 cache.
    """

    def __init__(self, batch: int, seq: int, ranks: int) -> None:
        torch.manual_seed(seq + batch)
        self.q = torch.randn(batch, 1, HEADS, HEAD_DIM, device="cuda").bfloat16()
        self.tokens = seq // ranks
        pages = batch * self.tokens // PAGE
        shape = pages, PAGE, HEAD_DIM
        caches = -(-_LEAST_BYTES // (prod(shape) * torch.bfloat16.itemsize))
        self.kv_caches = cycle(
            [torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_() for _ in range(caches)]
        )
        self.block_table = torch.randperm(pages, dtype=torch.int32, device="cuda").view(batch, -1)
        self.seq_lens = torch.full((batch,), seq, dtype=torch.int32, device="cuda")


def of_one_device(batch: int, seq: int) -> Call:
    """A launch over the whole cache."""
    cell = Cell(batch, seq, 1)
    kernel = mla.lookup(op="decode", q_dtype="bf16", kv_dtype="bf16", page_size=PAGE, num_heads=HEADS, q_len=1)
    plan, out = kernel.plan(cell.seq_lens), torch.empty(batch, 1, HEADS, LATENT, dtype=torch.bfloat16, device="cuda")

    def launch() -> None:
        kernel(cell.q, next(cell.kv_caches), cell.block_table, cell.seq_lens, plan=plan, softmax_scale=SCALE, out=out)

    return launch


def of_package(parallel: ContextParallel, cell: Cell) -> tuple[Call, Step]:
    """A layer of ``mla_kernels.distributed``."""
    own = cell.q.chunk(parallel.world_size, 2)[dist.get_rank()].contiguous()
    step = parallel.step(own, next(cell.kv_caches), cell.block_table, cell.seq_lens)
    return lambda: parallel.decode(own, next(cell.kv_caches), step, softmax_scale=SCALE), step


def of_reduce_scatter(cell: Cell, step: Step, ranks: int) -> Call:
    """A layer that sums scaled outputs in bf16."""
    own = cell.q.chunk(ranks, 2)[dist.get_rank()].contiguous()
    batch, heads = own.shape[0], own.shape[2]
    queries = own.new_empty(ranks * heads, batch, HEAD_DIM)
    lses = own.new_empty(ranks, HEADS, batch, dtype=torch.float32)
    summed = own.new_empty(heads, batch, LATENT)

    def layer() -> None:
        dist.all_gather_into_tensor(queries, own[:, 0].transpose(0, 1).contiguous())
        q = queries.transpose(0, 1)[:, None]
        cache = next(cell.kv_caches)
        out, lse = mla.decode(q, cache, cell.block_table, step.lengths, plan=step.plans[0], softmax_scale=SCALE)
        mine = lse[:, :, 0].transpose(0, 1).contiguous()
        dist.all_gather_into_tensor(lses.view(-1, batch), mine)
        weight = (mine - lses.logsumexp(0)).exp()
        dist.reduce_scatter_tensor(summed, (out[:, 0].transpose(0, 1) * weight[..., None]).bfloat16().contiguous())

    return layer


def measure(batch: int, seq: int, parallels: Mapping[str, ContextParallel], options: argparse.Namespace) -> Row:
    """Times of a cell, in microseconds of a layer."""
    ranks = dist.get_world_size()
    cell = Cell(batch, seq, ranks)
    calls = {"one device": of_one_device(batch, seq)}
    for name, parallel in parallels.items():
        calls[name], step = of_package(parallel, cell)
    calls["reduce-scatter"] = of_reduce_scatter(cell, step, ranks)
    us = in_turns(calls, options.repeats, options.layers)
    row: Row = {"batch": batch, "seq": seq, **{f"{name} us": time for name, time in us.items()}}
    return row | {f"one device / {name}": us["one device"] / us[name] for name in parallels}


def main() -> None:
    """Measure all cells and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context_parallel", description=__doc__)
    parser.add_argument("data", type=Path, metavar="JSON")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--layers", type=int, default=16, help="layers of a graph")
    parser.add_argument("--seq", type=int, help="tokens of each request; by default all", metavar="TOKENS")
    parser.add_argument("--parts", action="store_true", help="add what each launch takes alone")
    options = parser.parse_args()
    if not {"LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys():
        parser.error("torchrun starts it, with a process for each GPU: torchrun --nproc-per-node 2 -m ...")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallels = {"all-to-all": ContextParallel(interleave=PAGE, exchange="collectives")}
    if (free := ContextParallel(interleave=PAGE)).exchange == "symmetric_memory":
        parallels["symmetric memory"] = free
    tables: dict[str, list[Row]] = {"rows": [], "parts": []}
    document = {"ranks": dist.get_world_size(), "layers": options.layers, "machine": cuda.machine(), **tables}
    cells = [cell for cell in CELLS if options.seq in (None, cell[1])]
    works = [("rows", partial(measure, *cell, parallels, options)) for cell in cells]
    if options.parts and "symmetric memory" in parallels:
        works += [("parts", partial(parts, batch, options.repeats, HEADS)) for batch in PARTS]
    for table, work in works:
        tables[table].append(work())
        torch.cuda.empty_cache()
        if dist.get_rank() == 0:
            print(tables[table][-1], flush=True)
            options.data.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
