"""Ragged queries of dense decode: requests with different numbers of query tokens."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import InvalidArgumentError

from tests.support.problems import Decode
from tests.support.rows import Row

pytestmark = pytest.mark.op("decode")

RAGGED_LENGTHS = (100, 3, 50, 0, 700, 1, 64)
Q_LENS = (1, 3, 0, 2, 4, 1, 2)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_heads", [1, 3, 16, 64, 128, 160])
def test_heads_of_ragged_queries(variant: Row, num_heads: int, causal: bool) -> None:
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, num_heads=num_heads, causal=causal, seed=num_heads
    ).check()


@pytest.mark.parametrize(
    "q_lens", [(0, 0, 0), (1, 1, 1), (0, 5, 0), (67, 1, 0), (1, 130, 2)], ids=lambda q_lens: "_".join(map(str, q_lens))
)
def test_tokens_of_ragged_queries(variant: Row, q_lens: tuple[int, ...]) -> None:
    Decode(variant.name, lengths=(140, 150, 20), q_lens=q_lens, num_heads=3).check()


@pytest.mark.parametrize("max_splits", [1, 2, 5])
@pytest.mark.parametrize("paged", [True, False])
def test_splits_of_ragged_queries(variant: Row, max_splits: int, paged: bool) -> None:
    Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, max_splits=max_splits, paged=paged).check()


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("split_q", [True, False])
def test_layouts_of_ragged_queries(variant: Row, strided: bool, split_q: bool) -> None:
    Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, strided=strided, split_q=split_q).check()


def test_equal_requests_give_what_a_batch_gives(variant: Row) -> None:
    """To the last bit, by a plan of the same shape."""
    ragged = Decode(variant.name, lengths=(140, 20, 700), q_lens=(2, 2, 2), spare=0, num_heads=9)
    inputs = ragged.tensors()
    out, lse = ragged.run(inputs)
    uniform = Decode(variant.name, lengths=(140, 20, 700), q_len=2, spare=0, num_heads=9)
    q = inputs.pop("q")
    del inputs["cu_seqlens_q"]
    as_batch = uniform.run({**inputs, "q": q.view(3, 2, *q.shape[2:])})
    assert torch.equal(out.view_as(as_batch[0]), as_batch[0])
    assert torch.equal(lse.unflatten(2, (3, 2))[0].transpose(0, 1), as_batch[1])


def test_one_call(variant: Row) -> None:
    """Without a plan, and with an LSE of [tokens, heads] as engines keep it."""
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs = problem.tensors()
    lse = torch.full((sum(Q_LENS), problem.num_heads), torch.nan)
    out, given = mla.decode(**inputs, max_q_len=4, **problem.scalars(), **problem.options, lse=lse.T[None])
    assert given.data_ptr() == lse.data_ptr()
    problem.compare(out, lse.T[None], *problem.expected(inputs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_q_len": 0}, "max_q_len: got 0; accepts the largest number of new tokens of a request, because cu_"),
        ({"cu_seqlens_q": None}, r"cu_seqlens_q: got None; accepts an int32 tensor \[num_requests \+ 1\]"),
        ({"cu_seqlens_q": torch.zeros(7).int()}, "cu_seqlens_q: got num_bounds = 7; accepts 8, one more than seq_lens"),
        ({"cu_seqlens_q": torch.zeros(8)}, "cu_seqlens_q: got float32; accepts int32"),
        ({"max_q_len": 3}, r"cu_seqlens_q\[5\]: got 10; accepts 6 to 9"),
        ({"cu_seqlens_q": torch.tensor([0, 1, 4, 3, 6, 10, 11, 13]).int()}, r"cu_seqlens_q\[3\]: got 3; accepts 4 to"),
        ({"cu_seqlens_q": torch.tensor([-1, 1, 4, 4, 6, 10, 11, 13]).int()}, r"cu_seqlens_q\[0\]: got -1; accepts 0"),
        ({"cu_seqlens_q": torch.tensor([0, 1, 4, 4, 6, 10, 11, 99]).int()}, r"cu_seqlens_q\[7\]: got 99; accepts 11"),
        ({"max_q_len": -1}, "max_q_len: got -1"),
        ({"max_q_len": "4"}, "max_q_len: got str"),
    ],
    ids=str,
)
def test_refusals_of_ragged_queries(variant: Row, changes: dict[str, Any], message: str) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs = {**problem.tensors(), "max_q_len": 4, **changes}
    out = torch.full((1, sum(Q_LENS), 16, problem.row.form.d_v), 7.0, dtype=inputs["q"].dtype)
    with pytest.raises(InvalidArgumentError, match=message):
        mla.decode(**inputs, **problem.scalars(), **problem.options, out=out)
    assert bool((out == 7).all())


def test_ragged_queries_need_the_most_tokens_of_a_request(variant: Row) -> None:
    """Options of the plan, which is then made before the launch, change nothing of what is said."""
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    message = "max_q_len: got 0; accepts the largest number of new tokens of a request, because cu_seqlens_q is given"
    for options in ({}, {"max_splits": 2}, {"batch_invariant": True}):
        with pytest.raises(InvalidArgumentError, match=message):
            mla.decode(**problem.tensors(), **problem.scalars(), **problem.options, **options)


def test_sizes_of_ragged_queries_need_no_bounds(variant: Row) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS)
    inputs, kernel = problem.tensors(), problem.kernel()
    del inputs["cu_seqlens_q"]
    size = kernel.workspace_size(**inputs, max_q_len=4)
    extents = {"batch": 1, "num_requests": len(RAGGED_LENGTHS), "num_heads": problem.num_heads}
    assert size == kernel.workspace_size(**extents, max_q_len=4) > 0


def test_a_batch_of_several_is_refused(variant: Row) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs = problem.tensors()
    inputs["q"] = inputs["q"].view(13, 1, *inputs["q"].shape[2:])
    with pytest.raises(InvalidArgumentError, match="q: got batch = 13; accepts 1"):
        mla.decode(**inputs, max_q_len=4, **problem.scalars(), **problem.options)


def test_a_plan_is_of_ragged_queries_or_of_a_batch(variant: Row) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs, kernel = problem.tensors(), problem.kernel()
    plan = kernel.plan(inputs["seq_lens"], num_heads=16, q_len=4)
    for without in (plan, None):
        with pytest.raises(InvalidArgumentError, match=r"max_q_len: got 0; .* a kernel takes it from plan=kernel.plan"):
            kernel(**inputs, **problem.scalars(), plan=without)
    with pytest.raises(InvalidArgumentError, match="q_len: got 3; accepts None beside max_q_len, or 4 as it"):
        kernel.plan(inputs["seq_lens"], num_heads=16, q_len=3, max_q_len=4)
    with pytest.raises(InvalidArgumentError, match=r"max_q_len: got 3; accepts 4, .* look the kernel up without q_len"):
        kernel.plan(inputs["seq_lens"], max_q_len=3)
    ragged = kernel.plan(inputs["seq_lens"], num_heads=16, max_q_len=4)
    with pytest.raises(InvalidArgumentError, match="q: got batch = 7; accepts 1, because with max_q_len the"):
        kernel(**{**inputs, "q": inputs["q"][:, :1].expand(7, -1, -1, -1)}, **problem.scalars(), plan=ragged)
    with pytest.raises(InvalidArgumentError, match="out: got a plan of max_q_len 4; accepts a plan of max_q_len 3"):
        kernel.plan(inputs["seq_lens"], max_q_len=3, out=ragged)
    assert kernel.plan(inputs["seq_lens"], max_q_len=4, out=ragged) is ragged
