"""Dense decode: every variant over shapes, layouts and schedules, with unused memory poisoned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import InvalidArgumentError

from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode, unchanged
from tests.support.rows import Row

pytestmark = pytest.mark.op("decode")

HEADS = (1, 3, 9, 16, 63, 64, 126, 128)
PAGE_SIZES = (1, 2, 16, 48, 61, 64, 128, 576)


@pytest.mark.parametrize("num_heads", HEADS)
def test_heads(variant: Row, num_heads: int) -> None:
    Decode(variant.name, num_heads=num_heads, seed=num_heads).check()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_page_sizes(variant: Row, page_size: int) -> None:
    Decode(variant.name, lengths=(140, 0, 20, 1, page_size), page_size=page_size, num_heads=9).check()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("q_len", [2, 4, 67])
def test_query_tokens(variant: Row, q_len: int, causal: bool) -> None:
    Decode(variant.name, lengths=(140, 20, 1, 0), q_len=q_len, num_heads=3, causal=causal, seed=q_len).check()


@pytest.mark.parametrize(("q_len", "num_heads"), [(68, 1), (100, 4), (127, 3), (128, 2)])
def test_many_query_tokens(variant: Row, q_len: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(q_len + 9, 60), q_len=q_len, num_heads=num_heads, page_size=16).check()


@pytest.mark.parametrize("q_len", [1, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_contiguous(variant: Row, q_len: int, causal: bool) -> None:
    Decode(variant.name, lengths=(20, 140, 0, 1, 97), paged=False, q_len=q_len, causal=causal, num_heads=16).check()


@pytest.mark.parametrize("lengths", [(1,), (2,), (63,), (64,), (65,), (0,), (0, 0, 0), (1, 0, 0, 0, 0, 0, 0, 33)])
def test_lengths(variant: Row, lengths: tuple[int, ...]) -> None:
    Decode(variant.name, lengths=lengths, num_heads=5, seed=len(lengths)).check()


@pytest.mark.parametrize("max_splits", [1, 2, 3, 7, 32])
def test_splits(variant: Row, max_splits: int) -> None:
    Decode(variant.name, lengths=(700, 333, 20, 1, 0), q_len=2, max_splits=max_splits, page_size=48).check()


@pytest.mark.parametrize("max_splits", [2, 5])
@pytest.mark.parametrize("deviation", [20.0, 100.0])
def test_large_queries_with_splits(variant: Row, max_splits: int, deviation: float) -> None:
    Decode(variant.name, lengths=(500, 260, 20), q_len=2, max_splits=max_splits, q_deviation=deviation).check()


@pytest.mark.parametrize("softmax_scale", [0.0, -0.05, 576**-0.5])
def test_scales(variant: Row, softmax_scale: float) -> None:
    Decode(variant.name, softmax_scale=softmax_scale, out_scale=0.7).check()


@pytest.mark.op("decode", where=lambda row: row.kv_dtype == "fp8_ds_mla")
def test_scales_that_are_no_power_of_two(variant: Row) -> None:
    Decode(variant.name, lengths=(300, 20, 1), q_deviation=1.0, exact_scales=False, num_heads=64).check()


@pytest.mark.op("decode", where=lambda row: row.kv_dtype == "e4m3")
def test_codes_as_uint8(variant: Row) -> None:
    Decode(variant.name, uint8=True).check()


def test_strided_pool_table_and_queries(variant: Row) -> None:
    for paged in (True, False):
        Decode(variant.name, strided=True, q_len=2, paged=paged, num_heads=7).check()


@pytest.mark.parametrize("strided", [False, True])
def test_split_queries(variant: Row, strided: bool) -> None:
    Decode(variant.name, split_q=True, strided=strided, q_len=2).check()


@pytest.mark.parametrize("split_q", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_broadcast_queries(variant: Row, dim: int, split_q: bool) -> None:
    """Requests, tokens or heads share one query, by a stride of 0."""
    Decode(variant.name, q_len=2, broadcast_q=dim, split_q=split_q).check()


@pytest.mark.op("decode", where=lambda row: not row.form.is_bytes and row.form.rope > 0)
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("split_q", [False, True])
def test_split_cache(variant: Row, strided: bool, split_q: bool) -> None:
    Decode(variant.name, split_kv=True, split_q=split_q, strided=strided, page_size=16).check()


@pytest.mark.slow
@pytest.mark.parametrize("num_heads", [16, 128])
def test_longer_sequences(variant: Row, num_heads: int) -> None:
    Decode(variant.name, lengths=(4096, 2999, 1025, 64), num_heads=num_heads, seed=4096).check()


def test_requests_may_share_pages(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(130, 130), num_heads=4)
    inputs = problem.tensors()
    inputs["block_table"][1, :2] = inputs["block_table"][0, :2]
    out, lse = problem.launch(inputs)
    want = reference.decode(**inputs, **problem.scalars(), **problem.options, dtype=torch.float64)
    problem.compare(out, lse, *want)


def test_lse_may_be_left_out(variant: Row) -> None:
    problem = Decode(variant.name)
    inputs = problem.tensors()
    want, _ = problem.launch(inputs)
    out, lse = problem.launch(inputs, lse=False)
    assert lse is None
    assert_same_bytes("out", out, want)


def test_transposed_outputs(variant: Row) -> None:
    problem = Decode(variant.name, q_len=3, num_heads=5)
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    out = memory.poisoned((5, 3, 4, variant.form.d_v), want_out.dtype, variant.device).permute(2, 1, 0, 3)
    lse = memory.poisoned((4, 3, 5), torch.float32, variant.device).permute(0, 2, 1)
    problem.launch(inputs, out=out, lse=lse)
    assert_same_bytes("out", out, want_out)
    assert_same_bytes("lse", lse, want_lse)


def test_one_call_is_lookup_and_launch(variant: Row) -> None:
    import mla_kernels as mla

    problem = Decode(variant.name, q_len=2)
    inputs = problem.tensors()
    with unchanged(*inputs.values()):
        out, lse = mla.decode(**inputs, **problem.scalars(), **problem.options)
    problem.compare(out, lse, *problem.expected())


def test_a_plan_is_refreshed_in_place(variant: Row) -> None:
    before = Decode(variant.name, lengths=(20, 500, 3), max_splits=4)
    after = replace(before, lengths=(480, 7, 90), spare=12)
    kernel = before.kernel()
    plan = before.plan(kernel, before.tensors()["seq_lens"])
    inputs = after.tensors()
    refreshed = kernel.plan(inputs["seq_lens"], num_heads=after.num_heads, q_len=after.q_len, max_splits=4, out=plan)
    out, lse = kernel(**inputs, **after.scalars(), plan=refreshed)
    want_out, want_lse = after.launch(inputs)
    assert_same_bytes("out", out, want_out)
    assert_same_bytes("lse", lse, want_lse)
    after.compare(out, lse, *after.expected())


def test_a_plan_serves_other_lengths(variant: Row) -> None:
    """A launch never trusts the plan's lengths: it reads up to the current ones."""
    planned = Decode(variant.name, lengths=(500, 20, 0), max_splits=4)
    kernel = planned.kernel()
    plan = planned.plan(kernel, planned.tensors()["seq_lens"])
    for lengths in ((500, 20, 0), (100, 3, 0), (0, 0, 0), (520, 44, 9)):
        current = replace(planned, lengths=lengths, seed=sum(lengths))
        out, lse = kernel(**current.tensors(), **current.scalars(), plan=plan)
        current.compare(out, lse, *current.expected())


