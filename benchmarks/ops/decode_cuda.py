"""How a paged dense decode is timed on CUDA."""

from __future__ import annotations

from collections.abc import Mapping

import mla_kernels
from mla_kernels.diagnostics.bench.decode import calls_of
from mla_kernels.diagnostics.bench.tensors import Tensors
from mla_kernels.kernels.base import Kernel

from benchmarks.ops import run_cuda
from benchmarks.ops.run_cuda import Bench

METHOD = {
    "us": "A CUDA graph of one launch, merge included, for each of several problems, over the number of problems; the "
    "median of its replays, after a rest: a device at the limit of its power lowers its clock. The problems have fresh "
    "random data and disjoint random pages of one cache that exceeds the L2. The plan is made before.",
    "with plan us": "The same with the plan made again before each launch.",
    "call us": "What one `mla.decode` takes of the host, with outputs, plan and workspace given.",
    "TFLOP/s": "Two for each multiplication, every new token with every key.",
    "TB/s": "KV once, Q and the output.",
    "of ceiling": "The larger of bytes over the read rate and FLOP over the matrix product's rate, over `us`.",
}


def times(bench: Bench, kernel: Kernel, tensors: Tensors) -> Mapping[str, float | None]:
    """Microseconds of a launch, of a plan and a launch, and of the host in a call."""
    problems = calls_of(kernel, tensors)
    plan = problems[0][1]["plan"]

    def launch(i: int) -> None:
        positional, named = problems[i]
        kernel(*positional, **named)

    def planned(i: int) -> None:
        kernel.plan(tensors.seq_lens, out=plan)
        launch(i)

    positional, named = problems[0]
    return {
        "us": bench.replayed(launch, len(problems)),
        "with plan us": bench.replayed(planned, len(problems)),
        "call us": bench.on_host(lambda: mla_kernels.decode(*positional, **named)),
    }


OP = run_cuda.Op(
    "decode", METHOD, times, Tensors, run_cuda.of_attention, run_cuda.OF_ATTENTION,
)  # fmt: skip
