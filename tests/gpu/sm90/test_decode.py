"""Dense decode of the sm90 payload: every variant over heads, lengths and scales, with unused memory poisoned."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import ValueRangeError

from tests.gpu.support.sm90 import MIXED, each, each_with
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row


@each_with("num_heads", [1, 3, 9, 15, 16, 32, 48, 63, 64, 65, 112, 126, 127, 128])
def test_heads(variant: Row, num_heads: int) -> None:
    Decode(variant.name, num_heads=num_heads, seed=num_heads).check()


@pytest.mark.parametrize("causal", [True, False])
@each_with(
    "q_len, num_heads", [(2, 3), (2, 9), (2, 16), (4, 16), (67, 3), (68, 1), (100, 4), (127, 3), (128, 2), (2, 128)]
)
def test_query_tokens(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    lengths = (q_len + 9, 140, 20, 1, 0, 700)
    Decode(variant.name, lengths=lengths, q_len=q_len, num_heads=num_heads, causal=causal, seed=q_len).check()


@pytest.mark.parametrize("causal", [True, False])
@each_with("q_len, num_heads", [(3, 16), (1, 48), (7, 16), (1, 112)])
def test_tiles_with_an_empty_quarter(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    """One of the warps that combine a tile's rows has none, and reaches each barrier earlier than the others."""
    Decode(
        variant.name, lengths=(20, 140, 0, 1, 97, 640), q_len=q_len, num_heads=num_heads, causal=causal, page_size=64
    ).check()


@each
@pytest.mark.parametrize(
    "lengths",
    [
        (1,),
        (2,),
        (63,),
        (64,),
        (65,),
        (127,),
        (128,),
        (129,),
        (0,),
        (0, 0, 0),
        (8192,),
        (1, 0, 0, 33),
        MIXED,
        MIXED * 30,
    ],
)
def test_lengths(variant: Row, lengths: tuple[int, ...]) -> None:
    Decode(variant.name, lengths=lengths, num_heads=5, seed=len(lengths)).check()


@each_with("num_heads, q_len", [(num_heads, q_len) for num_heads in (16, 64, 128) for q_len in (1, 2)])
def test_longer_sequences(variant: Row, num_heads: int, q_len: int) -> None:
    Decode(variant.name, lengths=MIXED, num_heads=num_heads, q_len=q_len, seed=4096).check()


@each
def test_a_large_batch_padded_for_a_graph(variant: Row) -> None:
    Decode(variant.name, lengths=(70,) + (0,) * 2999 + (130, 1), num_heads=2).check()


@each
def test_the_largest_batch_of_a_grid(variant: Row) -> None:
    """Two requests, far apart among empty ones, give what they give alone."""
    batch, places = 65535, (3, 65534)
    alone = Decode(variant.name, lengths=(130, 70), num_heads=2)
    inputs = alone.tensors()
    large = {
        "q": torch.zeros(batch, *inputs["q"].shape[1:], dtype=inputs["q"].dtype, device="cuda"),
        "kv_cache": inputs["kv_cache"],
        "block_table": torch.full((batch, inputs["block_table"].shape[1]), memory.UNUSED_PAGE, device="cuda").int(),
        "seq_lens": torch.zeros(batch, dtype=torch.int32, device="cuda"),
    }
    for request, place in enumerate(places):
        for name in ("q", "block_table", "seq_lens"):
            large[name][place] = inputs[name][request]
    kernel = alone.kernel()
    out, lse = kernel(**large, **alone.scalars(), plan=kernel.plan(large["seq_lens"], num_heads=2, q_len=1))
    alone.compare(out[list(places)], lse[list(places)], *alone.expected())
    empty = torch.ones(batch, dtype=torch.bool)
    empty[list(places)] = False
    assert not out[empty.cuda()].any()
    assert bool((lse[empty.cuda()] == -torch.inf).all())


@each_with("num_heads", [9, 16, 64, 126, 128])
def test_many_requests_of_each_block(variant: Row, num_heads: int) -> None:
    """Queries take turns with KV in the same memory, whether they pack into tiles or not."""
    Decode(
        variant.name,
        lengths=(700, 64, 1, 300, 129) * 60,
        num_heads=num_heads,
        q_len=min(2, variant.most("q_len")),
        seed=num_heads,
    ).check()


@each_with("num_heads", [16, 64, 128])
def test_blocks_that_begin_with_requests_without_tokens(variant: Row, num_heads: int) -> None:
    Decode(variant.name, lengths=(0, 70, 0, 129) * 70, num_heads=num_heads, seed=num_heads).check()