def test_nothing_but_masked_blocks_before_the_first_key(variant: Row) -> None:
    """Rows of a long causal query that see no key at all, beside rows that see one."""
    Decode(variant.name, lengths=(1, 2, 0, 65), q_len=128, num_heads=2, max_splits=3).check()


def test_empty_batch(variant: Row) -> None:
    problem = Decode(variant.name, lengths=())
    out, lse = problem.launch(problem.tensors())
    assert tuple(out.shape) == (0, 1, 16, variant.form.d_v)
    assert tuple(lse.shape) == (0, 16, 1)


RAGGED_LENGTHS = (100, 3, 50, 0, 700, 1, 64)
Q_LENS = (1, 3, 0, 2, 4, 1, 2)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_heads", [1, 3, 16, 64, 128, 160])
def test_heads_of_ragged_queries(variant: Row, num_heads: int, causal: bool) -> None:
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, num_heads=num_heads, causal=causal, seed=num_heads
    ).check()


@pytest.mark.parametrize(
    "q_lens", [(0, 0, 0), (1, 1, 1), (0, 5, 0), (67, 1, 0), (1, 130, 2)], ids=lambda q_lens: "_".join(map(str, q_lens))
)
def test_tokens_of_ragged_queries(variant: Row, q_lens: tuple[int, ...]) -> None:
    Decode(variant.name, lengths=(140, 150, 20), q_lens=q_lens, num_heads=3).check()


