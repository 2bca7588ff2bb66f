"""Dense decode of the sm90 payload whose requests are split, by plans of every kind, and combined in every way."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from tests.gpu.support.sm90 import each, each_with
from tests.gpu.support.tensors import poisoned_workspace
from tests.support.invariance import check_batch_invariance
from tests.support.problems import Decode
from tests.support.rows import Row

PAIRS = {5: 66, 16: 64, 48: 66, 64: 66, 65: 33, 128: 32}
"""For each number of heads, as many equal requests as take two blocks each, or two clusters, of 132 multiprocessors."""


@each_with("num_heads", [16, 128])
def test_one_long_request_among_short_ones(variant: Row, num_heads: int) -> None:
    Decode(variant.name, lengths=(100,) * 20 + (20000,) + (300,) * 11, num_heads=num_heads).check()


@each_with("num_heads", [16, 64, 128])
@pytest.mark.parametrize("long", [9000, 40000])
def test_one_long_request_among_many(variant: Row, long: int, num_heads: int) -> None:
    """Blocks finish the requests of two splits while others combine the one request of many."""
    Decode(variant.name, lengths=(500,) * 90 + (long,) + (700,) * 30, num_heads=num_heads).check()


@each_with("num_heads", [1, 7, 12, 16, 17, 32, 64])
@pytest.mark.parametrize("length", [4100, 8192])
def test_one_request_in_many_parts(variant: Row, length: int, num_heads: int) -> None:
    """There are more blocks than fragments of eight rows, so that blocks combine one, two, four or eight rows."""
    Decode(variant.name, lengths=(length,), num_heads=num_heads, seed=num_heads).check()


@each_with("num_heads", [5, 16, 128])
@pytest.mark.parametrize("batch", [1, 2, 5, 16, 40, 100])
def test_requests_in_any_number_of_parts(variant: Row, num_heads: int, batch: int) -> None:
    """There are more parts than requests, or fewer, so that splits are combined in every way."""
    lengths = tuple(900 + 37 * (i % 5) for i in range(batch))
    Decode(variant.name, lengths=lengths, num_heads=num_heads, q_len=min(2, variant.most("q_len")), seed=batch).check()


@each_with("num_heads", [16, 64, 128])
@pytest.mark.parametrize("batch", [3, 20, 60])
def test_requests_of_unequal_lengths(variant: Row, num_heads: int, batch: int) -> None:
    """Parts end in every way: with a first, a middle or a last split, or with a whole request."""
    lengths = tuple(random.Random(batch).choices(range(5000), k=batch))
    Decode(variant.name, lengths=lengths, num_heads=num_heads, seed=batch).check()


@each_with("num_heads, q_len", [(48, 3), (80, 2)])
def test_last_tiles_without_rows(variant: Row, num_heads: int, q_len: int) -> None:
    """A cluster computes 128 rows at a time, and 144 or 160 leave its last block none of a request of many splits."""
    Decode(variant.name, lengths=(6000, 40, 700), num_heads=num_heads, q_len=q_len).check()


@each_with("num_heads", [16, 64, 128])
def test_requests_of_many_splits_whose_lengths_change_after_the_plan(variant: Row, num_heads: int) -> None:
    """Some of the blocks that combine a request, or all, then have nothing to sum."""
    lengths = (3000, 3, 0, 1500, 1, 2999, 64)
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads)
    inputs, kernel = problem.tensors(), problem.kernel()
    plan = kernel.plan(torch.full_like(inputs["seq_lens"], 3000), num_heads=num_heads, q_len=1)
    out, lse = kernel(**inputs, **problem.scalars(), plan=plan, workspace=poisoned_workspace())
    problem.compare(out, lse, *problem.expected())


@each_with("num_heads", PAIRS)
def test_requests_that_two_blocks_share(variant: Row, num_heads: int) -> None:
    Decode(variant.name, lengths=(1000,) * PAIRS[num_heads], num_heads=num_heads).check()


@each_with("num_heads", PAIRS)
def test_shared_requests_whose_lengths_change_after_the_plan(variant: Row, num_heads: int) -> None:
    """One of the two blocks, or both, then have nothing to sum."""
    lengths = tuple((1000, 3, 0, 513, 600)[i % 5] for i in range(PAIRS[num_heads]))
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads)
    inputs, kernel = problem.tensors(), problem.kernel()
    plan = kernel.plan(torch.full_like(inputs["seq_lens"], 1000), num_heads=num_heads, q_len=1)
    out, lse = kernel(**inputs, **problem.scalars(), plan=plan, workspace=poisoned_workspace())
    problem.compare(out, lse, *problem.expected())


@each_with("num_heads", PAIRS)
def test_requests_of_two_pieces_whose_lengths_change_after_the_plan(variant: Row, num_heads: int) -> None:
    """The block that finishes a request has its first split; either split may then have nothing to sum."""
    batch, most = 150, 1050
    lengths = tuple((most, 3, 0, 513, 600, 1)[i % 6] for i in range(batch))
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads)
    inputs, kernel = problem.tensors(), problem.kernel()
    planned = torch.tensor([900 + 37 * (i % 5) for i in range(batch)], dtype=torch.int32, device="cuda")
    plan = kernel.plan(planned, num_heads=num_heads, q_len=1)
    out, lse = kernel(**inputs, **problem.scalars(), plan=plan, workspace=poisoned_workspace())
    problem.compare(out, lse, *problem.expected())


@each
@pytest.mark.parametrize("max_splits", [1, 2, 3, 7, 32])
def test_splits(variant: Row, max_splits: int) -> None:
    Decode(
        variant.name, lengths=(700, 333, 20, 1, 0, 3000), q_len=min(2, variant.most("q_len")), max_splits=max_splits
    ).check()


@each
@pytest.mark.parametrize("max_splits", [None, 2, 5])
@pytest.mark.parametrize("deviation", [20.0, 100.0])
def test_large_queries_with_splits(variant: Row, max_splits: int | None, deviation: float) -> None:
    lengths = (500, 260, 20, 2000)
    Decode(
        variant.name, lengths=lengths, q_len=min(2, variant.most("q_len")), max_splits=max_splits, q_deviation=deviation
    ).check()


@each
def test_a_plan_serves_other_lengths(variant: Row) -> None:
    planned = Decode(variant.name, lengths=(5000, 20, 0), seed=1)
    kernel = planned.kernel()
    for options in ({}, {"max_splits": 4}):
        plan = kernel.plan(planned.tensors()["seq_lens"], num_heads=16, q_len=1, **options)
        for lengths in ((5000, 20, 0), (100, 3, 0), (0, 0, 0), (5020, 44, 9)):
            current = replace(planned, lengths=lengths, seed=sum(lengths))
            out, lse = kernel(**current.tensors(), **current.scalars(), plan=plan, workspace=poisoned_workspace())
            current.compare(out, lse, *current.expected())


@each
@pytest.mark.parametrize("max_splits", [None, 3])
def test_batch_invariance(variant: Row, max_splits: int | None) -> None:
    """A request gives the same bytes alone, in company, and at another place, with batch_invariant plans."""
    company = Decode(
        variant.name, lengths=(900, 333, 1, 20, 64, 5000), num_heads=16, batch_invariant=True, max_splits=max_splits
    )
    check_batch_invariance(company, ([0], [1], [5], [3, 0], [5, 4, 3, 2, 1, 0], [1] * 9, [5] * 40))