@each
@pytest.mark.parametrize("softmax_scale", [0.0, -0.05, 576**-0.5])
@pytest.mark.parametrize("num_heads", [16, 7])
def test_scales(variant: Row, softmax_scale: float, num_heads: int) -> None:
    Decode(variant.name, softmax_scale=softmax_scale, out_scale=0.7, num_heads=num_heads).check()


@each_with("q_len", [2, 128])
def test_nothing_but_masked_blocks_before_the_first_key(variant: Row, q_len: int) -> None:
    Decode(variant.name, lengths=(1, 2, 0, 65), q_len=q_len, num_heads=2, max_splits=3).check()


RAGGED_LENGTHS = (100, 3, 50, 0, 700, 1, 64, 4096)
Q_LENS = (1, 3, 0, 2, 4, 1, 2, 1)
ONE = (1, 1, 0, 1, 1, 0, 1, 1)


@pytest.mark.parametrize("causal", [True, False])
@each_with("q_len, num_heads", [(4, heads) for heads in (1, 3, 4, 9, 16, 32, 48, 64, 65, 100, 128, 160, 256)])
def test_heads_of_ragged_queries(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    assert q_len == max(Q_LENS)
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, num_heads=num_heads, causal=causal, seed=num_heads
    ).check()


@each_with("q_len, num_heads", [(1, heads) for heads in (1, 3, 8, 15, 16, 20, 32, 64, 96, 128, 130)])
def test_requests_without_query_tokens(variant: Row, q_len: int, num_heads: int) -> None:
    assert q_len == max(ONE)
    Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=ONE, num_heads=num_heads).check()


@each_with("q_len, num_heads", [(2, heads) for heads in (3, 8, 15, 16)])
def test_two_query_tokens(variant: Row, q_len: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(130, 2, 0, 777), q_lens=(q_len, 1, 0, q_len), num_heads=num_heads).check()


@each_with("q_len, num_heads", [(67, 3), (130, 1), (130, 16), (260, 2)])
def test_many_tokens_beside_few(variant: Row, q_len: int, num_heads: int) -> None:
    """The blocks of a part have rows of the same requests: those of one token leave most of them without work."""
    lengths, q_lens = (300, 20, 700, 300, 0), (q_len, 1, 1, q_len, 0)
    Decode(variant.name, lengths=lengths, q_lens=q_lens, num_heads=num_heads).check()


@pytest.mark.parametrize("max_splits", [1, 2, 5, 32])
@each_with("q_len, num_heads", [(1, 16), (2, 16), (4, 16), (4, 128)])
def test_splits_of_ragged_queries(variant: Row, q_len: int, num_heads: int, max_splits: int) -> None:
    q_lens = tuple(min(n, q_len) for n in Q_LENS)
    Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=q_lens, num_heads=num_heads, max_splits=max_splits).check()


@each_with("q_len, num_heads", [(1, 16), (4, 16), (4, 64)])
def test_long_requests_with_ragged_queries(variant: Row, q_len: int, num_heads: int) -> None:
    """All are split, in two and into many."""
    q_lens = (q_len, 1, 0, q_len)
    Decode(variant.name, lengths=(20000, 9000, 5000, 64), q_lens=q_lens, num_heads=num_heads).check()


@pytest.mark.parametrize("max_splits", [None, 1, 5])
@pytest.mark.parametrize("ragged", [True, False])
@each_with("q_len, num_heads", [(1, 16), (2, 3), (2, 16), (4, 1), (4, 16), (4, 100), (4, 256), (67, 3)])
def test_a_length_for_each_token(
    variant: Row, q_len: int, num_heads: int, ragged: bool, max_splits: int | None
) -> None:
    q_lens = tuple(min(n, q_len) for n in Q_LENS) if ragged else ()
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_len=q_len, q_lens=q_lens, num_heads=num_heads, per_token=True,
        max_splits=max_splits, strided=num_heads == 16, seed=q_len,
    ).check()  # fmt: skip


@each_with("q_len, num_heads", [(2, 8), (4, 128)])
def test_wild_lengths_of_tokens(variant: Row, q_len: int, num_heads: int) -> None:
    """They are clamped to what the request has."""
    problem = Decode(variant.name, q_len=q_len, num_heads=num_heads, per_token=True)
    inputs = problem.tensors()
    inputs["token_seq_lens"][:, 0], inputs["token_seq_lens"][:, 1:] = -(2**31), 2**31 - 1
    want = {**inputs, "token_seq_lens": inputs["token_seq_lens"].clamp(min=0).minimum(inputs["seq_lens"][:, None])}
    problem.compare(*problem.run(inputs), *problem.expected(want))


