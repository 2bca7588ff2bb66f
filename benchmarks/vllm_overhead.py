"""What vLLM's plug-in adds to a layer: ``python -m benchmarks.vllm_overhead JSON``.

A row is one decode step over pages of 64 tokens, bf16 queries. ``plug-in`` is ``forward_mqa`` of a layer, as vLLM's
layer calls it. It is compared with the ops alone, which are given outputs, plan and workspace, and allocate nothing:
``mla.decode``, or ``mla.to_global_indices`` and ``mla.sparse_decode``. ``host us`` is how long the host is busy with a
call that it makes eagerly; calls of both are timed in turns. ``graph us`` is what a layer of a graph takes the device.
vLLM is not needed: its base classes are stand-ins.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.devices.machine import current_arch
from mla_kernels.diagnostics.bench.timing import Call, replayed
from mla_kernels.formats import LATENT, ROPE

from benchmarks.ops import cuda
from tests.runtime.compat.stand_ins import RELEASES, installed
from tests.runtime.compat.steps.stub_engine import PAGE, SCALE, DenseStep, SparseStep

LAYERS, TOPK, CALLS = 4, 2048, 100
"""``CALLS`` in a row, of up to three kernels each, stay below the thousand launches that a stream queues."""
CELLS: tuple[dict[str, Any], ...] = tuple(
    {"batch": batch, "heads": heads, "q_len": q_len, "cache": cache}
    for cache in ("auto", "fp8", "sparse", "sparse fp8_ds_mla")
    for batch, heads, q_len in ((1, 16, 1), (1, 128, 1), (16, 16, 1), (16, 128, 1), (16, 128, 2), (128, 16, 1))
)
SEQ = 4096
"""Tokens of each request."""
Calls = tuple[list[Call], list[Call]]
"""One call a layer, of the plug-in and of the ops alone."""


def of_dense(step: DenseStep) -> Calls:
    """Layers of dense attention."""
    metadata = step.metadata()
    decode = metadata.decode
    shape = (len(step.lengths), step.q_len, step.heads)
    alone: list[Call] = []
    for (latent, rope), cache in zip(step.queries, step.caches, strict=True):
        q = (latent.view(*shape, LATENT), rope.view(*shape, ROPE))
        out = torch.empty(*q[0].shape, dtype=latent.dtype, device=latent.device)
        size = decode.kernel.workspace_size(q=q, kv_cache=cache, block_table=step.table, seq_lens=step.lengths)
        arguments: dict[str, Any] = {
            "plan": decode.plan,
            "softmax_scale": SCALE,
            "kv_scale": step.kv_scale,
            "out": out,
            "lse": False,
        }
        workspace = torch.empty(size, dtype=torch.uint8, device=latent.device)
        alone.append(partial(mla.decode, q, cache, step.table, step.lengths, workspace=workspace, **arguments))
    return [
        partial(impl.forward_mqa, q, cache, metadata, step.scales)
        for impl, q, cache in zip(step.impls, step.queries, step.caches, strict=True)
    ], alone


def of_sparse(step: SparseStep) -> Calls:
    """Layers of sparse attention, without the writes of new tokens."""
    metadata = step.metadata()
    arch: Any = current_arch()
    alone: list[Call] = []
    for (latent, rope), cache in zip(step.queries, step.caches, strict=True):
        q = (latent[None], rope[None])
        out, slots = torch.empty(*q[0].shape, dtype=latent.dtype, device=latent.device), step.selected.clone()
        selected = slots[None]
        kernel = mla.lookup(
            op="sparse_decode",
            arch=arch,
            q_dtype="bf16",
            kv_dtype="bf16" if step.cache_dtype == "auto" else step.cache_dtype,
        )
        size = kernel.workspace_size(q=q, kv_cache=cache, indices=selected)
        options: dict[str, Any] = {
            "out": out,
            "lse": False,
            "workspace": torch.empty(size, dtype=torch.uint8, device=latent.device),
        }
        translate = partial(
            mla.to_global_indices, metadata.req_id_per_token, step.table, step.selected, page_size=PAGE, out=slots
        )
        attend = partial(mla.sparse_decode, q, cache, selected, softmax_scale=SCALE, **options)
        alone.append(partial(_both, translate, attend))
    return [
        partial(impl.forward_mqa, q, cache, metadata, None)
        for impl, q, cache in zip(step.impls, step.queries, step.caches, strict=True)
    ], alone


def _both(first: Call, second: Call) -> None:
    first()
    second()


def on_host(calls: Mapping[str, Call], repeats: int, device: str) -> dict[str, float]:
    """Median microseconds of each call, in turns of ``CALLS``."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, call in calls.items():
                if device == "cuda":
                    torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                taken[name].append((time.perf_counter() - start) / CALLS * 1e6)
    finally:
        if collecting:
            gc.enable()
    return {name: statistics.median(times) for name, times in taken.items()}


def measure(cell: Mapping[str, Any], repeats: int, device: str, seq: int = SEQ) -> dict[str, Any]:
    """Both times of a cell, of the plug-in and of the ops alone."""
    *_, release = RELEASES
    shape = {"layers": LAYERS, "heads": cell["heads"], "lengths": [seq] * cell["batch"], "q_len": cell["q_len"]}
    kind, _, cache_dtype = cell["cache"].rpartition(" ") if " " in cell["cache"] else (cell["cache"], "", "auto")
    with pytest.MonkeyPatch.context() as patch:
        for overrides in installed(patch, release):
            if kind == "sparse":
                plugin, alone = of_sparse(SparseStep(overrides, device, topk=TOPK, cache_dtype=cache_dtype, **shape))
            else:
                plugin, alone = of_dense(DenseStep(overrides, device, cache_dtype=kind, **shape))
    for call in (*plugin, *alone):
        call()
    host = on_host({"plug-in": plugin[0], "ops": alone[0]}, repeats, device)
    row = {**cell, "seq": seq, "host us": host, "overhead us": host["plug-in"] - host["ops"]}
    if device == "cuda":
        row["graph us"] = {
            name: replayed(calls, repeats) * 1e6 for name, calls in (("plug-in", plugin), ("ops", alone))
        }
    return row


def main() -> None:
    """Measure all cells and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_overhead", description=__doc__)
    parser.add_argument("data", type=Path, metavar="JSON")
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="a CPU tries the program out")
    parser.add_argument("--seq", type=int, default=SEQ, help="tokens of each request")
    options = parser.parse_args()
    rows = []
    for cell in CELLS:
        rows.append(measure(cell, options.repeats, options.device, options.seq))
        print(rows[-1], flush=True)
        document: dict[str, Any] = {"torch": torch.__version__, "rows": rows}
        if options.device == "cuda":
            torch.cuda.empty_cache()
            document["machine"] = cuda.machine()
        options.data.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
