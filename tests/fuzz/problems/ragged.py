"""Query tokens of dense decode: numbers of them that differ between requests, and a number of keys for each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tests.fuzz.memory import Array
from tests.fuzz.problems.case import Maker, Variant

SHARE = 0.25
SHARE_OF_LENGTHS = 0.25
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


def token_lengths(make: Maker, given: dict[str, Any], lengths: list[int], outer: tuple[int, int]) -> Array:
    """``token_seq_lens`` of a legal call: up to the length of the request, and anything for tokens of none."""
    nobodys = make.random.choice((0, -1, -(2**31), 2**31 - 1))
    values = np.full(outer[0] * outer[1], nobodys, np.int64)
    for n, (begin, end) in zip(lengths, spans(given, *outer), strict=True):
        for token in range(begin, end):
            values[token] = make.random.choice((0, n, n // 2, make.random.randrange(n + 1)))
    return make.array("int32", outer, "ss", values.reshape(outer))


def seen(given: dict[str, Any], span: tuple[int, int], n: int) -> np.ndarray | None:
    """How many of the first ``n`` keys each token of a request sees; None where each sees all."""
    begin, end = span
    stated = given.get("token_seq_lens")
    if stated is not None:
        return np.clip(stated.values.reshape(-1)[begin:end], 0, n)
    if not given.get("causal", True):
        return None
    return np.maximum(n - (end - begin) + 1 + np.arange(end - begin), 0)
