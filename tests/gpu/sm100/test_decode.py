"""Dense decode of the sm100 payload, but for its tensor-core kernel: heads, pages, splits, strides, absent pages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import ValueRangeError

from tests.gpu.support.launches import captured
from tests.gpu.support.sm100 import CPASYNC, DENSE, SPLITTING, TMA, check_in_place, each, problem
from tests.support.compare import assert_same_bytes
from tests.support.problems import garbage_workspace
from tests.support.rows import Row


@each(DENSE)
@pytest.mark.parametrize("num_heads", [1, 16, 63, 128, 129, 256])
def test_heads(variant: Row, num_heads: int) -> None:
    check_in_place(problem(variant, lengths=(300, 128, 20, 1, 0), num_heads=num_heads, seed=num_heads))


@each(CPASYNC)
@pytest.mark.parametrize("page_size", [1, 2, 4, 8, 16, 32, 64, 128])
def test_page_sizes(variant: Row, page_size: int) -> None:
    problem(variant, lengths=(300, 0, 129, 1), page_size=page_size, num_heads=9).check()


@each(SPLITTING)
@pytest.mark.parametrize("max_splits", [2, 3, 7, 32, 256])
def test_splits(variant: Row, max_splits: int) -> None:
    case = problem(variant, lengths=(1400, 900, 640, 128, 20, 0), max_splits=max_splits)
    check_in_place(case)
    check_in_place(replace(case, num_heads=128))


@each(DENSE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("q_len", [2, 4, 67])
def test_query_tokens(variant: Row, q_len: int, causal: bool) -> None:
    problem(variant, lengths=(140, 20, 1, 0), q_len=q_len, num_heads=3, causal=causal, seed=q_len).check()


@each(DENSE)
def test_query_tokens_of_128_heads(variant: Row) -> None:
    check_in_place(problem(variant, lengths=(140, 1, 0, 300), q_len=3, num_heads=128))


@each(DENSE)
@pytest.mark.parametrize("q_lens", [(), (1, 3, 0, 2, 70, 1)])
def test_a_length_for_each_token(variant: Row, q_lens: tuple[int, ...]) -> None:
    lengths = (100, 3, 50, 0, 700, 1)
    problem(variant, lengths=lengths, q_len=4, q_lens=q_lens, num_heads=5, per_token=True).check()


@each(DENSE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_heads", [5, 127])
def test_ragged_queries(variant: Row, num_heads: int, causal: bool) -> None:
    lengths, q_lens = (100, 3, 50, 0, 700, 1), (1, 3, 0, 2, 70, 1)
    problem(variant, lengths=lengths, q_lens=q_lens, num_heads=num_heads, causal=causal).check()


@each(DENSE)
def test_ragged_queries_of_128_heads(variant: Row) -> None:
    check_in_place(problem(variant, lengths=(100, 3, 50, 700), q_lens=(1, 3, 0, 2), num_heads=128))


@each(TMA)
@pytest.mark.parametrize("num_heads", [5, 128])
def test_contiguous(variant: Row, num_heads: int) -> None:
    check_in_place(problem(variant, lengths=(20, 140, 0, 1, 300), paged=False, num_heads=num_heads))


@each(SPLITTING)
@pytest.mark.parametrize("deviation", [20.0, 100.0])
def test_large_queries_with_splits(variant: Row, deviation: float) -> None:
    if variant.q_dtype == "e4m3" and deviation == 100.0:
        deviation = 60.0  # beyond it, codes saturate
    problem(variant, lengths=(700, 260, 20), q_len=2, max_splits=5, q_deviation=deviation).check()


@each(DENSE)
@pytest.mark.parametrize("split_q", [False, True])
def test_strided_pools_and_queries(variant: Row, split_q: bool) -> None:
    case = problem(variant, strided=True, q_len=2, num_heads=7, split_q=split_q, out_scale=0.7)
    case.check()
    replace(case, split_kv=True, strided=False).check()


@each(DENSE)
@pytest.mark.parametrize("num_heads", [7, 128])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_broadcast_queries(variant: Row, dim: int, num_heads: int) -> None:
    """Requests, tokens or heads share one query, by a stride of 0."""
    for q_len in (1, 2):
        check_in_place(problem(variant, q_len=q_len, num_heads=num_heads, broadcast_q=dim))


@each(DENSE)
def test_queries_of_128_heads_that_must_be_packed(variant: Row) -> None:
    case = problem(variant, num_heads=128, strided=True)
    check_in_place(case)


@each(DENSE)
@pytest.mark.parametrize("max_splits", [1, 3])
def test_outputs_of_128_heads_that_must_be_copied(variant: Row, max_splits: int) -> None:
    """An engine's slice of a larger tensor."""
    splits = max_splits if variant.schedule == "individual" else 1
    problem(variant, lengths=(300, 128, 0), num_heads=128, q_len=2, max_splits=splits).check()


