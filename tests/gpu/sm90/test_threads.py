"""Launches in a thread that has no CUDA context yet, as a worker of an engine may have none."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mla_kernels as mla
import pytest
import torch

from tests.gpu.support.sm90 import each_sparse_decode, each_with
from tests.gpu.support.sparse_results import compare_results, empty_results
from tests.gpu.support.tensors import current_stream
from tests.support import memory
from tests.support.problems import Decode, garbage_workspace
from tests.support.rows import Row
from tests.support.sparse import SparseDecode


def run_in_a_new_thread(launch: Callable[[], object]) -> None:
    """Run a launch where nothing but the launch itself may make a context current."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(launch).result()


@each_with("num_heads", [16, 128])
def test_decode(variant: Row, num_heads: int) -> None:
    problem = Decode(variant.name, lengths=(700, 20, 0), num_heads=num_heads)
    inputs, kernel = problem.tensors(), problem.kernel()
    out = torch.empty(3, 1, num_heads, variant.form.d_v, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
    lse = torch.empty(3, num_heads, 1, device="cuda")
    own = {"out": out, "lse": lse, "workspace": garbage_workspace("cuda"), "plan": kernel.plan(inputs["seq_lens"])}
    stream = current_stream()
    run_in_a_new_thread(lambda: kernel(**inputs, **problem.scalars(), **own, stream=stream))
    problem.compare(out, lse, *problem.expected())


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [16, 128])
def test_sparse_decode(variant: Row, num_heads: int) -> None:
    problem = SparseDecode(variant.name, num_heads=variant.heads(num_heads))
    inputs, results = problem.tensors(), empty_results(problem)
    kernel = mla.lookup(**problem.config(), page_size=problem.page_size)
    own = {**results, "workspace": garbage_workspace("cuda")}
    stream = current_stream()
    run_in_a_new_thread(lambda: kernel(**inputs, **problem.scalars(), **own, stream=stream))
    compare_results(problem, results)
