"""Measures what the sm100 payload does around its kernel, on a GPU that cannot run it: ``--json FILE`` keeps it.

The payload is the emulating one (``nox -s emulation``). Host: the C call ``mla_launch`` with CUTLASS's kernel left out,
or replaced by an empty one of the same shape, with its tensor maps remembered and not. Device: preparing rows and
unpacking results, by graph replay.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.formats import HEAD_DIM, LATENT
from mla_kernels.payloads.discovery import payloads

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from codegen import abi  # noqa: E402

IDLE, NOTHING = 1, 2
VARIANT = "sm100f_decode_qbf16_kvbf16_obf16_tma_individual"
BATCH, BATCHES = 50, 40
TIMER = """
#include <stdint.h>
#include <time.h>
typedef int (*launch)(int64_t, const void*, const void*, int64_t, void*, int64_t, void*);
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
int run(launch f, int64_t variant, void** problems, int n, void* workspace, int64_t bytes, void* stream, double* us) {
  for (int i = 0; i < n; ++i) {
    const double start = now();
    const int status = f(variant, problems[i], 0, 0, workspace, bytes, stream);
    us[i] = now() - start;
    if (status) return status;
  }
  return 0;
}
"""
CTYPES: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "int64": ctypes.c_int64,
    "int32": ctypes.c_int32,
    "float": ctypes.c_float,
}


class Problem(ctypes.Structure):
    """``mla_decode_problem``."""

    _fields_ = [(field.name, CTYPES[field.ctype]) for field in abi.OP["decode"].fields]


def tensors(batch: int, heads: int, tokens: int, page_size: int = 128) -> dict[str, Any]:
    """Make the tensors of a paged decode with one token for each request."""
    pages = batch * tokens // page_size
    return {
        "q": torch.randn(batch, 1, heads, HEAD_DIM, device="cuda").bfloat16(),
        "kv_cache": torch.zeros(pages, page_size, HEAD_DIM, device="cuda", dtype=torch.bfloat16),
        "block_table": torch.randperm(pages, device="cuda").int().view(batch, -1),
        "seq_lens": torch.full((batch,), tokens, dtype=torch.int32, device="cuda"),
        "out": torch.empty(batch, 1, heads, LATENT, device="cuda", dtype=torch.bfloat16),
        "lse": torch.empty(batch, heads, 1, device="cuda"),
    }


def struct(given: dict[str, Any]) -> Problem:
    """Fill the problem struct of contiguous tensors."""
    batch, _, heads, _ = given["q"].shape
    pages, page_size, _ = given["kv_cache"].shape
    width = given["block_table"].shape[1]
    values: dict[str, Any] = {"op": list(abi.OP).index("decode"), "batch": batch, "q_len": 1, "num_heads": heads}
    for name, tensor, row in (("q", given["q"], heads * HEAD_DIM), ("kv", given["kv_cache"], page_size * HEAD_DIM)):
        for view, offset in (("latent", 0), ("rope", LATENT * tensor.element_size())):
            values[f"{name}_{view}"] = tensor.data_ptr() + offset
            strides = {"b": row, "s": row, "h": HEAD_DIM} if name == "q" else {"page": row, "token": HEAD_DIM}
            values |= {f"{name}_{view}_stride_{letter}": stride for letter, stride in strides.items()}
    values |= {"block_table": given["block_table"].data_ptr(), "block_table_stride_b": width, "table_width": width}
    values |= {"out": given["out"].data_ptr(), "out_stride_b": heads * LATENT, "out_stride_s": heads * LATENT}
    values |= {"out_stride_h": LATENT, "lse": given["lse"].data_ptr(), "lse_stride_b": heads, "lse_stride_h": 1}
    values |= {"lse_stride_s": 1, "seq_lens": given["seq_lens"].data_ptr(), "num_pages": pages, "page_size": page_size}
    values |= {"softmax_scale": 0.1, "q_scale": 1.0, "kv_scale": 1.0, "out_scale": 1.0, "causal": 1, "max_splits": 1}
    return Problem(**values)


class Host:
    """Times the C call of a launch."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        folder = Path(tempfile.mkdtemp())
        (folder / "timer.c").write_text(TIMER)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "timer.so", folder / "timer.c"], check=True)
        self.timer = ctypes.CDLL(str(folder / "timer.so"))
        self.variant = payloads().found["sm100"].library.names.index(VARIANT)
        self.workspace = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")

    def microseconds(self, problems: Sequence[Problem]) -> dict[str, float]:
        """Return the best and the median call over ``problems`` in turn; the device is idle before every fifty."""
        taken: list[float] = []
        for number in range(BATCHES):
            chosen = [problems[(number * BATCH + i) % len(problems)] for i in range(BATCH)]
            pointers = (ctypes.c_void_p * BATCH)(*(ctypes.addressof(one) for one in chosen))
            samples = (ctypes.c_double * BATCH)()
            status = self.timer.run(
                ctypes.cast(self.library.mla_launch, ctypes.c_void_p), ctypes.c_int64(self.variant), pointers, BATCH,
                ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_int64(self.workspace.numel()),
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), samples,
            )  # fmt: skip
            assert status == 0, status
            torch.cuda.synchronize()
            taken += samples[:]
        return {"best": min(taken), "median": statistics.median(taken)}


def device_microseconds(batch: int, heads: int, max_splits: int = 1) -> float:
    """Time the kernels around the one left out, by replaying a graph of 20 launches."""
    given = tensors(batch, heads, 4096)
    kernel = mla.lookup(
        op="decode", arch="sm100f", q_dtype="bf16", load="tma", schedule="individual", page_size=128, num_heads=heads,
        q_len=1,
    )  # fmt: skip
    plan = kernel.plan(given["seq_lens"], max_splits=max_splits)
    size = kernel.workspace_size(**given, max_splits=max_splits)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    kernel(**given, plan=plan, workspace=workspace, softmax_scale=0.1)
    with torch.cuda.graph(graph):
        for _ in range(20):
            kernel(**given, plan=plan, workspace=workspace, softmax_scale=0.1)
    samples: list[float] = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
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
    host = Host(library)
    kept = [tensors(16, 128, 512)] + [tensors(1, 128, 128) for _ in range(BATCH * BATCHES)]
    problems = [struct(each) for each in kept]
    figures: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "host us": {}, "device us": {}}
    for name, value in (("kernel left out", NOTHING), ("empty kernel", IDLE)):
        mode.value = value
        figures["host us"][f"{name}, maps not remembered"] = host.microseconds(problems[1:])
        figures["host us"][f"{name}, maps remembered"] = host.microseconds(problems[:1])
    mode.value = NOTHING
    for heads in (16, 64, 128):
        for batch, splits in ((1, 1), (1, 8), (16, 1), (16, 8), (128, 1)):
            taken = device_microseconds(batch, heads, splits)
            figures["device us"][f"heads {heads}, batch {batch}, splits {splits}"] = taken
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
