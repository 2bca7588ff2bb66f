"""Dense decode of logits that jump from tile to tile: a row keeps an old maximum as long as it can, and no longer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from mla_kernels.formats import ROPE
from torch import Tensor

from tests.gpu.support.sm90 import DENSE, TILE, each, each_with
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode, random
from tests.support.rows import Row

LENGTHS = (700, 64, 33, 129, 0, 5)
HIGHEST = 15
UNIT = 16.0
"""Levels are multiples of this in the cache, which every type holds exactly up to ``HIGHEST`` of them."""
SIXTEEN_BIT = [row for row in DENSE if row.kv_dtype == row.q_dtype]
Q = 16384.0
"""What selects a column of levels. Logits are huge before the scale makes them small, as far as fp16 goes."""


def levels(n: int) -> Tensor:
    """Return levels [n, 8] of a request's tokens, a column for each way of jumping."""
    token = torch.arange(n)
    tile, place = token // TILE, token % TILE
    rising = tile.clamp(max=HIGHEST)
    columns = (
        torch.zeros(n),
        rising,
        HIGHEST - rising,
        HIGHEST * (token == TILE + 6),
        HIGHEST * (token == 2 * TILE + 40),
        torch.where(place < TILE // 2, -8, rising),
        token * 7 % 31 - HIGHEST,
        HIGHEST * (token == n - 1),
    )
    return torch.stack([column.float() for column in columns], -1)


@dataclass(frozen=True)
class JumpingLogits(Decode):
    """A dense decode whose logits are levels: powers of 2 ``step`` apart. Head h sees column h % 8 of them."""

    lengths: tuple[int, ...] = LENGTHS
    step: float = 16.0

    def reproduce(self) -> str:
        """Return the command that runs this problem alone from the repository root."""
        return f'reproduce: python -c "from tests.gpu.sm90.test_jumping_logits import *; {self}.check()"'

    def numbers(self, source: torch.Generator, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return queries that select a column of levels each, and rows that hold the levels in the last columns."""
        q = torch.zeros(shape)
        first = shape[-1] - ROPE
        for head in range(self.num_heads):
            q[:, :, head, first + head % 8] = Q
        rows = random(source, sum(self.lengths), shape[-1], deviation=0.1)
        rows[:, first:] = 0.0
        rows[:, first : first + 8] = torch.cat([levels(n) for n in self.lengths]) * UNIT * self.kv_scale
        return q, rows

    @property
    def scale(self) -> float:
        """The scale that makes a level ``step`` powers of 2."""
        return self.step * math.log(2.0) / (UNIT * Q * self.kv_scale)


def problem(variant: Row, step: float, **options: int) -> JumpingLogits:
    """Return the problem with the scale that its step asks for."""
    scale = JumpingLogits(variant.name, step=step).scale
    return JumpingLogits(variant.name, step=step, softmax_scale=scale, seed=int(step), **options)


@each_with("num_heads", [8, 16, 128])
@pytest.mark.parametrize("step", [0.5, 1.0, 7.0, 16.0, 1024.0])
def test_jumps(variant: Row, num_heads: int, step: float) -> None:
    """Steps of up to 1 reach the threshold after many tiles, if at all; a jump of the others exceeds it."""
    problem(variant, step, num_heads=num_heads).check()


@each_with("num_heads, q_len", [(16, 2)])
@pytest.mark.parametrize("step", [1.0, 16.0])
def test_jumps_of_two_query_tokens(variant: Row, num_heads: int, q_len: int, step: float) -> None:
    problem(variant, step, num_heads=num_heads, q_len=q_len).check()


@each_with("num_heads", [16, 128], SIXTEEN_BIT)
def test_a_row_of_nan_is_nan_and_no_other(variant: Row, num_heads: int) -> None:
    """The rows beside it have the bits that they have without it, although it asks for new maxima in every tile."""
    jumps = problem(variant, 7.0, num_heads=num_heads)
    inputs = jumps.tensors()
    want_out, want_lse = jumps.launch(inputs)
    inputs["q"][:, :, 3, 0] = torch.nan
    out, lse = jumps.launch(inputs)
    filled = torch.tensor(jumps.lengths) > 0
    assert out[filled, :, 3].isnan().all()
    assert lse[filled, 3].isnan().all()
    others = [head for head in range(num_heads) if head != 3]
    assert_same_bytes("out", out[:, :, others], want_out[:, :, others])
    assert_same_bytes("lse", lse[:, others], want_lse[:, others])


@each
def test_neighbours_do_not_change_the_bits_of_a_row(variant: Row) -> None:
    """Rows that never jump share warps with rows that do."""
    jumps = problem(variant, 7.0, num_heads=16)
    inputs = jumps.tensors()
    want_out, want_lse = jumps.launch(inputs)
    calm = [0, 8]
    for head in range(16):
        if head not in calm:
            inputs["q"][:, :, head] = 0.0
    out, lse = jumps.launch(inputs)
    assert_same_bytes("out", out[:, :, calm], want_out[:, :, calm])
    assert_same_bytes("lse", lse[:, calm], want_lse[:, calm])
