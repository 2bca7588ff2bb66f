"""vLLM's conversion of an indexer's positions on a GPU, and in a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mla_kernels.compat.vllm import triton_convert_req_index_to_global_index

from tests.gpu.support.availability import require_op
from tests.support.sparse_indices import Conversion


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("prefills", [0, 1, 3])
@pytest.mark.parametrize(
    "change", [{}, {"stride": 20}, {"mapped": True}, {"topk": 1}, {"tokens": 0}, {"given": True}, {"topk": 2176}]
)
def test_against_a_loop(arch: str, counted: bool, prefills: int, change: dict[str, Any]) -> None:
    require_op(arch, "to_global_indices")
    Conversion("cuda", counted=counted, prefills=prefills, **change).check()


def test_a_graph(arch: str) -> None:
    require_op(arch, "to_global_indices")
    problem = Conversion("cuda", counted=True, prefills=2)
    given = problem.arguments()
    triton_convert_req_index_to_global_index(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        slots, counts = triton_convert_req_index_to_global_index(**given)
    slots.fill_(77)
    graph.replay()
    torch.cuda.synchronize()
    assert (slots.tolist(), counts.tolist()) == problem.expected()
