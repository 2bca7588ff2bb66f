"""How sparse decode and sparse prefill are timed on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mla_kernels
import torch
from mla_kernels.diagnostics.bench.decode import Arguments
from mla_kernels.diagnostics.bench.problems import SCALE
from mla_kernels.kernels.base import Kernel

from benchmarks.ops import run_cuda
from benchmarks.ops.run_cuda import Bench
from benchmarks.ops.sparse_tensors import SparseDecodeTensors, SparsePrefillTensors

_METHOD = {
    "us": f"{run_cuda.REPLAYED} A token's selection is random and all present; merging is included.",
    "TFLOP/s": "Two for each multiplication, every new token with every key that it selects.",
    "of ceiling": "The larger of bytes over the read rate and FLOP over the matrix product's rate, over `us`.",
}
DECODE_METHOD = {
    "us": _METHOD["us"],
    "call us": "What one `mla.sparse_decode` takes of the host, with outputs and workspace given.",
    "TFLOP/s": _METHOD["TFLOP/s"],
    "TB/s": "The selected rows, each as often as it is selected, indices, Q and the output.",
    "of ceiling": _METHOD["of ceiling"],
}
PREFILL_METHOD = {
    "us": _METHOD["us"],
    "call us": "What one `mla.sparse_prefill` takes of the host, with outputs and workspace given.",
    "TFLOP/s": _METHOD["TFLOP/s"],
    "TB/s": "KV once, indices, Q and the output.",
    "of ceiling": _METHOD["of ceiling"],
}


def decode_calls(kernel: Kernel, tensors: SparseDecodeTensors) -> list[Arguments]:
    """The arguments of each problem; outputs and workspace are given, so that a launch allocates nothing."""
    problems = [_caches(tensors, i) for i in range(len(tensors.q))]
    given = _given(kernel.workspace_size(q=tensors.q[0], **problems[0]), tensors.q.device)
    return [
        ((q,), {**caches, **given, "out": out, "lse": lse})
        for q, caches, out, lse in zip(tensors.q, problems, tensors.out, tensors.lse, strict=True)
    ]


def prefill_calls(kernel: Kernel, tensors: SparsePrefillTensors) -> list[Arguments]:
    """The arguments of each problem; outputs and workspace are given, so that a launch allocates nothing."""
    size = kernel.workspace_size(q=tensors.q[0], kv=tensors.kv[0], indices=tensors.indices[0])
    given = _given(size, tensors.q.device)
    outputs = zip(tensors.out, tensors.max_logits, tensors.lse, strict=True)
    return [
        ((q, kv, indices), {**given, "out": out, "max_logits": max_logits, "lse": lse})
        for q, kv, indices, (out, max_logits, lse) in zip(tensors.q, tensors.kv, tensors.indices, outputs, strict=True)
    ]


def decode_times(bench: Bench, kernel: Kernel, tensors: SparseDecodeTensors) -> Mapping[str, float | None]:
    """Microseconds of a launch, and of the host in a call."""
    return _times(bench, kernel, mla_kernels.sparse_decode, decode_calls(kernel, tensors))


def prefill_times(bench: Bench, kernel: Kernel, tensors: SparsePrefillTensors) -> Mapping[str, float | None]:
    """Microseconds of a launch, and of the host in a call."""
    return _times(bench, kernel, mla_kernels.sparse_prefill, prefill_calls(kernel, tensors))


def _caches(tensors: SparseDecodeTensors, i: int) -> dict[str, torch.Tensor]:
    """The caches and indices of a problem: a window comes first, as engines pass it."""
    if not tensors.cell.window:
        return {"kv_cache": tensors.kv_cache, "indices": tensors.indices[i]}
    return {
        "kv_cache": tensors.window_cache,
        "indices": tensors.window_indices[i],
        "extra_kv_cache": tensors.kv_cache,
        "extra_indices": tensors.indices[i],
    }


def _given(size: int, device: torch.device) -> dict[str, object]:
    return {"workspace": torch.empty(size, dtype=torch.uint8, device=device), "softmax_scale": SCALE}


def _times(
    bench: Bench, kernel: Kernel, one_call: Callable[..., object], problems: Sequence[Arguments]
) -> Mapping[str, float | None]:
    def launch(i: int) -> None:
        positional, named = problems[i]
        kernel(*positional, **named)

    positional, named = problems[0]
    return {
        "us": bench.replayed(launch, len(problems)),
        "call us": bench.on_host(lambda: one_call(*positional, **named)),
    }


DECODE = run_cuda.Op(
    "sparse_decode", DECODE_METHOD, decode_times, SparseDecodeTensors, run_cuda.of_attention, run_cuda.OF_ATTENTION,
)  # fmt: skip
PREFILL = run_cuda.Op(
    "sparse_prefill", PREFILL_METHOD, prefill_times, SparsePrefillTensors, run_cuda.of_attention, run_cuda.OF_ATTENTION,
)  # fmt: skip
