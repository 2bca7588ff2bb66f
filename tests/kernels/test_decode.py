"""Dense decode: every variant over shapes, layouts and schedules, with unused memory poisoned."""

from __future__ import annotations

from dataclasses import replace

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference

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
