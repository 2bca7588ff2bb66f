"""vLLM's conversion of an indexer's positions, against a plain loop that says what vLLM 0.33 says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mla_kernels.compat.vllm import triton_convert_req_index_to_global_index
from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError
from torch import Tensor

from tests.support.sparse_indices import Conversion


def test_by_hand():
    table = torch.tensor([[7, 2, 5], [1, 0, 3]]).int()
    positions = torch.tensor([[0, 17, 47, 48, -1], [15, 16, 2**31 - 1, -5, 33]]).int()
    req_id = torch.tensor([0, 1]).int()
    given = {"BLOCK_SIZE": 16, "NUM_TOPK_TOKENS": 5}
    got = triton_convert_req_index_to_global_index(req_id, table, positions, **given)
    assert got.tolist() == [[112, 33, 95, -1, -1], [31, 0, -1, -1, 49]]
    front, counts = triton_convert_req_index_to_global_index(
        req_id, table, positions, **given, return_valid_counts=True
    )
    assert front.tolist() == [[112, 33, 95, -1, -1], [31, 0, 49, -1, -1]]
    assert counts.tolist() == [3, 3]
    assert (front.dtype, counts.dtype) == (torch.int32, torch.int32)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("prefills", [0, 1, 3])
@pytest.mark.parametrize("change", [{}, {"stride": 20}, {"mapped": True}, {"topk": 1}, {"tokens": 0}, {"given": True}])
def test_against_a_loop(counted: bool, prefills: int, change: dict[str, Any]) -> None:
    Conversion("cpu", counted=counted, prefills=prefills, **change).check()


def refuse(error: type[Exception], text: str, **changes: Any) -> None:
    problem = Conversion("cpu").arguments() | changes
    with pytest.raises(error, match=text):
        triton_convert_req_index_to_global_index(**problem)


def test_refusals():
    refuse(ShapeError, r"token_indices: got shape \[9, 40\]; accepts \[num_tokens, 2048\]", NUM_TOPK_TOKENS=2048)
    refuse(UnsupportedError, "dcp_size: got 2; accepts 1", dcp_size=2)
    refuse(DTypeError, "prefill_workspace_request_ids: got NoneType", HAS_PREFILL_WORKSPACE=True)
    ids = torch.zeros(9, dtype=torch.int32)
    more: dict[str, Tensor] = {"prefill_workspace_request_ids": ids}
    refuse(DTypeError, "prefill_workspace_starts: got NoneType", HAS_PREFILL_WORKSPACE=True, **more)
