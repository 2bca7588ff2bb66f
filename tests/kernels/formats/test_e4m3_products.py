"""Decode that multiplies in e4m3: what it rounds, by hand, and how far from the exact variant that leads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from torch import Tensor

from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row

pytestmark = pytest.mark.op("decode", where=lambda row: row.rounds_to_e4m3)


def decodes(variant: Row, q: Tensor, rows: Tensor, softmax_scale: float = 1.0) -> Iterator[tuple[Tensor, Tensor]]:
    """What the variant and the reference give for q [num_heads, d_qk] over rows [n, d_qk].

    Each is out [num_heads, d_v] and lse [num_heads].
    """
    q = q.to(memory.DTYPES[variant.q_dtype])[None, None]
    cache, lens = rows.to(torch.float8_e4m3fn)[None], torch.tensor([len(rows)], dtype=torch.int32)
    for function in (mla.decode, reference.decode):
        results = function(q, cache, None, lens, softmax_scale=softmax_scale, compute_dtype="e4m3")
        yield results[0][0, 0].float(), results[1][0, :, 0]


def row_of(variant: Row, **values: float) -> Tensor:
    """Zeros but for some columns, ``c3=1.0`` the fourth."""
    row = torch.zeros(variant.form.d_qk)
    for column, value in values.items():
        row[int(column.removeprefix("c"))] = value
    return row


@pytest.mark.parametrize(
    ("greatest", "value", "rounded"),
    [
        (1.0, 0.3125, 0.3125),
        (1.0, 0.30078125, 0.3125),  # 77 of 256: units of 8
        (1.75, 0.30078125, 0.3125),  # 448 is the greatest of e4m3
        (1.7578125, 0.296875, 0.296875 + 0.015625),  # 38 of 128: units of 4, and a tie goes to 40
        (1.0, 0.265625, 0.25),  # 68 is a tie between 64 and 72, whose bit is odd
        (1.0, 2.0**-17, 2.0**-17),  # the least of e4m3
        (1.0, 2.0**-18, 0.0),
        (-(2.0**100), 2.0**98 * 1.203125, 2.0**98 * 1.25),
    ],
)
@pytest.mark.parametrize("column", [0, 500, -1])
def test_queries_are_rounded_by_their_row(
    variant: Row, greatest: float, value: float, rounded: float, column: int
) -> None:
    """The LSE of one key is its logit."""
    q, key = torch.zeros(2, variant.form.d_qk), torch.zeros(1, variant.form.d_qk)
    q[0, column], q[0, 7], key[0, 7] = greatest, value, 1.0
    q[1, 7] = 3.0  # another row has its own power of two
    for _, lse in decodes(variant, q, key):
        assert lse.tolist() == [rounded, 3.0]


def test_weights_are_rounded_and_their_sum_is_not(variant: Row) -> None:
    """Weights of 99 and 256 of 256: 99 becomes 96, and what they are divided by stays 355."""
    q = row_of(variant, c0=1.0)[None]
    rows = torch.stack([row_of(variant, c9=1.0), row_of(variant, c0=1.0, c10=1.0)])
    logit = math.log(256 / 99)
    for out, lse in decodes(variant, q, rows, logit):
        assert out[0, 9] == pytest.approx(96 / 355, rel=2**-8)
        assert out[0, 10] == pytest.approx(256 / 355, rel=2**-8)
        assert lse[0] == pytest.approx(logit + math.log(355 / 256), rel=1e-6)


def test_a_power_of_two_is_of_no_account(variant: Row) -> None:
    problem = Decode(variant.name, q_len=2, num_heads=5)
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    for power in (2.0**-20, 2.0**9):
        scaled = {**problem.scalars(), "softmax_scale": problem.softmax_scale / power}
        out, lse = problem.kernel()(**{**inputs, "q": inputs["q"] * power}, **scaled)
        assert_same_bytes("out", out, want_out)
        assert_same_bytes("lse", lse, want_lse)


def test_queries_of_zeros(variant: Row) -> None:
    rows = torch.stack([row_of(variant, c0=2.0), row_of(variant, c1=4.0)])
    for out, lse in decodes(variant, torch.zeros(1, variant.form.d_qk), rows):
        assert out[0, :3].tolist() == [1.0, 2.0, 0.0]
        assert lse[0] == pytest.approx(math.log(2))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("column", [0, 3, -1])
def test_a_row_that_is_not_finite_is_nan_and_alone(variant: Row, bad: float, column: int) -> None:
    q = torch.stack([row_of(variant, c3=1.0), row_of(variant, c3=0.5), row_of(variant, c3=1.0)])
    q[1, column] = bad
    rows = torch.stack([row_of(variant, c3=1.0), row_of(variant, c3=2.0)])
    for out, lse in decodes(variant, q, rows):
        assert out[1].isnan().all()
        assert lse[1].isnan()
        assert torch.equal(out[0], out[2])
        assert lse[0] == lse[2] == pytest.approx(1 + math.log(1 + math.e))


@pytest.mark.parametrize("changes", [{}, {"q_len": 3}, {"paged": False}, {"lengths": (2000, 300)}], ids=str)
def test_beside_the_exact_variant(variant: Row, changes: dict[str, Any]) -> None:
    """It is another result, by less than 5 % of the norm; the LSE is off by the rounding of Q alone."""
    problem = Decode(variant.name, **{"num_heads": 32, **changes})
    inputs = problem.tensors()
    rounded, rounded_lse = mla.decode(**inputs, **problem.scalars(), compute_dtype="e4m3")
    exact, exact_lse = mla.decode(**inputs, **problem.scalars())
    error = (rounded.double() - exact.double()).norm() / exact.double().norm()
    assert 0.005 < error < 0.05
    finite = exact_lse.isfinite()
    off = (rounded_lse - exact_lse)[finite].abs()
    assert 0 < off.max() < 0.15
    assert torch.equal(rounded_lse[~finite], exact_lse[~finite])
