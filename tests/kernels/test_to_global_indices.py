"""to_global_indices against the formula that serving engines use today."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mla_kernels import reference
from torch import Tensor

from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.global_indices import formula, problem
from tests.support.problems import unchanged
from tests.support.sparse import INT_MAX, INT_MIN


def convert(*tensors: Tensor, page_size: int) -> Tensor:
    import mla_kernels as mla

    with unchanged(*tensors):
        out: Tensor = mla.to_global_indices(*tensors, page_size=page_size)
    assert out.dtype == torch.int32
    into = memory.guarded(out.shape, torch.int32, str(out.device))
    mla.to_global_indices(*tensors, page_size=page_size, out=into.view.fill_(77))
    assert_same_bytes("out=", into.view, out)
    into.assert_guards("out=")
    return out


@pytest.mark.parametrize("page_size", [1, 2, 16, 48, 61, 64, 128, 576])
@pytest.mark.parametrize(("tokens", "topk"), [(1, 1), (5, 128), (33, 2048), (130, 7)])
def test_formula(device: str, page_size: int, tokens: int, topk: int) -> None:
    tensors = problem(page_size, tokens=tokens, topk=topk, requests=4, width=9, page_size=page_size)
    got = convert(*(tensor.to(device) for tensor in tensors), page_size=page_size)
    assert_same_bytes("out", got, formula(*tensors, page_size=page_size))
    if tokens * topk < 1000:
        assert_same_bytes("reference", reference.to_global_indices(*tensors, page_size=page_size), got)


def test_extremes(device: str) -> None:
    tokens = torch.tensor([[-1, INT_MIN, INT_MAX, 0, 127, 128, 129, -2]], dtype=torch.int32, device=device)
    table = torch.tensor([[5, 33554431], [0, -1]], dtype=torch.int32, device=device)
    for request, want in ((0, [-1, -1, -1, 320, INT_MAX, -1, -1, -1]), (1, [-1, -1, -1, 0, -1, -1, -1, -1])):
        req_id = torch.tensor([request], dtype=torch.int32, device=device)
        assert convert(req_id, table, tokens, page_size=64).tolist() == [want]


def test_strided(device: str) -> None:
    req_id, table, tokens = (
        tensor.to(device) for tensor in problem(3, tokens=6, topk=40, requests=3, width=5, page_size=16)
    )
    got = convert(req_id, memory.strided_copy(table), memory.strided_copy(tokens), page_size=16)
    assert_same_bytes("out", got, formula(req_id, table, tokens, page_size=16))


def test_nothing(device: str) -> None:
    none = torch.zeros(0, 4, dtype=torch.int32, device=device)
    table = torch.zeros(2, 3, dtype=torch.int32, device=device)
    assert tuple(convert(none[:, 0], table, none, page_size=64).shape) == (0, 4)
    some = torch.zeros(3, 0, dtype=torch.int32, device=device)
    assert tuple(convert(torch.zeros(3, dtype=torch.int32, device=device), table, some, page_size=1).shape) == (3, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    sizes=st.fixed_dictionaries(
        {
            "tokens": st.integers(1, 9),
            "topk": st.integers(1, 30),
            "requests": st.integers(1, 5),
            "width": st.integers(1, 7),
            "page_size": st.integers(1, 100),
        }
    ),
)
def test_any(device: str, seed: int, sizes: dict[str, int]) -> None:
    tensors = problem(seed, **sizes)
    got = convert(*(tensor.to(device) for tensor in tensors), page_size=sizes["page_size"])
    assert_same_bytes("out", got, formula(*tensors, page_size=sizes["page_size"]))
