"""Decode context parallelism against one device: ``torchrun --nproc-per-node 2 -m benchmarks.context_parallel JSON``.

Every cell is a decode of 128 heads over a bf16 cache with pages of 64 tokens, in a CUDA graph of several layers. ``one
device`` has all tokens and heads. ``all-to-all`` is ``mla_kernels.distributed``: each rank has 128 / ranks of the heads
and the pages of its rank; ``reduce-scatter`` is the same by an all-gather of LSEs and a sum of scaled outputs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

import mla_kernels as mla
import torch
import torch.distributed as dist
from mla_kernels.diagnostics.bench.problems import SCALE
from mla_kernels.diagnostics.bench.timing import Call
from mla_kernels.distributed import ContextParallel, Step
from mla_kernels.formats import HEAD_DIM, LATENT

from benchmarks.ops import cuda

HEADS, PAGE, LAYERS = 128, 64, 4
CELLS = [(batch, seq << 10) for seq in (128, 512, 1024) for batch in (1, 4, 16) if batch * seq <= 8192]
"""Requests, and tokens of each."""


class Cell:
    """The tensors of a cell on one rank; all ranks make the same queries."""

    def __init__(self, batch: int, seq: int, ranks: int) -> None:
        torch.manual_seed(seq + batch)
        self.q = torch.randn(batch, 1, HEADS, HEAD_DIM, device="cuda").bfloat16()
        self.tokens = seq // ranks
        pages = batch * self.tokens // PAGE
        self.kv_cache = torch.empty(pages, PAGE, HEAD_DIM, dtype=torch.bfloat16, device="cuda").normal_()
        self.block_table = torch.randperm(pages, dtype=torch.int32, device="cuda").view(batch, -1)
        self.seq_lens = torch.full((batch,), seq, dtype=torch.int32, device="cuda")


def replayed(layer: Call, repeats: int) -> float:
    """Microseconds of a layer in a graph of some; the median of replays that all ranks begin together."""
    layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAYERS):
            layer()
    times = []
    for _ in range(repeats):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / LAYERS)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def of_one_device(batch: int, seq: int) -> Call:
    """A launch over the whole cache."""
    cell = Cell(batch, seq, 1)
    kernel = mla.lookup(op="decode", q_dtype="bf16", kv_dtype="bf16", page_size=PAGE, num_heads=HEADS, q_len=1)
    plan, out = kernel.plan(cell.seq_lens), torch.empty(batch, 1, HEADS, LATENT, dtype=torch.bfloat16, device="cuda")

    def launch() -> None:
        kernel(cell.q, cell.kv_cache, cell.block_table, cell.seq_lens, plan=plan, softmax_scale=SCALE, out=out)

    return launch


def of_all_to_all(batch: int, seq: int, ranks: int) -> tuple[Call, Cell, Step]:
    """A layer of ``mla_kernels.distributed``."""
    cell, parallel = Cell(batch, seq, ranks), ContextParallel(interleave=PAGE)
    own = cell.q.chunk(ranks, 2)[dist.get_rank()].contiguous()
    step = parallel.step(own, cell.kv_cache, cell.block_table, cell.seq_lens)
    return lambda: parallel.decode(own, cell.kv_cache, step, softmax_scale=SCALE), cell, step


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
        out, lse = mla.decode(q, cell.kv_cache, cell.block_table, step.lengths, plan=step.plans[0], softmax_scale=SCALE)
        mine = lse[:, :, 0].transpose(0, 1).contiguous()
        dist.all_gather_into_tensor(lses.view(-1, batch), mine)
        weight = (mine - lses.logsumexp(0)).exp()
        dist.reduce_scatter_tensor(summed, (out[:, 0].transpose(0, 1) * weight[..., None]).bfloat16().contiguous())

    return layer


def measure(batch: int, seq: int, repeats: int) -> dict[str, object]:
    """Times of a cell, in microseconds of a layer."""
    ranks = dist.get_world_size()
    one = replayed(of_one_device(batch, seq), repeats)
    layer, cell, step = of_all_to_all(batch, seq, ranks)
    all_to_all = replayed(layer, repeats)
    reduce_scatter = replayed(of_reduce_scatter(cell, step, ranks), repeats)
    return {
        "batch": batch,
        "seq": seq,
        "one device us": one,
        "all-to-all us": all_to_all,
        "reduce-scatter us": reduce_scatter,
        "one device / all-to-all": one / all_to_all,
    }


def main() -> None:
    """Measure all cells and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context_parallel", description=__doc__)
    parser.add_argument("data", type=Path, metavar="JSON")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rows = []
    for batch, seq in CELLS:
        rows.append(measure(batch, seq, options.repeats))
        torch.cuda.empty_cache()
        if dist.get_rank() == 0:
            print(rows[-1], flush=True)
            document = {"ranks": dist.get_world_size(), "machine": cuda.machine(), "rows": rows}
            options.data.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
