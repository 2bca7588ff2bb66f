"""The cells that are measured side by side, in suites that say in which states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from mla_kernels.diagnostics.bench.problems import LONG, Problem

from benchmarks.ops.sparse_problems import SparseDecode, SparsePrefill

SINGLE = ("rested", "graph", "between")
"""The states of a single launch: after a rest, in a graph, and between other kernels."""
ALL = (*SINGLE, "sustained")
CLOSE = 0.02
"""The largest relative error, in the norm of a problem's output, of a library whose arithmetic is as exact as ours."""
CLOSE_IN_FP8 = 0.08
"""The same of a library that rounds Q and P to e4m3, which changes the output by some 3 %."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A problem, the op that solves it, and the words by which pages call it.

    Attributes
    ----------
    op, title : str
    problem : Problem, SparseDecode or SparsePrefill
    close : float
        The largest relative error to our output with which a library is timed.
    float64_requests : int
        The first requests of a problem whose outputs are compared with attention in float64, query tokens of a
        prefill; 0 for no comparison.
    """

    op: str
    title: str
    problem: Any
    close: float = CLOSE
    float64_requests: int = 0

    @property
    def fp8(self) -> bool:
        """Whether it is a dense decode over an e4m3 cache, which libraries also do in fp8 arithmetic."""
        return self.op == "decode" and self.problem.kv_dtype == "e4m3"


@dataclass(frozen=True, slots=True)
class Suite:
    """Cells, the title of their page, and the states in which each cell is measured."""

    title: str
    states: tuple[str, ...]
    cells: tuple[Cell, ...]


def _thousands(seq: int) -> str:
    return f"{seq // 1024}k" if seq % 1024 == 0 else f"{seq:,}"


def dense(
    heads: int,
    batch: int,
    seq: int,
    q_len: int = 1,
    *,
    lengths: str = "equal",
    page_size: int = 64,
    kv_dtype: str = "bf16",
    kv_mean: float = 0.0,
) -> Cell:
    """A dense decode over a bf16 cache, or over an e4m3 cache, where fp8 arithmetic takes part."""
    context = {
        "equal": f"{_thousands(seq)} tokens",
        "normal": f"{_thousands(seq)} tokens",
        "long": "one of 64k tokens among 1k",
        "zipf": "256 to 64k tokens by rank",
    }[lengths]
    tokens = "" if q_len == 1 else f", {q_len} query tokens"
    spread = ", lengths vary" if lengths == "normal" else ""
    pages = "" if page_size == 64 else f", pages of {page_size}"
    cache = "" if kv_dtype == "bf16" else f" {kv_dtype}"
    mean = f", values of mean {kv_mean:g}" if kv_mean else ""
    title = f"Dense{cache} decode, {heads} heads, batch {batch}, {context}{tokens}{spread}{pages}{mean}"
    problem = Problem("bf16", kv_dtype, heads, batch, seq, q_len, page_size, lengths, kv_mean=kv_mean)
    cell = Cell("decode", title, problem)
    return replace(cell, close=CLOSE_IN_FP8, float64_requests=2) if cell.fp8 else cell


def sparse_decode(heads: int, batch: int, q_len: int = 1) -> Cell:
    """A sparse decode over an ``fp8_ds_mla`` cache: 2,048 of 32,768 tokens."""
    tokens = "" if q_len == 1 else f", {q_len} query tokens"
    title = f"Sparse fp8 decode, {heads} heads, batch {batch}, 2,048 of 32k tokens{tokens}"
    return Cell("sparse_decode", title, SparseDecode("bf16", "fp8_ds_mla", heads, batch, 32768, 2048, q_len))


def sparse_decode_v4(heads: int, batch: int, q_len: int, topk: int) -> Cell:
    """A sparse decode of DeepSeek V4: a window of 128 tokens, and some of 32,768."""
    tokens = "" if q_len == 1 else f", {q_len} query tokens"
    title = f"Sparse V4 decode, {heads} heads, batch {batch}, a window and {topk:,} of 32k tokens{tokens}"
    problem = SparseDecode("bf16", "fp8_ds_v4", heads, batch, 32768, topk, q_len, d_qk=512, window=128)
    return Cell("sparse_decode", title, problem)


def sparse_prefill(heads: int, seq: int = 32768, d_qk: int = 576) -> Cell:
    """A sparse prefill of 4,096 query tokens: 2,048 of some bf16 rows."""
    columns = "" if d_qk == 576 else f" of {d_qk} columns"
    title = f"Sparse bf16 prefill, {heads} heads, 4,096 queries, 2,048 of {_thousands(seq)} rows{columns}"
    return Cell("sparse_prefill", title, SparsePrefill("bf16", heads, 4096, seq, 2048, d_qk))


