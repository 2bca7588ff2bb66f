"""to_global_indices against the formula that serving engines use, with whatever the device may hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu.support.tensors import PADS, PAGE_SIZES, current_stream
from tests.gpu.support.to_global_indices import convert, kernel
from tests.support.compare import assert_same_bytes
from tests.support.global_indices import formula, problem
from tests.support.problems import generator
from tests.support.sparse import INT_MAX, INT_MIN


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(("tokens", "topk"), [(1, 1), (5, 128), (33, 2048), (130, 7), (3000, 1)])
def test_formula(arch: str, page_size: int, tokens: int, topk: int) -> None:
    tensors = problem(page_size, tokens=tokens, topk=topk, requests=4, width=9, page_size=page_size)
    want = formula(*tensors, page_size=page_size)
    for pad in PADS:
        assert_same_bytes("out", convert(arch, *tensors, page_size=page_size, pad=pad), want)


@pytest.mark.parametrize(("width", "topk"), [(2047, 4096), (2048, 2048), (2049, 4096), (9, 8)])
def test_wide_tables(arch: str, width: int, topk: int) -> None:
    """A request has as many pages as a block keeps at hand, and more."""
    tensors = problem(width, tokens=70, topk=topk, requests=4, width=width, page_size=16)
    want = formula(*tensors, page_size=16)
    for pad in PADS:
        assert_same_bytes("out", convert(arch, *tensors, page_size=16, pad=pad), want)


def test_requests_without_a_row(arch: str) -> None:
    _, table, tokens = problem(1, tokens=9, topk=33, requests=4, width=9, page_size=16)
    req_id = torch.tensor([0, -1, 4, 3, INT_MIN, INT_MAX, 5, 1, 2**30], dtype=torch.int32)
    known = (req_id >= 0) & (req_id < 4)
    want = formula(req_id.where(known, 0), table, tokens, page_size=16).masked_fill(~known[:, None], -1)
    assert_same_bytes("out", convert(arch, req_id, table, tokens, page_size=16), want)


def test_extremes(arch: str) -> None:
    tokens = torch.tensor([[-1, INT_MIN, INT_MAX, 0, 127, 128, 129, -2]], dtype=torch.int32)
    table = torch.tensor([[5, 33554431], [0, -1], [INT_MIN, INT_MAX]], dtype=torch.int32)
    wanted = ([-1, -1, -1, 320, INT_MAX, -1, -1, -1], [-1, -1, -1, 0, -1, -1, -1, -1], [-1] * 8)
    for request, want in enumerate(wanted):
        req_id = torch.tensor([request], dtype=torch.int32)
        assert convert(arch, req_id, table, tokens, page_size=64).tolist() == [want]


@pytest.mark.parametrize("page_size", [INT_MAX, INT_MAX + 1, 2**32, 2**32 + 1, 2**63 - 1])
def test_pages_larger_than_any_position(arch: str, page_size: int) -> None:
    tokens = torch.tensor([[0, 5, INT_MAX, INT_MAX - 1, -1]], dtype=torch.int32)
    req_id = torch.zeros(1, dtype=torch.int32)
    first = [0, 5, INT_MAX if page_size > INT_MAX else -1, INT_MAX - 1, -1]
    for page, want in ((0, first), (1, [INT_MAX if page_size == INT_MAX else -1, -1, -1, -1, -1]), (-1, [-1] * 5)):
        table = torch.tensor([[page]], dtype=torch.int32)
        assert convert(arch, req_id, table, tokens, page_size=page_size).tolist() == [want]


@pytest.mark.parametrize(
    ("tokens", "topk", "requests", "width"), [(0, 4, 2, 3), (3, 0, 2, 3), (3, 5, 0, 3), (3, 5, 2, 0)]
)
def test_nothing(arch: str, tokens: int, topk: int, requests: int, width: int) -> None:
    tensors = (
        torch.zeros(tokens, dtype=torch.int32),
        torch.zeros(requests, width, dtype=torch.int32),
        torch.zeros(tokens, topk, dtype=torch.int32),
    )
    want = torch.full((tokens, topk), -1, dtype=torch.int32)
    assert_same_bytes("out", convert(arch, *tensors, page_size=64), want)


def test_table_stride_beyond_32_bits(arch: str) -> None:
    """The two rows lie 2^31 entries and more apart."""
    both = torch.empty(2**31 + 10**5, dtype=torch.int32, device="cuda").as_strided((2, 3), (2**31 + 8, 1))
    both.copy_(torch.tensor([[1, 2, 3], [7, 8, 9]]))
    req_id = torch.tensor([1, 0], dtype=torch.int32).cuda()
    tokens = torch.tensor([[0, 17, 33], [0, 17, 33]], dtype=torch.int32).cuda()
    out = kernel(arch)(req_id, both, tokens, page_size=16)
    assert out.tolist() == [[112, 129, 145], [16, 33, 49]]


def test_cupy(arch: str, cupy: Any) -> None:
    tensors = problem(2, tokens=6, topk=5, requests=3, width=4, page_size=16)
    source = generator(0)
    out = torch.randint(100, (6, 5), generator=source).int().cuda()
    arrays = [cupy.from_dlpack(tensor.cuda()) for tensor in (*tensors, out)]
    kernel(arch)(*arrays[:3], page_size=16, out=arrays[3], stream=current_stream())
    torch.cuda.synchronize()
    assert_same_bytes("out", cupy_tensor(arrays[3]), formula(*tensors, page_size=16))


def cupy_tensor(array: Any) -> Tensor:
    return torch.from_dlpack(array).cpu()
