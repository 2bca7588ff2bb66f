"""Queries that requests, tokens or heads share by a stride of 0 give the bytes of copies of them."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch

from tests.support.compare import assert_same_bytes
from tests.support.problems import SCALE, Decode
from tests.support.rows import Row
from tests.support.sparse import SparseDecode, SparsePrefill

CPU = {"where": lambda row: row.arch == "cpu"}
AXES = [(0,), (1,), (2,), (0, 1), (0, 1, 2)]


def shared(q: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """Return queries of which the first ones along the axes stand for all."""
    first = q[tuple(slice(1) if axis in axes else slice(None) for axis in range(q.ndim))]
    expanded = first.expand(q.shape)
    assert all(expanded.stride(axis) == 0 for axis in axes)
    return expanded


def same(results: Any, wanted: Any) -> None:
    for name, got, want in zip(("out", "lse"), results, wanted, strict=False):
        assert_same_bytes(name, got, want)


@pytest.mark.op("decode", **CPU)
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("split", [False, True])
def test_decode(variant: Row, axes: tuple[int, ...], split: bool) -> None:
    problem = Decode(variant.name, lengths=(140, 20, 1, 0), q_len=2, num_heads=3)
    inputs = problem.tensors()
    expanded = shared(inputs["q"], axes)
    given = (expanded[..., :512], expanded[..., 512:]) if split else expanded
    want = problem.launch(inputs | {"q": expanded.contiguous()})
    same(problem.launch(inputs | {"q": given}), want)


@pytest.mark.op("sparse_decode", **CPU)
@pytest.mark.parametrize("axes", AXES)
def test_sparse_decode(variant: Row, axes: tuple[int, ...]) -> None:
    problem = SparseDecode(variant.name, q_len=2, num_heads=3)
    inputs = problem.tensors()
    expanded = shared(inputs["q"], axes)
    want = problem.launch(inputs | {"q": expanded.contiguous()})
    same(problem.launch(inputs | {"q": expanded}), want)


@pytest.mark.op("sparse_prefill", **CPU)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_sparse_prefill(variant: Row, axes: tuple[int, ...]) -> None:
    inputs = SparsePrefill(variant.name, num_heads=2).tensors()
    expanded = shared(inputs["q"], axes)
    want = mla.sparse_prefill(**inputs | {"q": expanded.contiguous()}, softmax_scale=SCALE)
    same(mla.sparse_prefill(**inputs | {"q": expanded}, softmax_scale=SCALE), want)
