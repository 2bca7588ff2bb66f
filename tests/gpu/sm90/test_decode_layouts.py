"""Dense decode of the sm90 payload over pages of every size, contiguous caches, strides and odd addresses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gpu.support.sm90 import DENSE, each, each_with
from tests.gpu.support.tensors import at_start_of_larger, padded
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode, broadcast
from tests.support.rows import Row

TMA = [row for row in DENSE if row.load == "tma"]
ROWS_M64 = [row for row in DENSE if row.schedule == "rows_m64"]
PAGES = (1, 2, 8, 16, 24, 32, 48, 61, 64, 128, 192, 576)

each_layout = pytest.mark.parametrize(
    ("variant", "paged"),
    [(row, True) for row in DENSE] + [(row, False) for row in TMA],
    ids=lambda value: value.name if isinstance(value, Row) else ("paged" if value else "contiguous"),
)


@each_with("page_size, num_heads", [(page_size, num_heads) for page_size in PAGES for num_heads in (9, 128)])
def test_page_sizes(variant: Row, page_size: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(140, 0, 20, 1, page_size, 700), page_size=page_size, num_heads=num_heads).check()


@each_with("page_size", [8, 16, 64])
def test_page_sizes_of_long_requests(variant: Row, page_size: int) -> None:
    """Requests have more pages than a warp reads ahead at once."""
    Decode(variant.name, lengths=(9000, 3000, 1), page_size=page_size, num_heads=16).check()


@each_with("q_len", [1, 2, 3], TMA)
@pytest.mark.parametrize("causal", [True, False])
def test_contiguous(variant: Row, q_len: int, causal: bool) -> None:
    lengths = (20, 140, 0, 1, 97, 640)
    Decode(variant.name, lengths=lengths, paged=False, q_len=q_len, causal=causal, num_heads=16).check()


@each_with("num_heads", [16, 128], TMA)
@pytest.mark.parametrize("capacity", [700, 701, 704, 712])
def test_contiguous_of_any_capacity(variant: Row, capacity: int, num_heads: int) -> None:
    """TMA takes tokens in groups of eight, and some of these caches end inside a group."""
    lengths = (700, 1, 650)
    problem = Decode(variant.name, lengths=lengths, paged=False, num_heads=num_heads, spare=capacity - max(lengths))
    assert problem.capacity == capacity
    problem.check()


@each_layout
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("num_heads", [7, 16, 128])
def test_strides(variant: Row, paged: bool, split: bool, num_heads: int) -> None:
    num_heads = min(num_heads, variant.most("num_heads"))
    Decode(
        variant.name,
        strided=True,
        q_len=min(2, variant.most("q_len")),
        paged=paged,
        num_heads=num_heads,
        split_q=split,
        split_kv=split,
    ).check()


@each_with("q_len, num_heads", [*((1, heads) for heads in (20, 72, 96, 130, 160)), (3, 12), (3, 20), (3, 96)], ROWS_M64)
@pytest.mark.parametrize("strided", [False, True])
def test_heads_that_fill_no_tile(variant: Row, strided: bool, q_len: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(2000, 140, 0, 1), strided=strided, q_len=q_len, num_heads=num_heads).check()


@each_with("q_len, num_heads", [(1, 20), (3, 20), (3, 96)], ROWS_M64)
@pytest.mark.parametrize(
    ("latent", "rope"),
    [
        ((0, 0, 0, 16), (0, 0, 0, 16)),  # after each row: rows still have one stride
        ((0, 2, 0, 0), (0, 2, 0, 0)),  # after the tokens of a request
        ((0, 0, 2, 0), (0, 0, 0, 0)),  # after the heads of a token, in one of both
        ((0, 0, 0, 0), (0, 0, 2, 0)),
    ],
)
def test_memory_between_queries(
    variant: Row, latent: tuple[int, ...], rope: tuple[int, ...], q_len: int, num_heads: int
) -> None:
    """TMA loads heads that fill no tile where rows of several tokens have one stride; NaN is between them."""
    problem = Decode(variant.name, lengths=(2000, 140, 0, 1), q_len=q_len, num_heads=num_heads, split_q=True)
    inputs = problem.tensors()
    parts = zip(inputs["q"], (latent, rope), strict=True)
    inputs["q"] = tuple(at_start_of_larger(part, *added) for part, added in parts)
    out, lse = problem.launch(inputs)
    problem.compare(out, lse, *problem.expected())


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
@each_with("num_heads", [9, 16, 128])
def test_broadcast_queries(variant: Row, num_heads: int, dim: int, split: bool) -> None:
    """Requests, tokens or heads share one query, by a stride of 0."""
    problem = Decode(
        variant.name, lengths=(2000, 140, 1), q_len=min(2, variant.most("q_len")), num_heads=num_heads, broadcast_q=dim
    )
    replace(problem, split_q=split).check()


@each_layout
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("split", [False, True])
def test_broadcast_caches(variant: Row, paged: bool, split: bool, dim: int) -> None:
    """Pages or tokens share one row, by a stride of 0."""
    problem = Decode(
        variant.name,
        lengths=(64, 1, 64),
        paged=paged,
        split_kv=split,
        q_len=min(2, variant.most("q_len")),
        finite=True,
        spare=0,
    )
    inputs = problem.tensors()
    inputs["kv_cache"] = broadcast(inputs["kv_cache"], dim)
    out, lse = problem.launch(inputs)
    problem.compare(out, lse, *problem.expected(inputs))


@each
def test_queries_at_odd_addresses(variant: Row) -> None:
    problem = Decode(variant.name, num_heads=16, q_len=min(2, variant.most("q_len")))
    inputs = problem.tensors()
    inputs["q"] = padded(inputs["q"], 3)
    out, lse = problem.launch(inputs)
    problem.compare(out, lse, *problem.expected())


@each
def test_outputs_at_odd_addresses(variant: Row) -> None:
    problem = Decode(variant.name, num_heads=16, q_len=min(2, variant.most("q_len")), lengths=(2000, 140, 1))
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    out = memory.guarded(want_out.shape, want_out.dtype, "cuda", pad=3)
    lse = memory.guarded(want_lse.shape, want_lse.dtype, "cuda", pad=3)
    problem.launch(inputs, out=out.view, lse=lse.view)
    assert_same_bytes("out", out.view, want_out)
    assert_same_bytes("lse", lse.view, want_lse)
    out.assert_guards("out")
    lse.assert_guards("lse")
