"""Sparse attention of the sm90 payload on a GPU: wild indices, every code, graphs, streams, large pools, equal bits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import AlignmentError, StrideError, UnsupportedError

from tests.gpu.conftest import check_at_once
from tests.gpu.sm90 import SPARSE_DECODE, SPARSE_PREFILL, hopper, name_of
from tests.support import memory
from tests.support.compare import PREFILL, SPARSE, Tolerance, assert_close, assert_same_bytes
from tests.support.problems import SCALE, encode, generator, random, tolerances
from tests.support.rows import Row
from tests.support.sparse import INT_MAX, INT_MIN, SparseDecode, SparsePrefill

__all__ = ["hopper"]

each_decode = pytest.mark.parametrize("variant", SPARSE_DECODE, ids=name_of)
each_prefill = pytest.mark.parametrize("variant", SPARSE_PREFILL, ids=name_of)
BYTES = [row for row in SPARSE_DECODE if row.kv_dtype == "fp8_ds_mla"]
LONG: dict[str, Any] = {"topk": 2048, "num_pages": 80, "absent": 0.1}


@each_decode
@pytest.mark.parametrize("num_heads", [16, 64, 65, 100, 127, 128])
@pytest.mark.parametrize(("batch", "q_len"), [(1, 1), (4, 1), (9, 1), (32, 1), (66, 1), (70, 1), (133, 2), (2, 300)])
def test_batches(variant: Row, batch: int, q_len: int, num_heads: int) -> None:
    """Requests in many parts, in two, in one, and several of them to a part."""
    problem = SparseDecode(variant.name, batch=batch, q_len=q_len, num_heads=num_heads, topk=300, num_pages=20)
    replace(problem, counts=True, sink=True, extra_topk=70).check()


@each_decode
@pytest.mark.parametrize("batch", [3, 5, 40])
def test_unaligned_queries_of_128_heads(variant: Row, batch: int) -> None:
    """A warp copies them, and blocks share rows all the same; parts begin at odd tiles too."""
    problem = SparseDecode(variant.name, batch=batch, num_heads=128, topk=700, num_pages=20, sink=True)
    inputs = problem.tensors()
    q = torch.empty(inputs["q"].numel() + 1, dtype=inputs["q"].dtype, device="cuda")[1:].view_as(inputs["q"])
    inputs["q"] = q.copy_(inputs["q"])
    results = {"out": torch.empty(batch, 1, 128, 512, dtype=q.dtype, device="cuda")}
    results |= {name: torch.empty(batch, 128, 1, device="cuda") for name in ("lse", "max_logits")}
    problem.launch(inputs, **results)
    problem.compare(results, dict(zip(results, problem.expected(), strict=True)), SPARSE)


@each_decode
def test_more_query_tokens_than_blocks_of_a_grid(variant: Row) -> None:
    SparseDecode(variant.name, batch=1, q_len=5000, num_heads=9, topk=64).check()


@each_prefill
@pytest.mark.parametrize("num_heads", [64, 128])
@pytest.mark.parametrize("q_len", [132, 600])
def test_prompts(variant: Row, q_len: int, num_heads: int) -> None:
    SparsePrefill(variant.name, q_len=q_len, num_heads=num_heads, kv_len=3000, topk=192, absent=0.0, sink=True).check()


@each_prefill
def test_seventy_thousand_query_tokens(variant: Row) -> None:
    """Of all of them, the outputs of some are compared, at both ends and between."""
    tokens, heads, topk = 70_000, 3, 64
    source = torch.Generator("cuda").manual_seed(1)
    dtype = memory.DTYPES[variant.q_dtype]
    q = torch.randn(tokens, heads, 576, generator=source, device="cuda").to(dtype)
    kv = (torch.randn(5000, 576, generator=source, device="cuda") / 8).to(dtype)
    indices = torch.randint(-5, 5000, (tokens, topk), generator=source, device="cuda").int()
    got = mla.sparse_prefill(q, kv, indices, softmax_scale=SCALE)
    some = torch.cat([torch.arange(3), torch.arange(34_000, 34_003), torch.arange(tokens - 3, tokens)]).cuda()
    want = reference.sparse_prefill(q[some], kv, indices[some], softmax_scale=SCALE, dtype=torch.float64)
    for_out, for_lse = tolerances(variant, PREFILL, exact_scales=True, peak=0.0)
    for name, tolerance, mine, theirs in zip(
        ("out", "max_logits", "lse"), (for_out, for_lse, for_lse), got, want, strict=True
    ):
        assert_close(name, mine[some], theirs, tolerance)
        assert torch.isfinite(mine).all()


@each_decode
def test_wild_indices_and_counts_read_nothing_outside(variant: Row) -> None:
    """Beyond the cache by one, and by as much as 32 bits have; counts below 0 and beyond the indices."""
    problem = SparseDecode(variant.name, topk=256, num_heads=64, absent=0.0, sink=True)
    inputs = problem.tensors()
    clean = inputs["indices"].clone()
    wild = torch.tensor([9 * 64, 9 * 64 + 1, INT_MAX, INT_MAX - 63, INT_MIN, -1, 1 << 30], dtype=torch.int32).cuda()
    places = torch.rand(clean.shape, generator=generator(3)).cuda() < 0.5
    chosen = torch.randint(len(wild), clean.shape, generator=generator(4)).cuda()
    inputs["indices"] = torch.where(places, wild[chosen], clean)
    absent = inputs | {"indices": torch.where(places, -1, clean)}
    counts = torch.tensor([[INT_MIN], [INT_MAX], [300]], dtype=torch.int32, device="cuda")
    told = torch.tensor([[0], [256], [256]], dtype=torch.int32, device="cuda")
    names = ("out", "lse", "max_logits")
    got = problem.launch(inputs | {"topk_length": counts}, return_max_logits=True)
    want = problem.launch(absent | {"topk_length": told}, return_max_logits=True)
    for name, mine, theirs in zip(names, got, want, strict=True):
        assert_same_bytes(name, mine, theirs)
    expected = problem.expected(absent | {"topk_length": told})
    problem.compare(dict(zip(names, got, strict=True)), dict(zip(names, expected, strict=True)), SPARSE)


@pytest.mark.parametrize("variant", BYTES, ids=name_of)
@pytest.mark.parametrize("scale", [1.0, 2.0**-9, 0.1, 3.3e-4, 1 / 448, 57.3, 1e-30])
def test_every_finite_code_comes_out(variant: Row, scale: float) -> None:
    """Of one selected token the output is its row: code times scale in float32, rounded to bf16 once."""
    codes = torch.tensor([code for code in range(256) if code & 0x7F != 0x7F], dtype=torch.uint8)
    rows = torch.stack([codes.repeat(3)[i : i + 512] for i in range(130)])
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


@each_decode
def test_a_pool_beyond_32_bits(variant: Row) -> None:
    """Slots whose rows begin beyond 2^32 bytes, and in bf16 beyond 2^31 elements."""
    width = 656 if variant.kv_dtype == "fp8_ds_mla" else 576
    pages = (9 << 29) // (64 * width)
    pool = torch.empty(pages, 64, width, dtype=memory.DTYPES[variant.kv_dtype], device="cuda")
    pool.view(torch.uint8).fill_(0xFF)
    slots = torch.cat(
        [torch.arange(100), torch.arange(pages * 32, pages * 32 + 100), pages * 64 - 1 - torch.arange(100)]
    )
    small = encode(random(generator(1), 300, 576, deviation=0.1), variant.kv_dtype)
    pool.view(-1, width)[slots.cuda()] = small.cuda()
    q = random(generator(2), 1, 1, 64, 576, deviation=5.0).to(memory.DTYPES[variant.q_dtype]).cuda()
    order = torch.randperm(300, generator=generator(3))
    got = mla.sparse_decode(q, pool, slots[order].int().view(1, 1, -1).cuda(), softmax_scale=SCALE)
    want = reference.sparse_decode(
        q.cpu(), small.view(-1, 1, width), order.int().view(1, 1, -1), softmax_scale=SCALE, dtype=torch.float64
    )
    for_out, for_lse = tolerances(variant, SPARSE, exact_scales=True, peak=0.0)
    assert_close("out", got[0], want[0], for_out)
    assert_close("lse", got[1], want[1], for_lse)


@each_decode
def test_a_graph_replays_other_selections(variant: Row) -> None:
    problem = SparseDecode(variant.name, num_heads=64, counts=True, sink=True, extra_topk=40, **LONG)
    given = problem.tensors()
    size = mla.lookup(**problem.config(), page_size=64).workspace_size(
        q=given["q"], kv_cache=given["kv_cache"], indices=given["indices"]
    )
    assert size > 0, "three requests on a whole device are split"
    workspace = torch.empty(2 * size, dtype=torch.uint8, device="cuda")
    out = torch.empty(3, 1, 64, 512, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
    lse, max_logits = (torch.empty(3, 64, 1, device="cuda") for _ in range(2))
    results = {"out": out, "lse": lse, "max_logits": max_logits}
    problem.launch(given, **results, workspace=workspace)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        problem.launch(given, **results, workspace=workspace)
    for seed in (0, 1, 2):
        step = replace(problem, seed=seed)
        for name, tensor in step.tensors().items():
            given[name].copy_(tensor)
        for buffer in (*results.values(), workspace):
            buffer.view(torch.uint8).fill_(0xFF)
        graph.replay()
        torch.cuda.synchronize()
        step.compare(results, dict(zip(results, step.expected(), strict=True)), SPARSE)


@each_decode
def test_two_streams_at_once(variant: Row) -> None:
    problems = [SparseDecode(variant.name, num_heads=48 + 16 * i, seed=i, **LONG) for i in range(2)]
    check_at_once([partial(problem.launch, problem.tensors()) for problem in problems])


@each_decode
@pytest.mark.parametrize("num_heads", [16, 128])
@pytest.mark.parametrize("batch", [2, 32, 66, 90])
def test_the_same_bits_in_a_hundred_runs(variant: Row, batch: int, num_heads: int) -> None:
    problem = SparseDecode(variant.name, batch=batch, num_heads=num_heads, counts=True, **LONG)
    inputs = problem.tensors()
    want = problem.launch(inputs)
    for _ in range(100):
        for name, got, first in zip(("out", "lse"), problem.launch(inputs), want, strict=True):
            assert_same_bytes(name, got, first)


@each_decode
def test_what_the_kernel_cannot_read_is_refused_before_a_launch(variant: Row) -> None:
    problem = SparseDecode(variant.name)
    inputs = problem.tensors()
    pool = inputs["kv_cache"]
    shifted = torch.empty(pool.numel() + 1, dtype=pool.dtype, device="cuda")[1:].view(pool.shape)
    with pytest.raises(AlignmentError, match="kv_cache"):
        problem.launch(inputs | {"kv_cache": shifted})
    odd = torch.empty(*pool.shape[:2], pool.shape[2] + 4, dtype=pool.dtype, device="cuda")[..., : pool.shape[2]]
    with pytest.raises(StrideError, match="kv_cache"):
        problem.launch(inputs | {"kv_cache": odd})
    many = torch.empty(3, 1, 129, 576, dtype=inputs["q"].dtype, device="cuda")
    with pytest.raises((UnsupportedError, mla.errors.VariantNotFoundError), match="num_heads"):
        mla.sparse_decode(many, pool, inputs["indices"], softmax_scale=1.0)