@pytest.mark.parametrize("max_splits", [1, 2, 5])
@pytest.mark.parametrize("paged", [True, False])
def test_splits_of_ragged_queries(variant: Row, max_splits: int, paged: bool) -> None:
    Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, max_splits=max_splits, paged=paged).check()


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("split_q", [True, False])
def test_layouts_of_ragged_queries(variant: Row, strided: bool, split_q: bool) -> None:
    Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, strided=strided, split_q=split_q).check()


@pytest.mark.parametrize("q_lens", [(), Q_LENS])
@pytest.mark.parametrize("num_heads", [1, 3, 16, 64, 128, 160])
@pytest.mark.parametrize("max_splits", [0, 1, 5])
def test_a_length_for_each_token(variant: Row, q_lens: tuple[int, ...], num_heads: int, max_splits: int) -> None:
    Decode(
        variant.name, lengths=RAGGED_LENGTHS, q_len=3, q_lens=q_lens, num_heads=num_heads, max_splits=max_splits,
        per_token=True, seed=num_heads,
    ).check()  # fmt: skip


@pytest.mark.parametrize("strided", [True, False])
def test_tokens_that_see_nothing(variant: Row, strided: bool) -> None:
    problem = Decode(variant.name, lengths=(0, 5, 300), q_len=2, per_token=True, strided=strided, paged=False)
    inputs = problem.tensors()
    inputs["token_seq_lens"].fill_(0)
    problem.compare(*problem.run(inputs), *problem.expected(inputs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"token_seq_lens": torch.full((2, 3), 9).int()},
            r"token_seq_lens\[1, 0\]: got 9; accepts 0 to 5, seq_lens\[1\]",
        ),
        ({"token_seq_lens": torch.full((2, 3), -1).int()}, r"token_seq_lens\[0, 0\]: got -1; accepts 0 to 20"),
        ({"token_seq_lens": torch.zeros(2, 2).int()}, "token_seq_lens: got q_len = 2; accepts 3"),
        ({"token_seq_lens": torch.zeros(2).int()}, "token_seq_lens: got "),
        ({"token_seq_lens": torch.zeros(2, 3)}, "token_seq_lens: got float32; accepts int32"),
    ],
    ids=str,
)
def test_refusals_of_lengths_of_tokens(variant: Row, changes: dict[str, Any], message: str) -> None:
    problem = Decode(variant.name, lengths=(20, 5), q_len=3, per_token=True)
    with pytest.raises(InvalidArgumentError, match=message):
        mla.decode(**{**problem.tensors(), **changes}, **problem.scalars(), **problem.options)


def test_equal_requests_give_what_a_batch_gives(variant: Row) -> None:
    """To the last bit, by a plan of the same shape."""
    ragged = Decode(variant.name, lengths=(140, 20, 700), q_lens=(2, 2, 2), spare=0, num_heads=9)
    inputs = ragged.tensors()
    out, lse = ragged.run(inputs)
    uniform = Decode(variant.name, lengths=(140, 20, 700), q_len=2, spare=0, num_heads=9)
    q = inputs.pop("q")
    del inputs["cu_seqlens_q"]
    as_batch = uniform.run({**inputs, "q": q.view(3, 2, *q.shape[2:])})
    assert torch.equal(out.view_as(as_batch[0]), as_batch[0])
    assert torch.equal(lse.unflatten(2, (3, 2))[0].transpose(0, 1), as_batch[1])


