"""Attention of the sm90 payload over fp8 caches: every code, queries beyond fp16's range, and long sums."""

from __future__ import annotations

import mla_kernels as mla
import pytest
import torch

from tests.gpu.support.sm90 import DENSE, SPARSE_DECODE, each_with, name_of
from tests.support.compare import Tolerance, assert_close, assert_same_bytes
from tests.support.problems import KV_SCALE, Decode
from tests.support.rows import Row

E4M3 = [row for row in DENSE if row.kv_dtype == "e4m3"]
FP8_DS_MLA = [row for row in SPARSE_DECODE if row.kv_dtype == "fp8_ds_mla"]
NAN = 0x7F
FINITE = torch.tensor([code for code in range(256) if code & NAN != NAN], dtype=torch.uint8)

each = pytest.mark.parametrize("variant", E4M3, ids=name_of)


@each
def test_every_finite_code_is_exact(variant: Row) -> None:
    """One token weighs 1, so that the output is its codes."""
    problem = Decode(variant.name, lengths=(1, 1), num_heads=16)
    inputs = problem.tensors()
    form = variant.form
    codes = FINITE.repeat(3)[: form.d_v]
    for request, slots in enumerate(problem.slots):
        rows = inputs["kv_cache"].view(torch.uint8).view(-1, form.d_qk)
        rows[slots.cuda(), : form.d_v] = codes.roll(request).cuda()
    out, _ = problem.launch(inputs)
    for request in range(2):
        want = codes.roll(request).view(torch.float8_e4m3fn).double() * KV_SCALE
        torch.testing.assert_close(out[request].double().cpu(), want.expand(1, 16, form.d_v), rtol=2**-8, atol=0)


@each
def test_a_nan_code_reaches_the_requests_that_read_it(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(200, 140, 20), num_heads=16)
    inputs = problem.tensors()
    want, want_lse = problem.launch(inputs)
    inputs["kv_cache"].view(torch.uint8).view(-1, variant.form.d_qk)[problem.slots[1][70], 200] = NAN
    out, lse = problem.launch(inputs)
    assert bool(out[1].isnan().all())
    assert bool(lse[1].isnan().all())
    for request in (0, 2):
        assert_same_bytes("out", out[request], want[request])
        assert_same_bytes("lse", lse[request], want_lse[request])


@each_with("num_heads", [9, 16, 128], E4M3)
@pytest.mark.parametrize("deviation", [1e-30, 1e-7, 3e6, 1e30])
def test_queries_beyond_fp16(variant: Row, num_heads: int, deviation: float) -> None:
    Decode(
        variant.name, lengths=(500, 20, 1), num_heads=num_heads, q_deviation=deviation, softmax_scale=0.35 / deviation
    ).check()


@each_with("q_len", [1, 2, 4], E4M3)
def test_rows_of_queries_far_apart(variant: Row, q_len: int) -> None:
    problem = Decode(variant.name, lengths=(500, 20, 1), num_heads=16, q_len=q_len)
    inputs = problem.tensors()
    inputs["q"] *= torch.exp2(torch.arange(-30, 2, 2, device="cuda"))[:, None].bfloat16()
    problem.compare(*problem.launch(inputs), *problem.expected(inputs))


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


@pytest.mark.parametrize("variant", E4M3, ids=name_of)
def test_a_long_sum_of_values_with_a_mean(variant: Row) -> None:
    """Hopper's tensor cores keep some 14 bits of a sum of e4m3: alone, they lost 45 % of a sum of 65,536 tokens."""
    problem = Decode(variant.name, lengths=(60000, 1), num_heads=16, max_splits=1)
    inputs = problem.tensors()
    inputs["kv_cache"].copy_(inputs["kv_cache"].float() + 1)
    out, _ = problem.launch(inputs)
    want, _ = problem.expected(inputs)
    assert float((out.double() - want).norm() / want.norm()) < 0.01


@pytest.mark.parametrize("variant", FP8_DS_MLA, ids=name_of)
@pytest.mark.parametrize("scale", [1.0, 2.0**-9, 0.1, 3.3e-4, 1 / 448, 57.3, 1e-30])
def test_every_finite_code_comes_out(variant: Row, scale: float) -> None:
    """The output of one selected token is its row: code times scale in float32, rounded to bf16 once."""
    rows = torch.stack([FINITE.repeat(3)[i : i + 512] for i in range(130)])
    pool = torch.zeros(3, 64, 656, dtype=torch.uint8)
    flat = pool.view(-1, 656)[:130]
    flat[:, :512] = rows
    factors = scale * torch.tensor([1.0, 1.7, 0.77, 1.3])
    flat[:, 512:528] = factors.view(torch.uint8)
    want = (rows.view(torch.float8_e4m3fn).float() * factors.repeat_interleave(128)).bfloat16()
    q = torch.zeros(1, 130, 128, 576, dtype=torch.bfloat16, device="cuda")
    indices = torch.arange(130, dtype=torch.int32, device="cuda").view(1, 130, 1)
    out, _ = mla.sparse_decode(q, pool.cuda(), indices, softmax_scale=1.0)
    assert_close("out", out, want[None, :, None].expand_as(out), Tolerance(0.0, 0.0))
