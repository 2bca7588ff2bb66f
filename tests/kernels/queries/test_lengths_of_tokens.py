"""Dense decode with a number of keys for each query token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import InvalidArgumentError

from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row

pytestmark = pytest.mark.op("decode")

RAGGED_LENGTHS = (100, 3, 50, 0, 700, 1, 64)
Q_LENS = (1, 3, 0, 2, 4, 1, 2)


@pytest.mark.parametrize("q_lens", [(), Q_LENS])
@pytest.mark.parametrize("num_heads", [1, 3, 16, 64, 128, 160])
@pytest.mark.parametrize("max_splits", [0, 1, 5])
def test_a_length_for_each_token(variant: Row, q_lens: tuple[int, ...], num_heads: int, max_splits: int) -> None:
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_len=3, q_lens=q_lens, num_heads=num_heads, max_splits=max_splits,
        per_token=True, seed=num_heads,
    ).check()  # fmt: skip


@pytest.mark.parametrize("strided", [True, False])
def test_tokens_that_see_nothing(variant: Row, strided: bool) -> None:
    problem = Decode(variant.name, lengths=(0, 5, 300), q_len=2, per_token=True, strided=strided, paged=False)
    inputs = problem.tensors()
    inputs["token_seq_lens"].fill_(0)
    problem.compare(*problem.run(inputs), *problem.expected(inputs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"token_seq_lens": torch.full((2, 3), 6).int()},
            r"token_seq_lens\[1, 0\]: got 6; accepts 0 to 5, seq_lens\[1\]",
        ),
        ({"token_seq_lens": torch.full((2, 3), -1).int()}, r"token_seq_lens\[0, 0\]: got -1; accepts 0 to 20"),
        ({"token_seq_lens": torch.zeros(2, 2).int()}, "token_seq_lens: got q_len = 2; accepts 3"),
        ({"token_seq_lens": torch.zeros(2).int()}, "token_seq_lens: got "),
        ({"token_seq_lens": torch.zeros(2, 3)}, "token_seq_lens: got float32; accepts int32"),
    ],
    ids=str,
)
def test_refusals_of_lengths_of_tokens(variant: Row, changes: dict[str, Any], message: str) -> None:
    problem = Decode(variant.name, lengths=(20, 5), q_len=3, per_token=True)
    with pytest.raises(InvalidArgumentError, match=message):
        mla.decode(**{**problem.tensors(), **changes}, **problem.scalars(), **problem.options)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.zeros(13).int(), r"token_seq_lens: got shape \[13\]; accepts \[batch, q_len\]"),
        (torch.zeros(13, 1).int(), "token_seq_lens: got batch = 13; accepts 1, as q has"),
        (torch.zeros(1, 7).int(), "token_seq_lens: got q_len = 7; accepts 13, as q has"),
        (torch.full((1, 13), 60).int(), r"token_seq_lens\[0, 1\]: got 60; accepts 0 to 3, seq_lens\[1\]"),
        (torch.full((1, 13), -4).int(), r"token_seq_lens\[0, 0\]: got -4; accepts 0 to 100, seq_lens\[0\]"),
    ],
    ids=lambda value: str(tuple(value.shape)) if isinstance(value, torch.Tensor) else "",
)
def test_refusals_of_lengths_of_ragged_tokens(variant: Row, lengths: torch.Tensor, message: str) -> None:
    """They have the shape of the tokens of ``q``, which is one batch of all requests."""
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    with pytest.raises(InvalidArgumentError, match=message):
        mla.decode(**problem.tensors(), token_seq_lens=lengths, **problem.scalars(), **problem.options, max_q_len=4)


def test_causal_masks_are_lengths_of_tokens(variant: Row) -> None:
    """To the last bit, and whatever ``causal`` says beside them."""
    problem = Decode(variant.name, lengths=(140, 20, 3), q_len=3, num_heads=9)
    inputs = problem.tensors()
    lengths = inputs["seq_lens"][:, None] + torch.arange(-2, 1).int()
    want = problem.launch(inputs)
    for causal in (True, False):
        got = replace(problem, causal=causal).launch({**inputs, "token_seq_lens": lengths})
        assert_same_bytes("out", got[0], want[0])
        assert_same_bytes("lse", got[1], want[1])
