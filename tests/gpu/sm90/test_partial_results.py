"""Partial results of dense decode are fp16, in groups that share a power of 2: what that may change, and what not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from mla_kernels import reference
from torch import Tensor

from tests.gpu.support.sm90 import DENSE, each_with
from tests.gpu.support.tensors import poisoned_workspace
from tests.support.problems import Decode, random
from tests.support.rows import Row

SIXTEEN_BIT = [row for row in DENSE if row.kv_dtype == row.q_dtype]
EXPONENTS = {"bf16": 20, "fp16": 6, "e4m3": 2}
"""Values are 2 to the power of up to so much larger or smaller by their request, and as much by their column."""
UNIT = {"bf16": 2.0**-8, "fp16": 2.0**-11}
"""The rounding of an output, relative to it."""
SUMS = 2.0**-13
"""What the sums of thousands of tokens in fp32 may be off by."""

SPLITS = {
    "many splits": {"lengths": (7000, 64)},
    "some splits": {"lengths": (1200,) * 9},
    "two splits": {"lengths": tuple(900 + 37 * (i % 5) for i in range(100))},
    "pairs of blocks": {"lengths": (1000,) * 66},
    "pairs of clusters": {"lengths": (1000,) * 33},
    "rows of fp32": {"lengths": (1000, 300), "max_splits": 3},
}
each_split = pytest.mark.parametrize("splits", SPLITS.values(), ids=SPLITS)
HEADS = (5, 16, 128)


def group_of(column: Tensor) -> Tensor:
    """Return which columns of a row share a power of 2: those that one thread sums up of two chunks."""
    return column // 128 * 16 + column % 64 // 16 * 4 + column % 8 // 2


@dataclass(frozen=True)
class SpanningValues(Decode):
    """A decode that takes the mean of its values, whose sizes differ by request and by column."""

    of_each_column: bool = False

    def reproduce(self) -> str:
        """Return the command that runs this problem alone from the repository root."""
        return f'reproduce: python -c "from tests.gpu.sm90.test_partial_results import *; {self}.check()"'

    def numbers(self, source: torch.Generator, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return queries of 0, and rows near a power of 2 for each request times one for each group or column."""
        most = EXPONENTS[self.row.kv_dtype]
        rows = 1 + random(source, sum(self.lengths), shape[-1], deviation=0.05).clamp(-0.2, 0.2)
        of_request = torch.randint(-most, most + 1, (len(self.lengths), 1), generator=source)
        d_v = self.row.form.d_v
        of_column = torch.randint(-most, most + 1, (d_v,), generator=source)
        column = torch.arange(d_v)
        exponents = of_request + (of_column if self.of_each_column else of_column[group_of(column)])
        rows[:, :d_v] *= torch.exp2(exponents.float()).repeat_interleave(torch.tensor(self.lengths), 0)
        return torch.zeros(shape), rows * self.kv_scale

    def check(self) -> None:
        """Compare each element with the mean in float64, by the greatest of its group."""
        inputs = self.tensors()
        out, lse = self.run(inputs)
        want, want_lse = self.expected(inputs)
        greatest = torch.zeros_like(want)
        groups = group_of(torch.arange(want.shape[-1], device=want.device))
        for group in groups.unique():
            greatest[..., groups == group] = want[..., groups == group].abs().amax(-1, keepdim=True)
        of_partials = UNIT["fp16"] * 1.2 + SUMS
        allowed = UNIT[self.row.out_dtype] * want.abs() + of_partials * greatest
        excess = ((out.double() - want).abs() / allowed).nan_to_num(nan=torch.inf)
        assert excess.max() <= 1, f"{excess.max()} times the tolerance\n{self.reproduce()}"
        assert torch.allclose(lse.double(), want_lse.double(), rtol=1e-5), self.reproduce()


@dataclass(frozen=True)
class InfiniteValues(Decode):
    """A decode in which one token of each request is infinite in one column, which leaves it no weight."""

    column: int = 77

    def reproduce(self) -> str:
        """Return the command that runs this problem alone from the repository root."""
        return f'reproduce: python -c "from tests.gpu.sm90.test_partial_results import *; {self}.check()"'

    def numbers(self, source: torch.Generator, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return queries that make the logit of such a token -inf, and the rows."""
        q, rows = super().numbers(source, shape)
        q[..., self.column] = -1.0
        rows[torch.tensor(self.lengths).cumsum(0) - 1, self.column] = torch.inf
        return q, rows


@each_with("num_heads", HEADS)
@each_split
@pytest.mark.parametrize("of_each_column", [False, True])
def test_sums_are_rounded_by_the_greatest_of_their_group(
    variant: Row, num_heads: int, splits: dict[str, Any], of_each_column: bool
) -> None:
    """Where sizes differ by group, each element has the error of its own size."""
    SpanningValues(variant.name, num_heads=num_heads, of_each_column=of_each_column, **splits).check()


@each_with("num_heads", HEADS, SIXTEEN_BIT)
@each_split
def test_a_column_of_nan_is_nan_and_no_other(variant: Row, num_heads: int, splits: dict[str, Any]) -> None:
    """Columns that share a power of 2 with it keep their values."""
    InfiniteValues(variant.name, num_heads=num_heads, **splits).check()


@each_with("num_heads", HEADS, [row for row in SIXTEEN_BIT if row.kv_dtype == "bf16"])
@each_split
def test_sums_that_overflow_are_infinite_and_no_other(variant: Row, num_heads: int, splits: dict[str, Any]) -> None:
    """bf16 is as large as fp32, so sums of its greatest values are infinite before they become a mean."""
    problem = Decode(variant.name, num_heads=num_heads, q_deviation=0.0, **splits)
    inputs, column = problem.tensors(), 200
    inputs["kv_cache"][..., column] = torch.finfo(torch.bfloat16).max
    want, want_lse = reference.decode(**inputs, **problem.scalars(), dtype=torch.float64)
    want[..., column] = torch.inf
    problem.compare(*problem.launch(inputs, workspace=poisoned_workspace()), want, want_lse)