LAUNCHES = [
    (2, 16, 64, (777,)),  # swap_ab, one request
    (2, 8, 8, (777, 3, 0, 65)),
    (4, 16, 64, (300, 20000, 3, 64)),  # rows_m64 by TMA
    (4, 16, 1, (300, 777, 3, 64)),  # by cp.async, page by page
    (3, 128, 64, (300, 777, 3, 64)),  # a cluster for each request
    (67, 3, 64, (700, 90)),
    (4, 16, 64, (20000,)),  # one request in many parts
    (2, 128, 64, (9000,)),
]
"""Query tokens, heads, tokens of a page, and lengths of requests."""


def seen_by_tokens(inputs: dict[str, Any]) -> torch.Tensor:
    """Of each request the first token sees no key and the last one all, behind which the cache is NaN."""
    lengths = inputs["token_seq_lens"]
    if "cu_seqlens_q" not in inputs:
        lengths[:, 0], lengths[:, -1] = 0, inputs["seq_lens"]
        return lengths == 0
    bounds = inputs["cu_seqlens_q"].long()
    some = bounds.diff() > 0
    lengths[0, bounds[:-1][some]] = 0
    lengths[0, bounds[1:][some] - 1] = inputs["seq_lens"][some]
    of_requests = torch.arange(lengths.shape[1], device="cuda") < bounds[-1]
    return (lengths == 0) & of_requests


@pytest.mark.parametrize("ragged", [True, False])
@each_with("q_len, num_heads, page_size", sorted({launch[:3] for launch in LAUNCHES}))
def test_tokens_that_see_nothing_beside_those_that_see_all(
    variant: Row, q_len: int, num_heads: int, page_size: int, ragged: bool
) -> None:
    for lengths in (launch[3] for launch in LAUNCHES if launch[:3] == (q_len, num_heads, page_size)):
        q_lens = (q_len, 1, 0, q_len)[: len(lengths)] if ragged else ()
        problem = Decode(
            variant.name, lengths=lengths, q_len=q_len, q_lens=q_lens, num_heads=num_heads, page_size=page_size,
            per_token=True, seed=num_heads,
        )  # fmt: skip
        inputs = problem.tensors()
        nothing = seen_by_tokens(inputs)
        out, lse = problem.run(inputs)
        problem.compare(out, lse, *problem.expected(inputs))
        assert not out[nothing].any()
        assert bool((lse.transpose(1, 2)[nothing] == -torch.inf).all())


@pytest.mark.parametrize("ragged", [True, False])
@each_with("q_len, num_heads", [(2, 16), (4, 16), (4, 128)])
def test_a_graph_serves_other_lengths_of_tokens(variant: Row, q_len: int, num_heads: int, ragged: bool) -> None:
    q_lens = (q_len, 1, q_len) if ragged else ()
    problem = Decode(
        variant.name, lengths=(700, 9, 65), q_len=q_len, q_lens=q_lens, num_heads=num_heads, per_token=True
    )
    inputs, kernel = problem.tensors(), problem.kernel()
    kernel.prepare()
    plan = problem.plan(kernel, inputs["seq_lens"]) or kernel.plan(inputs["seq_lens"], num_heads=num_heads, q_len=q_len)
    run: dict[str, Any] = {**inputs, **problem.scalars(), "plan": plan}
    out, lse = kernel(**run)
    size = kernel.workspace_size(**inputs, **({"max_q_len": q_len} if ragged else {}))
    run |= {"out": out, "lse": lse, "workspace": torch.empty(size, dtype=torch.uint8, device="cuda")}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(**run)
    seen_by_tokens(inputs)
    out.fill_(torch.nan)
    lse.fill_(torch.nan)
    graph.replay()
    problem.compare(out, lse, *problem.expected(inputs))


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("split_q", [True, False])
@each_with("q_len, num_heads", [(1, 16), (4, 16), (4, 128)])
def test_layouts_of_ragged_queries(variant: Row, q_len: int, num_heads: int, strided: bool, split_q: bool) -> None:
    q_lens = tuple(min(n, q_len) for n in Q_LENS)
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_lens=q_lens, num_heads=num_heads, strided=strided, split_q=split_q
    ).check()


