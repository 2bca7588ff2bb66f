"""Measures what the sm100 payload does around its kernel, on a GPU that cannot run it: ``--json FILE`` keeps it.

The payload is the emulating one (``nox -s emulation``). Host: one launch with CUTLASS's kernel replaced by an empty
kernel of the same shape, or left out, with tensor maps cached and not. Device: preparing rows and unpacking results.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from pathlib import Path
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.discovery import payloads

IDLE, NOTHING = 1, 2
VARIANT = {"q_dtype": "bf16", "load": "tma", "schedule": "individual"}


def problem(batch: int, heads: int, tokens: int = 4096, page_size: int = 128) -> dict[str, Any]:
    """A paged decode of one token a request."""
    pages = batch * tokens // page_size
    return {
        "q": torch.randn(batch, 1, heads, 576, device="cuda").bfloat16(),
        "kv_cache": torch.zeros(pages, page_size, 576, device="cuda", dtype=torch.bfloat16),
        "block_table": torch.randperm(pages, device="cuda").int().view(batch, -1),
        "seq_lens": torch.full((batch,), tokens, dtype=torch.int32, device="cuda"),
        "out": torch.empty(batch, 1, heads, 512, device="cuda", dtype=torch.bfloat16),
        "lse": torch.empty(batch, heads, 1, device="cuda"),
    }


def host_microseconds(
    mode: ctypes.c_int, what: int, given: list[dict[str, Any]], calls: int = 2000
) -> dict[str, float]:
    """Time of the C launch itself, per call, going through ``given`` in turn."""
    mode.value = what
    kernel = mla.lookup(op="decode", arch="sm100f", page_size=128, num_heads=128, q_len=1, **VARIANT)
    size = max(kernel._native.workspace_size({**one, "max_splits": 1}) for one in given)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    tuples = [
        (one["q"], one["kv_cache"], one["block_table"], one["seq_lens"], one["out"], one["lse"],
         0.1, 1.0, 1.0, 1.0, True, 1, False, None, workspace, None)
        for one in given
    ]  # fmt: skip
    times = []
    for number in range(calls):
        arguments = tuples[number % len(tuples)]
        start = time.perf_counter_ns()
        kernel._native.launch(*arguments)
        times.append(time.perf_counter_ns() - start)
        if number % 50 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    times.sort()
    return {"best": times[0] / 1e3, "median": statistics.median(times) / 1e3}


def device_microseconds(mode: ctypes.c_int, batch: int, heads: int, max_splits: int = 1) -> float:
    """Time of the kernels around the left-out one, by replaying a graph of 20 launches."""
    mode.value = NOTHING
    given = problem(batch, heads)
    kernel = mla.lookup(op="decode", arch="sm100f", page_size=128, num_heads=heads, q_len=1, **VARIANT)
    plan = kernel.plan(given["seq_lens"], num_heads=heads, q_len=1, max_splits=max_splits)
    workspace = torch.empty(
        kernel._native.workspace_size({**given, "max_splits": max_splits}), dtype=torch.uint8, device="cuda"
    )
    run = lambda: kernel(**given, plan=plan, workspace=workspace, softmax_scale=0.1)  # noqa: E731
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            run()
    samples = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / 20)
    return statistics.median(samples)


def main() -> None:
    """Print every figure; write them as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    library = ctypes.CDLL(str(payloads().found["sm100"].folder / "libmla_sm100.so"))
    mode = ctypes.c_int.in_dll(library, "mla_emulation_mode")
    same, others = [problem(16, 128, 512)], [problem(1, 128, 128) for _ in range(2500)]
    figures: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "host": {
            "cached, empty kernel": host_microseconds(mode, IDLE, same),
            "cached, no kernel": host_microseconds(mode, NOTHING, same),
            "not cached, empty kernel": host_microseconds(mode, IDLE, others),
            "not cached, no kernel": host_microseconds(mode, NOTHING, others),
        },
        "device": {
            f"batch {batch}, heads {heads}, splits {splits}": device_microseconds(mode, batch, heads, splits)
            for batch in (1, 16, 128)
            for heads in (16, 64, 128)
            for splits in (1, 8)
            if batch * splits < 512
        },
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
