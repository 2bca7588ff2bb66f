"""Attention of the sm90 payload reads nothing outside its caches, and everything in caches beyond 32 bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels import reference

from tests.gpu.support.sm90 import each, each_sparse_decode, each_with
from tests.gpu.support.sparse_results import RESULTS, compare_results
from tests.support import memory
from tests.support.caches import encode, write_rows
from tests.support.compare import SPARSE, assert_close, assert_same_bytes
from tests.support.problems import SCALE, Decode, generator, random, tolerances
from tests.support.rows import Row
from tests.support.sparse import INT_MAX, INT_MIN, SparseDecode


@each_with("page_size", [16, 64])
def test_wild_lengths_and_pages_read_nothing_outside_the_cache(variant: Row, page_size: int) -> None:
    """Absent pages are as if their tokens were not there; lengths end with the table."""
    problem = Decode(variant.name, lengths=(640, 200, 64), page_size=page_size, num_heads=16, seed=5)
    inputs = problem.tensors()
    table, pool = inputs["block_table"], inputs["kv_cache"]
    for page in (-1, -(2**31), 2**31 - 1, len(pool)):
        wild = table.clone()
        wild[0, 3] = page
        out, lse = problem.launch({**inputs, "block_table": wild})
        kept = [problem.slots[0][i] for i in range(640) if i // page_size != 3]
        rows = pool.view(-1, variant.form.d_qk)[torch.stack(kept).cuda()][None]
        want = reference.decode(
            inputs["q"][:1], rows, None, torch.tensor([len(kept)], device="cuda", dtype=torch.int32),
            **problem.scalars(), **problem.options, dtype=torch.float64,
        )  # fmt: skip
        replace(problem, lengths=(len(kept),)).compare(out[:1], lse[:1], *want)
    whole = table[:, :1].clamp(0, len(pool) - 1).contiguous()
    full = {**inputs, "block_table": whole, "seq_lens": torch.full((3,), page_size, dtype=torch.int32, device="cuda")}
    full["kv_cache"] = torch.nan_to_num(pool.float()).to(pool.dtype)
    whole_pages = replace(problem, lengths=(page_size,) * 3)
    want_out, want_lse = whole_pages.expected(full)
    for length in (page_size + 1, 2**31 - 1):
        lengths = torch.full((3,), length, dtype=torch.int32, device="cuda")
        out, lse = problem.launch({**full, "seq_lens": lengths})
        # A plan does not know the table and splits such a length, so that partial results may be rounded.
        whole_pages.compare(out, lse, want_out, want_lse)
    out, lse = problem.launch({**full, "seq_lens": torch.full_like(lengths, -(2**31))})
    assert not out.any()
    assert bool((lse == -torch.inf).all())


@each
def test_pools_beyond_two_to_the_31_elements(variant: Row) -> None:
    columns = variant.form.d_qk
    pages = (1 << 31) // (64 * columns) + 50
    pool = torch.empty(pages, 64, columns, dtype=memory.DTYPES[variant.kv_dtype], device="cuda")
    small = Decode(variant.name, lengths=(640, 100), num_heads=16)
    inputs = small.tensors()
    table = inputs["block_table"].clone()
    used = table < len(inputs["kv_cache"])
    pool[table[used] + (pages - 40)] = inputs["kv_cache"][table[used]]
    table[used] += pages - 40
    out, lse = small.launch({**inputs, "kv_cache": pool, "block_table": table})
    small.compare(out, lse, *small.expected())


@each
def test_a_page_that_a_table_names_a_million_times(variant: Row) -> None:
    """Splits end more than 2^26 tokens before their request, and of its half tiles 2^31 copies of 16 bytes are made."""
    page, times = 64, 1_100_000
    problem = Decode(variant.name, lengths=(page,), page_size=page, num_heads=16, causal=False)
    inputs = problem.tensors()
    table = inputs["block_table"][:, :1].expand(1, times).contiguous()
    lengths = torch.full((1,), page * times, dtype=torch.int32, device="cuda")
    out, lse = problem.launch({**inputs, "block_table": table, "seq_lens": lengths})
    want_out, want_lse = problem.expected()
    if variant.rounds_to_e4m3:  # tensor cores sum e4m3 with too few bits for so many tokens
        greatest = inputs["kv_cache"].float().nan_to_num().abs().max() * problem.kv_scale
        assert bool((out.abs() <= greatest).all())
        out = want_out
    problem.compare(out, lse - math.log(times), want_out, want_lse)


@each_sparse_decode
def test_wild_indices_and_counts_read_nothing_outside(variant: Row) -> None:
    """Indices lie beyond the cache by one or by as much as 32 bits have; counts lie below 0 and beyond the indices."""
    problem = SparseDecode(variant.name, topk=256, num_heads=variant.heads(64), absent=0.0, sink=True)
    inputs = problem.tensors()
    clean = inputs["indices"].clone()
    wild = torch.tensor([9 * 64, 9 * 64 + 1, INT_MAX, INT_MAX - 63, INT_MIN, -1, 1 << 30], dtype=torch.int32).cuda()
    places = torch.rand(clean.shape, generator=generator(3)).cuda() < 0.5
    chosen = torch.randint(len(wild), clean.shape, generator=generator(4)).cuda()
    inputs["indices"] = torch.where(places, wild[chosen], clean)
    absent = inputs | {"indices": torch.where(places, -1, clean)}
    counts = torch.tensor([[INT_MIN], [INT_MAX], [300]], dtype=torch.int32, device="cuda")
    told = torch.tensor([[0], [256], [256]], dtype=torch.int32, device="cuda")
    got = problem.launch(inputs | {"topk_length": counts}, return_max_logits=True)
    want = problem.launch(absent | {"topk_length": told}, return_max_logits=True)
    for name, mine, theirs in zip(RESULTS, got, want, strict=True):
        assert_same_bytes(name, mine, theirs)
    compare_results(problem, dict(zip(RESULTS, got, strict=True)), absent | {"topk_length": told})


@each_sparse_decode
def test_a_pool_beyond_32_bits(variant: Row) -> None:
    """Rows of some slots begin beyond 2^32 bytes, and in bf16 beyond 2^31 elements."""
    form = variant.form
    width = memory.width_of(form)
    pages = (9 << 29) // (64 * width)
    pool = memory.pages_of(form, pages, 64, "cuda")
    pool.view(torch.uint8).fill_(0xFF)
    slots = torch.cat(
        [torch.arange(100), torch.arange(pages * 32, pages * 32 + 100), pages * 64 - 1 - torch.arange(100)]
    )
    small = encode(random(generator(1), 300, form.d_qk, deviation=0.1), form)
    write_rows(pool, slots, small, form)
    q = random(generator(2), 1, 1, 64, form.d_qk, deviation=5.0).to(memory.DTYPES[variant.q_dtype]).cuda()
    order = torch.randperm(300, generator=generator(3))
    told: Any = {"softmax_scale": SCALE, "kv_dtype": form.name}
    got = mla.sparse_decode(q, pool, slots[order].int().view(1, 1, -1).cuda(), **told)
    rows = small.view(-1, 1, width)
    want = reference.sparse_decode(q.cpu(), rows, order.int().view(1, 1, -1), **told, dtype=torch.float64)
    for_out, for_lse = tolerances(variant, SPARSE, exact_scales=True, peak=0.0)
    assert_close("out", got[0], want[0], for_out)
    assert_close("lse", got[1], want[1], for_lse)
