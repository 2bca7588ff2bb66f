"""The cells that are measured side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mla_kernels.diagnostics.bench.problems import Problem

from benchmarks.ops.sparse_problems import SparseDecode, SparsePrefill


@dataclass(frozen=True, slots=True)
class Cell:
    """A problem, the op that solves it, and the words by which pages call it."""

    op: str
    title: str
    problem: Any


def _thousands(seq: int) -> str:
    return f"{seq // 1024}k" if seq % 1024 == 0 else f"{seq:,}"


def dense(heads: int, batch: int, seq: int, q_len: int = 1, lengths: str = "equal") -> Cell:
    """A dense decode over a bf16 cache with pages of 64 tokens."""
    tokens = "" if q_len == 1 else f", {q_len} query tokens"
    spread = ", lengths vary" if lengths == "normal" else ""
    title = f"Dense decode, {heads} heads, batch {batch}, {_thousands(seq)} tokens{tokens}{spread}"
    return Cell("decode", title, Problem("bf16", "bf16", heads, batch, seq, q_len, lengths=lengths))


def sparse_decode(heads: int, batch: int) -> Cell:
    """A sparse decode over an ``fp8_ds_mla`` cache: 2,048 of 32,768 tokens."""
    title = f"Sparse fp8 decode, {heads} heads, batch {batch}, 2,048 of 32k tokens"
    return Cell("sparse_decode", title, SparseDecode("bf16", "fp8_ds_mla", heads, batch, 32768, 2048))


def sparse_prefill(heads: int) -> Cell:
    """A sparse prefill of 4,096 query tokens: 2,048 of 32,768 bf16 rows."""
    title = f"Sparse bf16 prefill, {heads} heads, 4,096 queries, 2,048 of 32k rows"
    return Cell("sparse_prefill", title, SparsePrefill("bf16", heads, 4096, 32768, 2048))


CELLS: dict[str, tuple[Cell, ...]] = {
    "front": (
        dense(128, 1, 8192),
        dense(16, 16, 8192),
        dense(16, 128, 8192),
        dense(64, 128, 8192),
        dense(64, 128, 4096, lengths="normal"),
        dense(128, 16, 32768),
        dense(128, 128, 8192),
        dense(128, 128, 8192, q_len=2),
        sparse_decode(64, 128),
        sparse_decode(128, 128),
        sparse_prefill(64),
        sparse_prefill(128),
    ),
    "smoke": (
        dense(16, 4, 512),
        sparse_decode(64, 2),
        Cell(
            "sparse_prefill",
            "Sparse bf16 prefill, 64 heads, 128 tokens, top 512",
            SparsePrefill("bf16", 64, 128, 1024, 512),
        ),
    ),
}
"""Sets of cells: ``front`` is what the README shows, and ``smoke`` takes seconds."""
