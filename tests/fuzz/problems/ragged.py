"""Ragged queries of dense decode: one batch of tokens, of which each request has a number of its own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tests.fuzz.memory import Array
from tests.fuzz.problems.case import Maker, Variant

SHARE = 0.25
PAGED_ONLY = "sm100f"
"""The arch whose kernels take ragged queries over paged caches only."""
MOST_ROWS = 160
"""Of a plan: partial results of more do not fit into the memory that a workspace has here."""


def is_drawn(make: Maker, variant: Variant, paged: bool) -> bool:
    """Whether the queries of a case are ragged."""
    return make.chance(SHARE) and (paged or variant.arch != PAGED_ONLY)


def dims(make: Maker, variant: Variant, heads: tuple[int, ...]) -> tuple[int, int, int]:
    """Requests, ``max_q_len`` and heads."""
    while True:
        requests = 0 if make.chance(0.02) else make.random.choice((1, 2, 3, 4, 6))
        most = variant.pick(make.random, "q_len", (1, 1, 2, 3, 5, 8))
        num_heads = variant.pick(make.random, "num_heads", heads)
        if requests * most * num_heads <= MOST_ROWS:
            return requests, most, num_heads


def bounds(make: Maker, requests: int, most: int) -> tuple[dict[str, Any], int]:
    """``cu_seqlens_q`` and ``max_q_len``, and the tokens of ``q``, of which the first and the last may be nobody's."""
    counts = [make.random.choice((0, 1, most, make.random.randrange(most + 1))) for _ in range(requests)]
    if make.chance(0.2):
        counts = [make.random.randrange(most + 1)] * requests
    before, after = (make.random.choice((0, 0, 0, 1, 2)) for _ in range(2))
    ends = np.cumsum([before, *counts])
    arguments = {"cu_seqlens_q": make.array("int32", (requests + 1,), ".", ends), "max_q_len": most}
    return arguments, int(ends[-1]) + after


def by_tokens(make: Maker, lse: Any) -> None:
    """Lay an LSE [1, heads, tokens] out as [tokens, heads], as engines keep it."""
    if isinstance(lse, Array):
        _, heads, tokens = lse.shape
        row = heads + make.random.choice((0, 0, 3))
        lse.strides = (max(1, tokens) * row, 1, row)


def spans(given: dict[str, Any], batch: int, q_len: int) -> list[tuple[int, int]]:
    """Where the query tokens of each request begin and end, among those of all batches one after another."""
    if "cu_seqlens_q" not in given:
        return [(b * q_len, (b + 1) * q_len) for b in range(batch)]
    return list(pairwise(map(int, given["cu_seqlens_q"].values)))