@each(DENSE)
def test_many_rows(variant: Row) -> None:
    lengths = tuple((17 * b) % 200 for b in range(150))
    problem(variant, lengths=lengths, num_heads=2).check()


@each(DENSE)
def test_pages_that_do_not_exist_are_skipped(variant: Row) -> None:
    """The tokens of such a page count as absent, and nothing outside the cache is read."""
    case = problem(variant, lengths=(700, 300, 128), num_heads=4, causal=False)
    size = case.page_size
    inputs = case.tensors()
    want_inputs = {**inputs, "block_table": inputs["block_table"].clone(), "seq_lens": inputs["seq_lens"].clone()}
    table, want_table = inputs["block_table"], want_inputs["block_table"]
    want_table[0, 1:-1] = table[0, 2:]
    want_inputs["seq_lens"][0] -= size
    table[0, 1] = 2**31 - 1
    table[2, :] = -5
    want_inputs["seq_lens"][2] = 0
    want = case.launch(want_inputs)
    got = case.launch(inputs)
    assert_same_bytes("out", got[0], want[0])
    assert_same_bytes("lse", got[1], want[1])
    assert got[1][2].isneginf().all()


@each(DENSE)
def test_wild_lengths_are_clamped(variant: Row) -> None:
    case = problem(variant, lengths=(256, 256, 256), num_heads=4, spare=0)
    inputs = case.tensors()
    want = case.launch(inputs)
    inputs["seq_lens"].copy_(torch.tensor([2**31 - 1, 256, -(2**31)], dtype=torch.int32))
    got = case.launch(inputs)
    assert_same_bytes("out", got[0][:2], want[0][:2])
    assert (got[0][2] == 0).all()
    assert got[1][2].isneginf().all()


@each(DENSE)
def test_lse_may_be_left_out(variant: Row) -> None:
    case = problem(variant, lengths=(300, 0))
    inputs = case.tensors()
    want, _ = case.launch(inputs)
    out, lse = case.launch(inputs, lse=False)
    assert lse is None
    assert_same_bytes("out", out, want)


@each(SPLITTING)
def test_graph_replay_after_lengths_change(variant: Row) -> None:
    case = problem(variant, lengths=(1000, 700, 64, 0), num_heads=16, max_splits=4)
    inputs = case.tensors()
    kernel = case.kernel()
    kernel.prepare(torch.cuda.current_device())
    out, lse = case.launch(inputs)
    workspace = garbage_workspace("cuda")
    plan = case.plan(kernel, inputs["seq_lens"])
    graph = captured(partial(kernel, **inputs, **case.scalars(), plan=plan, out=out, lse=lse, workspace=workspace))
    for lengths in ((1000, 700, 64, 0), (3, 0, 60, 0), (640, 641, 64, 0)):
        inputs["seq_lens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        want = reference.decode(**inputs, **case.scalars(), **case.options, dtype=torch.float64)
        case.compare(out, lse, *want)


@each(DENSE)
def test_nothing_to_do(variant: Row) -> None:
    for lengths in ((), (0,), (0, 0, 0)):
        case = problem(variant, lengths=lengths, num_heads=3)
        out, lse = case.launch(case.tensors())
        assert (out == 0).all()
        assert lse.isneginf().all()


@each(DENSE[:1])
@pytest.mark.parametrize(("name", "place", "value"), [
    ("seq_lens", (1,), 1000),
    ("seq_lens", (0,), -1),
    ("block_table", (0, 1), 99),
    ("block_table", (0, 0), -1),
])  # fmt: skip
def test_checked_values(variant: Row, name: str, place: tuple[int, ...], value: int) -> None:
    case = problem(variant, lengths=(300, 128))
    inputs = case.tensors()
    case.launch(inputs, check=True)
    inputs[name][place] = value
    with pytest.raises(ValueRangeError, match=rf"^{name}\["):
        case.launch(inputs, check=True)