_FRONT = (
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
)
_DENSE = tuple(
    dense(heads, batch, seq, q_len)
    for heads, q_len, batch, seq in product((16, 64, 128), (1, 2), (1, 16, 64, 128), (1024, 4096, 8192, 32768))
)
_MORE = (
    *(dense(heads, batch, 8192) for heads, batch in product((8, 20, 32, 96), (1, 16, 128))),
    *(dense(heads, batch, 8192, q_len) for q_len, heads, batch in product((4, 8), (16, 128), (1, 16, 128))),
    *(
        dense(heads, batch, 8192, page_size=page)
        for heads, batch, page in product((16, 64, 128), (16, 128), (1, 16, 64))
    ),
)
_RAGGED = tuple(
    dense(heads, batch, 4096 if lengths == "normal" else LONG, q_len, lengths=lengths)
    for lengths, heads, q_len, batch in product(("normal", "long", "zipf"), (16, 128), (1, 2), (32, 128))
)
_SPARSE = (
    *(sparse_decode(heads, batch, q_len) for heads, q_len, batch in product((64, 128), (1, 2), (1, 2, 4, 64, 128))),
    *(
        sparse_decode_v4(heads, batch, q_len, topk)
        for heads, q_len, batch, topk in product((64, 128), (1, 2), (1, 64, 128), (512, 1024, 2048))
    ),
)
_FEW_HEADS = (
    *(sparse_decode(heads, batch, q_len) for heads, q_len, batch in product((8, 16, 32), (1, 2), (1, 8, 64, 128))),
    *(sparse_decode_v4(heads, batch, 1, topk) for heads, batch, topk in product((8, 16), (1, 8, 128), (512, 2048))),
)
_PREFILL = tuple(
    sparse_prefill(heads, seq, d_qk)
    for d_qk, heads, seq in product((576, 512), (64, 128), (8192, 32768, 65536, 131072))
)
_FEW_HEADS_PREFILL = tuple(
    sparse_prefill(heads, seq, d_qk)
    for d_qk, heads, seq in product((576, 512), (8, 16, 32), (8192, 32768, 65536, 131072))
)
_FP8_PREFILL = tuple(
    replace(sparse_prefill(heads, seq, d_qk), close=CLOSE_IN_FP8, float64_requests=16)
    for d_qk, heads, seq in product((576, 512), (16, 64, 128), (8192, 32768, 131072))
)
_SUSTAINED = (
    dense(128, 128, 8192),
    dense(128, 128, 8192, q_len=2),
    dense(64, 128, 8192),
    dense(16, 128, 8192),
    dense(128, 16, 32768),
    dense(128, 1, 8192),
    dense(128, 32, 4096, lengths="normal"),
)
_SPARSE_SUSTAINED = (
    *(sparse_decode(heads, 128) for heads in (64, 128)),
    *(sparse_decode_v4(heads, 128, 1, 2048) for heads in (64, 128)),
)
_FP8 = (
    *(dense(heads, batch, 8192, kv_dtype="e4m3") for heads, batch in product((16, 64, 128), (1, 16, 128))),
    dense(128, 128, 1024, kv_dtype="e4m3"),
    dense(128, 128, 4096, q_len=2, kv_dtype="e4m3"),
    dense(128, 4, 65536, kv_dtype="e4m3"),
    dense(128, 128, 8192, kv_dtype="e4m3", kv_mean=1.0),
    dense(128, 66, 32768, kv_dtype="e4m3", kv_mean=1.0),
)
_SMOKE = (
    dense(16, 4, 512),
    sparse_decode(64, 2),
    Cell(
        "sparse_prefill",
        "Sparse bf16 prefill, 64 heads, 128 tokens, top 512",
        SparsePrefill("bf16", 64, 128, 1024, 512),
    ),
)
SUITES = {
    "front": Suite("Dense and sparse attention", ALL, _FRONT),
    "dense": Suite("Dense decode in 96 shapes", SINGLE, _DENSE),
    "more": Suite("Dense decode with other heads, query tokens and pages", SINGLE, _MORE),
    "ragged": Suite("Dense decode of requests of different lengths", SINGLE, _RAGGED),
    "sustained": Suite("Dense decode under load", ALL, _SUSTAINED),
    "sparse": Suite("Sparse decode of fp8 caches", SINGLE, _SPARSE),
    "sparse_sustained": Suite("Sparse decode of fp8 caches under load", ALL, _SPARSE_SUSTAINED),
    "few_heads": Suite("Sparse decode of fp8 caches with few heads", SINGLE, _FEW_HEADS),
    "prefill": Suite("Sparse prefill", SINGLE, _PREFILL),
    "fp8_prefill": Suite("Sparse prefill beside fp8 arithmetic", SINGLE, _FP8_PREFILL),
    "few_heads_prefill": Suite("Sparse prefill with few heads", SINGLE, _FEW_HEADS_PREFILL),
    "fp8": Suite("Dense decode of e4m3 caches", SINGLE, _FP8),
    "smoke": Suite("A few small cells", ALL, _SMOKE),
}
"""``front`` is what the README shows, and ``smoke`` takes seconds."""
