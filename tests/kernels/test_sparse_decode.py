"""Sparse decode: absent indices anywhere, counts, sinks, a second cache, NaN only where it is selected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import memory
from tests.support.compare import SPARSE, as_bytes, assert_close, assert_same_bytes
from tests.support.problems import tolerances
from tests.support.rows import Row
from tests.support.sparse import ABSENT, SparseDecode

pytestmark = pytest.mark.op("sparse_decode")


@pytest.mark.parametrize("num_heads", [1, 3, 9, 16, 17, 31, 63, 64, 126, 128])
def test_heads(variant: Row, num_heads: int) -> None:
    SparseDecode(variant.name, num_heads=variant.heads(num_heads), seed=num_heads).check()


@pytest.mark.parametrize("page_size", [1, 2, 16, 48, 61, 64, 128, 576])
def test_page_sizes(variant: Row, page_size: int) -> None:
    SparseDecode(variant.name, page_size=page_size, num_pages=-(-300 // page_size), topk=70, num_heads=5).check()


@pytest.mark.parametrize("topk", [0, 1, 2, 63, 64, 65, 129, 512])
def test_topk(variant: Row, topk: int) -> None:
    SparseDecode(variant.name, topk=topk, num_heads=6, seed=topk).check()


@pytest.mark.parametrize("q_len", [2, 4, 67])
def test_query_tokens(variant: Row, q_len: int) -> None:
    SparseDecode(variant.name, q_len=q_len, num_heads=3, topk=33).check()


@pytest.mark.parametrize("absent", [0.0, 0.9, 1.0])
def test_absent_anywhere(variant: Row, absent: float) -> None:
    SparseDecode(variant.name, topk=200, absent=absent, q_len=2, num_heads=8).check()


@pytest.mark.parametrize("lead", [64, 300, 511])
def test_leading_absent_blocks(variant: Row, lead: int) -> None:
    SparseDecode(variant.name, topk=512, lead=lead, q_deviation=20.0).check()


def test_repeated_selection_counts_twice(variant: Row) -> None:
    SparseDecode(variant.name, num_pages=1, page_size=7, topk=40, absent=0.1).check()


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("options", [{"counts": True}, {"sink": True}, {"extra_topk": 11}])
def test_options(variant: Row, options: dict[str, Any], strided: bool) -> None:
    SparseDecode(variant.name, q_len=2, strided=strided, **options).check()


def test_all_options_at_once(variant: Row) -> None:
    SparseDecode(variant.name, q_len=3, counts=True, sink=True, extra_topk=90, topk=150, split_q=True).check()


@pytest.mark.op("sparse_decode", where=lambda row: not row.form.is_bytes and row.form.rope > 0)
def test_split_tensors(variant: Row) -> None:
    SparseDecode(variant.name, split_q=True, split_kv=True, extra_topk=5, strided=True).check()


@pytest.mark.parametrize("num_heads", [16, 128])
@pytest.mark.parametrize("split_q", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_broadcast_queries(variant: Row, dim: int, split_q: bool, num_heads: int) -> None:
    """Requests, tokens or heads share one query, by a stride of 0."""
    SparseDecode(variant.name, q_len=2, num_heads=variant.heads(num_heads), broadcast_q=dim, split_q=split_q).check()


@pytest.mark.op("sparse_decode", where=lambda row: row.kv_dtype == "fp8_ds_mla")
def test_scales_that_are_no_power_of_two(variant: Row) -> None:
    SparseDecode(variant.name, exact_scales=False, q_deviation=1.0, topk=300, num_heads=variant.heads(64)).check()


@pytest.mark.parametrize("softmax_scale", [0.0, -0.05])
@pytest.mark.parametrize("num_heads", [7, 32])
def test_scales(variant: Row, softmax_scale: float, num_heads: int) -> None:
    heads = variant.heads(num_heads)
    SparseDecode(variant.name, softmax_scale=softmax_scale, out_scale=0.7, num_heads=heads, topk=300, sink=True).check()


@pytest.mark.parametrize("num_heads", [16, 32])
def test_greatest_logits_that_nobody_wants(variant: Row, num_heads: int) -> None:
    """The other results are the same without them."""
    problem = SparseDecode(variant.name, topk=700, num_pages=20, num_heads=variant.heads(num_heads), sink=True)
    inputs = problem.tensors()
    wanted = problem.launch(inputs, return_max_logits=True)
    assert len(wanted) == 3
    for name, got, want in zip(("out", "lse"), problem.launch(inputs), wanted[:2], strict=True):
        assert_same_bytes(name, got, want)


@pytest.mark.parametrize("max_splits", [1, 2, 3, 7, 32])
def test_splits(variant: Row, max_splits: int) -> None:
    """Some splits hold nothing but absent indices."""
    problem = SparseDecode(variant.name, topk=700, lead=400, num_pages=20, q_len=2, max_splits=max_splits)
    problem.check()


@pytest.mark.parametrize("max_splits", [0, 4])
def test_large_queries(variant: Row, max_splits: int) -> None:
    SparseDecode(variant.name, topk=500, q_deviation=100.0, max_splits=max_splits, out_scale=0.7).check()


def test_one_call_is_lookup_and_launch(variant: Row) -> None:
    import mla_kernels as mla

    # With so many heads, a lookup finds no other variant for the same cache.
    problem = SparseDecode(variant.name, num_heads=variant.heads(64), sink=True, extra_topk=9)
    inputs = problem.tensors()
    named = {"kv_dtype": variant.kv_dtype, "extra_kv_dtype": variant.extra_form.name}
    results = mla.sparse_decode(**inputs, **problem.scalars(), **named)
    for name, got, want in zip(("out", "lse"), results, launch(problem, inputs), strict=True):
        assert_same_bytes(name, got, want)


@pytest.mark.slow
def test_model_shape(variant: Row) -> None:
    SparseDecode(variant.name, batch=2, q_len=2, num_heads=variant.heads(128), topk=2048, num_pages=80).check()


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_nan_reaches_only_the_tokens_that_select_it(variant: Row, byte: int) -> None:
    problem = SparseDecode(variant.name, batch=4, q_len=2, num_heads=9, absent=0.0, topk=100)
    inputs = problem.tensors()
    pool = inputs["kv_cache"]
    victim = int(inputs["indices"][2, 1, 57])
    row = pool[victim // 64, victim % 64]
    if variant.form.latent_type == "e2m1":  # which has no NaN, but its scales have
        row[variant.form.scale_offset + 7] = byte | (variant.form.scale_type == "e8m0") << 7
    elif variant.form.scale_place == "page":
        page = pool[victim // 64].view(-1)
        page[victim % 64 * variant.form.row_bytes + 200] = byte
    elif pool.element_size() == 1:
        row.view(torch.uint8)[200] = byte
    else:
        row[200] = torch.nan
    got, want = launch(problem, inputs), problem.expected(inputs)
    selects = (inputs["indices"] == victim).any(-1)
    assert torch.equal(torch.isnan(want[0]).all(-1).all(-1), selects)
    assert 0 < int(selects.sum()) < selects.numel()
    for_out, for_lse = tolerances(variant, SPARSE, exact_scales=True, peak=0.0)
    assert_close("out", got[0], want[0], for_out)
    assert_close("lse", got[1], want[1], for_lse)


def test_sink_extremes(variant: Row) -> None:
    problem = SparseDecode(variant.name, num_heads=4, absent=0.3, lead=8)
    inputs = problem.tensors()
    inputs["indices"][0] = ABSENT[1]
    plain_out, plain_lse = launch(problem, inputs)
    sink = torch.tensor([-torch.inf, torch.inf, 1e30, -1e30], device=variant.device)
    out, lse = launch(problem, {**inputs, "attn_sink": sink})
    assert torch.equal(as_bytes(lse), as_bytes(plain_lse))
    for head, kept in enumerate((1.0, 0.0, 0.0, 1.0)):
        assert_close(f"out of head {head}", out[:, :, head], plain_out[:, :, head] * kept, SPARSE)
    assert (out[0] == 0).all()


def test_counts_may_be_broadcast(variant: Row) -> None:
    problem = SparseDecode(variant.name, q_len=3)
    inputs = problem.tensors()
    length = torch.tensor([[37]], dtype=torch.int32, device=variant.device)
    broadcast = launch(problem, {**inputs, "topk_length": length.expand(3, 3)})
    plain = launch(problem, {**inputs, "topk_length": length.repeat(3, 3)})
    cut = launch(replace(problem, topk=37), {**inputs, "indices": inputs["indices"][..., :37]})
    for name, got, want, other in zip(("out", "lse"), broadcast, plain, cut, strict=True):
        assert torch.equal(as_bytes(got), as_bytes(want)), name
        assert_close(name, got, other, SPARSE)


@pytest.mark.op("sparse_decode", where=lambda row: row.kv_dtype == "e4m3")
def test_codes_as_uint8(variant: Row) -> None:
    problem = SparseDecode(variant.name)
    inputs = problem.tensors()
    want = launch(problem, inputs)
    got = launch(problem, {**inputs, "kv_cache": inputs["kv_cache"].view(torch.uint8)})
    for got_part, want_part in zip(got, want, strict=True):
        assert torch.equal(as_bytes(got_part), as_bytes(want_part))


def launch(problem: SparseDecode, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    shape = (problem.batch, problem.q_len, problem.num_heads)
    out = memory.poisoned((*shape, problem.row.form.d_v), memory.DTYPES[problem.row.out_dtype], problem.row.device)
    lse = memory.poisoned((shape[0], shape[2], shape[1]), torch.float32, problem.row.device)
    problem.launch(inputs, out=out, lse=lse)
    return out, lse
