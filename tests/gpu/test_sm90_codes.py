"""Dense decode of the sm90 payload over e4m3 caches: each code, and queries in bf16 beyond the range of fp16."""

from __future__ import annotations

import pytest
import torch
from mla_kernels import reference

from tests.support.compare import assert_same_bytes
from tests.support.problems import KV_SCALE, Decode
from tests.support.rows import Row

from .sm90 import DENSE, each_with, hopper

__all__ = ["hopper"]

CODES = [row for row in DENSE if row.kv_dtype == "e4m3"]
NAN = 0x7F

each = pytest.mark.parametrize("variant", CODES, ids=[row.name for row in CODES])


@each
def test_every_finite_code_is_exact(variant: Row) -> None:
    """One token weighs 1, so that the output is its codes."""
    problem = Decode(variant.name, lengths=(1, 1), num_heads=16)
    inputs = problem.tensors()
    finite = torch.tensor([code for code in range(256) if code & NAN != NAN], dtype=torch.uint8)
    codes = finite.repeat(3)[:512]
    for request, slots in enumerate(problem.slots):
        rows = inputs["kv_cache"].view(torch.uint8).view(-1, 576)
        rows[slots.cuda(), :512] = codes.roll(request).cuda()
    out, _ = problem.launch(inputs)
    for request in range(2):
        want = codes.roll(request).view(torch.float8_e4m3fn).double() * KV_SCALE
        torch.testing.assert_close(out[request].double().cpu(), want.expand(1, 16, 512), rtol=2**-8, atol=0)


@each
def test_a_nan_code_reaches_the_requests_that_read_it(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(200, 140, 20), num_heads=16)
    inputs = problem.tensors()
    want, want_lse = problem.launch(inputs)
    inputs["kv_cache"].view(torch.uint8).view(-1, 576)[problem.slots[1][70], 300] = NAN
    out, lse = problem.launch(inputs)
    assert bool(out[1].isnan().all())
    assert bool(lse[1].isnan().all())
    for request in (0, 2):
        assert_same_bytes("out", out[request], want[request])
        assert_same_bytes("lse", lse[request], want_lse[request])


@each_with("num_heads", [9, 16, 128], CODES)
@pytest.mark.parametrize("deviation", [1e-30, 1e-7, 3e6, 1e30])
def test_queries_beyond_fp16(variant: Row, num_heads: int, deviation: float) -> None:
    Decode(
        variant.name, lengths=(500, 20, 1), num_heads=num_heads, q_deviation=deviation, softmax_scale=0.35 / deviation
    ).check()


@each_with("q_len", [1, 2, 4], CODES)
def test_rows_of_queries_far_apart(variant: Row, q_len: int) -> None:
    problem = Decode(variant.name, lengths=(500, 20, 1), num_heads=16, q_len=q_len)
    inputs = problem.tensors()
    inputs["q"] *= torch.exp2(torch.arange(-30, 2, 2, device="cuda"))[:, None].bfloat16()
    want = reference.decode(**inputs, **problem.scalars(), dtype=torch.float64)
    problem.compare(*problem.launch(inputs), *want)


@each
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_query_that_is_not_finite_spoils_its_own_row(variant: Row, value: float) -> None:
    problem = Decode(variant.name, lengths=(200, 20), num_heads=16)
    inputs = problem.tensors()
    want, _ = problem.launch(inputs)
    inputs["q"][0, 0, 3, 5] = value
    out, _ = problem.launch(inputs)
    assert bool(out[0, 0, 3].isnan().any())
    others = [h for h in range(16) if h != 3]
    assert_same_bytes("out", out[0, 0, others], want[0, 0, others])
    assert_same_bytes("out", out[1], want[1])