def test_one_call(variant: Row) -> None:
    """Without a plan, and with an LSE of [tokens, heads] as engines keep it."""
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs = problem.tensors()
    lse = torch.full((sum(Q_LENS), problem.num_heads), torch.nan)
    out, given = mla.decode(**inputs, max_q_len=4, **problem.scalars(), **problem.options, lse=lse.T[None])
    assert given.data_ptr() == lse.data_ptr()
    problem.compare(out, lse.T[None], *problem.expected(inputs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_q_len": 0}, "max_q_len: got 0; accepts the largest number of new tokens of a request, because cu_"),
        ({"cu_seqlens_q": None}, r"cu_seqlens_q: got None; accepts an int32 tensor \[num_requests \+ 1\]"),
        ({"cu_seqlens_q": torch.zeros(7).int()}, "cu_seqlens_q: got num_bounds = 7; accepts 8, one more than seq_lens"),
        ({"cu_seqlens_q": torch.zeros(8)}, "cu_seqlens_q: got float32; accepts int32"),
        ({"max_q_len": 3}, r"cu_seqlens_q\[5\]: got 10; accepts 6 to 9"),
        ({"cu_seqlens_q": torch.tensor([0, 1, 4, 3, 6, 10, 11, 13]).int()}, r"cu_seqlens_q\[3\]: got 3; accepts 4 to"),
        ({"cu_seqlens_q": torch.tensor([-1, 1, 4, 4, 6, 10, 11, 13]).int()}, r"cu_seqlens_q\[0\]: got -1; accepts 0"),
        ({"cu_seqlens_q": torch.tensor([0, 1, 4, 4, 6, 10, 11, 99]).int()}, r"cu_seqlens_q\[7\]: got 99; accepts 11"),
        ({"max_q_len": -1}, "max_q_len: got -1"),
        ({"max_q_len": "4"}, "max_q_len: got str"),
    ],
    ids=str,
)
def test_refusals_of_ragged_queries(variant: Row, changes: dict[str, Any], message: str) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs = {**problem.tensors(), "max_q_len": 4, **changes}
    out = torch.full((1, sum(Q_LENS), 16, problem.row.form.d_v), 7.0, dtype=inputs["q"].dtype)
    with pytest.raises(InvalidArgumentError, match=message):
        mla.decode(**inputs, **problem.scalars(), **problem.options, out=out)
    assert bool((out == 7).all())


def test_ragged_queries_need_the_most_tokens_of_a_request(variant: Row) -> None:
    """Options of the plan, which is then made before the launch, change nothing of what is said."""
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    message = "max_q_len: got 0; accepts the largest number of new tokens of a request, because cu_seqlens_q is given"
    for options in ({}, {"max_splits": 2}, {"batch_invariant": True}):
        with pytest.raises(InvalidArgumentError, match=message):
            mla.decode(**problem.tensors(), **problem.scalars(), **problem.options, **options)


def test_sizes_of_ragged_queries_need_no_bounds(variant: Row) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS)
    inputs, kernel = problem.tensors(), problem.kernel()
    del inputs["cu_seqlens_q"]
    size = kernel.workspace_size(**inputs, max_q_len=4)
    extents = {"batch": 1, "num_requests": len(RAGGED_LENGTHS), "num_heads": problem.num_heads}
    assert size == kernel.workspace_size(**extents, max_q_len=4) > 0


def test_a_batch_of_several_is_refused(variant: Row) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs = problem.tensors()
    inputs["q"] = inputs["q"].view(13, 1, *inputs["q"].shape[2:])
    with pytest.raises(InvalidArgumentError, match="q: got batch = 13; accepts 1"):
        mla.decode(**inputs, max_q_len=4, **problem.scalars(), **problem.options)


def test_a_plan_is_of_ragged_queries_or_of_a_batch(variant: Row) -> None:
    problem = Decode(variant.name, lengths=RAGGED_LENGTHS, q_lens=Q_LENS, spare=0)
    inputs, kernel = problem.tensors(), problem.kernel()
    plan = kernel.plan(inputs["seq_lens"], num_heads=16, q_len=4)
    for without in (plan, None):
        with pytest.raises(InvalidArgumentError, match=r"max_q_len: got 0; .* a kernel takes it from plan=kernel.plan"):
            kernel(**inputs, **problem.scalars(), plan=without)
    with pytest.raises(InvalidArgumentError, match="q_len: got 3; accepts None beside max_q_len, or 4 as it"):
        kernel.plan(inputs["seq_lens"], num_heads=16, q_len=3, max_q_len=4)
    with pytest.raises(InvalidArgumentError, match=r"max_q_len: got 3; accepts 4, .* look the kernel up without q_len"):
        kernel.plan(inputs["seq_lens"], max_q_len=3)
    ragged = kernel.plan(inputs["seq_lens"], num_heads=16, max_q_len=4)
    with pytest.raises(InvalidArgumentError, match="q: got batch = 7; accepts 1, because with max_q_len the"):
        kernel(**{**inputs, "q": inputs["q"][:, :1].expand(7, -1, -1, -1)}, **problem.scalars(), plan=ragged)
    with pytest.raises(InvalidArgumentError, match="out: got a plan of max_q_len 4; accepts a plan of max_q_len 3"):
        kernel.plan(inputs["seq_lens"], max_q_len=3, out=ragged)
    assert kernel.plan(inputs["seq_lens"], max_q_len=4, out=ragged) is ragged