@each_with("q_len, num_heads", [(q_len, heads) for q_len in (1, 3) for heads in (129, 160, 192, 255, 256)])
def test_more_than_128_heads(variant: Row, q_len: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(140, 20, 1, 0, 3000), q_len=q_len, num_heads=num_heads, seed=num_heads).check()


@each_with("q_len, num_heads", [(4, 16), (1, 8)])
def test_a_graph_serves_other_bounds(variant: Row, q_len: int, num_heads: int) -> None:
    """Bounds, lengths and the plan are read when the graph runs."""
    first = Decode(variant.name, lengths=(50, 9, 700), q_lens=(q_len, 1, q_len), spare=q_len, num_heads=num_heads)
    other = Decode(variant.name, lengths=(1, 650, 60), q_lens=(1, q_len, q_len), spare=q_len, num_heads=num_heads)
    mine, others, kernel = first.tensors(), other.tensors(), first.kernel()
    kernel.prepare()
    pages = max(problem["kv_cache"].shape[0] for problem in (mine, others))
    mine["kv_cache"] = torch.cat([mine["kv_cache"], mine["kv_cache"].new_zeros(pages, *mine["kv_cache"].shape[1:])])
    plan = kernel.plan(mine["seq_lens"], num_heads=num_heads, max_q_len=q_len)
    run: dict[str, Any] = {**mine, **first.scalars(), "plan": plan}
    out, lse = kernel(**run)
    size = kernel.workspace_size(**mine, max_q_len=q_len)
    run |= {"out": out, "lse": lse, "workspace": torch.empty(size, dtype=torch.uint8, device="cuda")}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.plan(mine["seq_lens"], out=plan)
        kernel(**run)
    wide = min(mine["block_table"].shape[1], others["block_table"].shape[1])
    mine["q"].copy_(others["q"])
    mine["kv_cache"][: others["kv_cache"].shape[0]].copy_(others["kv_cache"])
    mine["block_table"][:, :wide].copy_(others["block_table"][:, :wide])
    mine["seq_lens"].copy_(others["seq_lens"])
    mine["cu_seqlens_q"].copy_(others["cu_seqlens_q"])
    out.fill_(torch.nan)
    lse.fill_(torch.nan)
    graph.replay()
    other.compare(out, lse, *other.expected(others))


@each_with("q_len, num_heads", [(4, 16), (1, 16)])
def test_bad_bounds_write_nothing_outside(variant: Row, q_len: int, num_heads: int) -> None:
    """A launch does not read bounds on the host: whatever they are, results stay within their tensors."""
    q_lens = tuple(min(n, q_len) for n in Q_LENS)
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=q_lens, num_heads=num_heads, spare=1)
    inputs = problem.tensors()
    for bad in ((-9, 5, 2, 1 << 30, -(1 << 31), 7, 7, 3, 1 << 20), (1 << 30,) * 9, (-1,) * 9, (14, 0) * 4 + (14,)):
        inputs["cu_seqlens_q"] = torch.tensor(bad, device="cuda").int()
        problem.run(inputs)
    torch.cuda.synchronize()


@each
def test_checked_bounds(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(9, 9), q_lens=(1, 1), num_heads=8)
    inputs = problem.tensors()
    mla.decode(**inputs, **problem.scalars(), **problem.options, max_q_len=1, check=True)
    inputs["cu_seqlens_q"] = torch.tensor([0, 2, 2], device="cuda").int()
    with pytest.raises(ValueRangeError, match=r"cu_seqlens_q\[1\]: got 2; accepts 0 to 1"):
        mla.decode(**inputs, **problem.scalars(), **problem.options, max_q_len=1, check=True)


@each_with("q_len, num_heads", [(2, 16), (2, 64), (2, 128)])
def test_equal_requests_give_what_a_batch_gives(variant: Row, q_len: int, num_heads: int) -> None:
    """To the last bit, by a plan of the same shape."""
    lengths = (140, 20, 700)
    ragged = Decode(variant.name, lengths=lengths, q_lens=(q_len,) * 3, spare=0, num_heads=num_heads)
    inputs = ragged.tensors()
    out, lse = ragged.run(inputs)
    q = inputs.pop("q")
    del inputs["cu_seqlens_q"]
    uniform = Decode(variant.name, lengths=lengths, q_len=q_len, spare=0, num_heads=num_heads)
    want_out, want_lse = uniform.run({**inputs, "q": q.view(3, q_len, *q.shape[2:])})
    assert_same_bytes("out", out.reshape(want_out.shape), want_out)
    assert_same_bytes("lse", lse[0].unflatten(1, (3, q_len)).transpose(0, 1), want_lse)
