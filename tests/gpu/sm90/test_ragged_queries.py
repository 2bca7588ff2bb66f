"""Dense decode of the sm90 payload: requests that have different numbers of query tokens, and more than 128 heads."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import ValueRangeError

from tests.gpu.support.sm90 import each, each_with
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row

LENGTHS = (100, 3, 50, 0, 700, 1, 64, 4096)
Q_LENS = (1, 3, 0, 2, 4, 1, 2, 1)
ONE = (1, 1, 0, 1, 1, 0, 1, 1)


@pytest.mark.parametrize("causal", [True, False])
@each_with("q_len, num_heads", [(4, heads) for heads in (1, 3, 4, 9, 16, 32, 48, 64, 65, 100, 128, 160, 256)])
def test_heads(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    assert q_len == max(Q_LENS)
    Decode(variant.name, lengths=LENGTHS, q_lens=Q_LENS, num_heads=num_heads, causal=causal, seed=num_heads).check()


@each_with("q_len, num_heads", [(1, heads) for heads in (1, 3, 8, 15, 16, 32, 64, 128)])
def test_requests_without_tokens(variant: Row, q_len: int, num_heads: int) -> None:
    assert q_len == max(ONE)
    Decode(variant.name, lengths=LENGTHS, q_lens=ONE, num_heads=num_heads).check()


@each_with("q_len, num_heads", [(2, heads) for heads in (3, 8, 15, 16)])
def test_two_tokens(variant: Row, q_len: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(130, 2, 0, 777), q_lens=(q_len, 1, 0, q_len), num_heads=num_heads).check()


@each_with("q_len, num_heads", [(67, 3), (130, 1), (130, 16), (260, 2)])
def test_many_tokens_beside_few(variant: Row, q_len: int, num_heads: int) -> None:
    """The blocks of a part have rows of the same requests: those of one token leave most of them without work."""
    lengths, q_lens = (300, 20, 700, 300, 0), (q_len, 1, 1, q_len, 0)
    Decode(variant.name, lengths=lengths, q_lens=q_lens, num_heads=num_heads).check()


@pytest.mark.parametrize("max_splits", [1, 2, 5, 32])
@each_with("q_len, num_heads", [(1, 16), (2, 16), (4, 16), (4, 128)])
def test_splits(variant: Row, q_len: int, num_heads: int, max_splits: int) -> None:
    q_lens = tuple(min(n, q_len) for n in Q_LENS)
    Decode(variant.name, lengths=LENGTHS, q_lens=q_lens, num_heads=num_heads, max_splits=max_splits).check()


@each_with("q_len, num_heads", [(1, 16), (4, 16), (4, 64)])
def test_long_requests(variant: Row, q_len: int, num_heads: int) -> None:
    """All are split, in two and into many."""
    q_lens = (q_len, 1, 0, q_len)
    Decode(variant.name, lengths=(20000, 9000, 5000, 64), q_lens=q_lens, num_heads=num_heads).check()


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("split_q", [True, False])
@each_with("q_len, num_heads", [(1, 16), (4, 16), (4, 128)])
def test_layouts(variant: Row, q_len: int, num_heads: int, strided: bool, split_q: bool) -> None:
    q_lens = tuple(min(n, q_len) for n in Q_LENS)
    Decode(variant.name, lengths=LENGTHS, q_lens=q_lens, num_heads=num_heads, strided=strided, split_q=split_q).check()


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
    problem = Decode(variant.name, lengths=LENGTHS, q_lens=q_lens, num_heads=num_heads, spare=1)
    inputs = problem.tensors()
    for bad in ((-9, 5, 2, 1 << 30, -(1 << 31), 7, 7, 3, 1 << 20), (1 << 30,) * 9, (-1,) * 9, (14, 0) * 4 + (14,)):
        inputs["cu_seqlens_q"] = torch.tensor(bad, device="cuda").int()
        problem.run(inputs)
    torch.cuda.synchronize()


@each
def test_checked_bounds(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(9, 9), q_lens=(1, 1), num_heads=8)
    inputs = problem.tensors()
    mla.decode(**inputs, **problem.scalars(), max_q_len=1, check=True)
    inputs["cu_seqlens_q"] = torch.tensor([0, 2, 2], device="cuda").int()
    with pytest.raises(ValueRangeError, match=r"cu_seqlens_q\[1\]: got 2; accepts 0 to 1"):
        mla.decode(**inputs, **problem.scalars(), max_q_len=1, check=True)


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
