"""Sparse decode of the sm90 payload again and again: in graphs, on streams, and with the same bits each time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import mla_kernels as mla
import pytest
import torch

from tests.gpu.support.launches import captured, check_at_once
from tests.gpu.support.sm90 import each_sparse_decode
from tests.gpu.support.sparse_results import compare_results, empty_results
from tests.gpu.support.tensors import set_all_bits
from tests.support.compare import assert_same_bytes
from tests.support.rows import Row
from tests.support.sparse import SparseDecode

LONG: dict[str, Any] = {"topk": 2048, "num_pages": 80, "absent": 0.1}


@each_sparse_decode
def test_a_graph_replays_other_selections(variant: Row) -> None:
    problem = SparseDecode(variant.name, num_heads=variant.heads(64), counts=True, sink=True, extra_topk=40, **LONG)
    given = problem.tensors()
    size = mla.lookup(**problem.config(), page_size=64).workspace_size(
        q=given["q"], kv_cache=given["kv_cache"], indices=given["indices"]
    )
    assert size > 0, "three requests on a whole device are split"
    workspace = torch.empty(2 * size, dtype=torch.uint8, device="cuda")
    results = empty_results(problem)
    run = partial(problem.launch, given, **results, workspace=workspace)
    run()
    torch.cuda.synchronize()
    graph = captured(run)
    for seed in (0, 1, 2):
        step = replace(problem, seed=seed)
        for name, tensor in step.tensors().items():
            given[name].copy_(tensor)
        set_all_bits(*results.values(), workspace)
        graph.replay()
        torch.cuda.synchronize()
        compare_results(step, results)


@each_sparse_decode
def test_two_streams_at_once(variant: Row) -> None:
    problems = [SparseDecode(variant.name, num_heads=variant.heads(48 + 16 * i), seed=i, **LONG) for i in range(2)]
    check_at_once([partial(problem.launch, problem.tensors()) for problem in problems])


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [16, 128])
@pytest.mark.parametrize("batch", [2, 32, 66, 90])
def test_the_same_bits_in_a_hundred_runs(variant: Row, batch: int, num_heads: int) -> None:
    problem = SparseDecode(variant.name, batch=batch, num_heads=variant.heads(num_heads), counts=True, **LONG)
    inputs = problem.tensors()
    want = problem.launch(inputs)
    for _ in range(100):
        for name, got, first in zip(("out", "lse"), problem.launch(inputs), want, strict=True):
            assert_same_bytes(name, got, first)
