"""Pools of more than 2^31 elements: offsets are 64 bits wide. Only the pages that are touched cost memory."""

from __future__ import annotations

import pytest
import torch
from mla_kernels import reference
from torch import Tensor

from tests.support import memory
from tests.support.caches import encode, write_rows
from tests.support.compare import DENSE, SPARSE, Tolerance, assert_close, assert_same_bytes
from tests.support.problems import SCALE, generator, random, tolerances
from tests.support.rows import Row

PAGE = 64
PLENTY = 2**31
"""A pool must have more elements than this."""


def huge_pool(variant: Row, slots: Tensor | None, values: Tensor) -> Tensor:
    """Make an uninitialised pool of more than 2^31 elements, with ``values`` at ``slots``."""
    form = variant.form
    pool = memory.pages_of(form, PLENTY // (PAGE * memory.width_of(form)) + 40, PAGE)
    assert pool.numel() > PLENTY
    if slots is not None:
        write_rows(pool, slots, encode(values, form), form)
    return pool


def spread_slots(variant: Row, n: int) -> Tensor:
    """Return slots in the first, middle and last pages."""
    last = PLENTY // (PAGE * memory.width_of(variant.form)) + 39
    pages = torch.tensor([last, 0, last - 1, last // 2, 1])[torch.arange(n) // PAGE]
    return pages * PAGE + torch.arange(n) % PAGE


def compare(variant: Row, got: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor], base: Tolerance) -> None:
    """Compare ``out`` and ``lse`` with the reference's."""
    for tolerance, name, ours, theirs in zip(
        tolerances(variant, base, exact_scales=True, peak=0.0), ("out", "lse"), got, want, strict=True
    ):
        assert_close(name, ours, theirs, tolerance)


on_cpu = {"where": lambda row: row.arch == "cpu"}


@pytest.mark.op("decode", **on_cpu)
def test_decode(variant: Row) -> None:
    import mla_kernels as mla

    n = 300
    slots = spread_slots(variant, n)
    width = variant.form.d_qk
    pool = huge_pool(variant, slots, random(generator(1), n, width, deviation=0.1))
    q = random(generator(2), 1, 1, 5, width, deviation=5.0).to(memory.DTYPES[variant.q_dtype])
    table, lens = (slots[::PAGE] // PAGE).int()[None], torch.tensor([n], dtype=torch.int32)
    got = mla.decode(q, pool, table, lens, softmax_scale=SCALE)
    want = reference.decode(q, pool, table, lens, softmax_scale=SCALE, dtype=torch.float64)
    compare(variant, got, want, DENSE)


@pytest.mark.op("sparse_decode", **on_cpu)
def test_sparse_decode(variant: Row) -> None:
    import mla_kernels as mla

    slots = spread_slots(variant, 300)
    width = variant.form.d_qk
    pool = huge_pool(variant, slots, random(generator(1), 300, width, deviation=0.1))
    q = random(generator(2), 1, 1, 5, width, deviation=5.0).to(memory.DTYPES[variant.q_dtype])
    indices = slots[torch.randperm(300, generator=generator(3))].int()[None, None]
    named = {"softmax_scale": SCALE, "kv_dtype": variant.kv_dtype}
    got = mla.sparse_decode(q, pool, indices, **named)
    want = reference.sparse_decode(q, pool, indices, dtype=torch.float64, **named)
    compare(variant, got, want, SPARSE)


@pytest.mark.op("store_kv", **on_cpu)
def test_store_and_gather(variant: Row) -> None:
    import mla_kernels as mla

    slots = spread_slots(variant, 200)
    pool = huge_pool(variant, None, torch.empty(0))
    dtype = memory.DTYPES[variant.in_dtype]
    form = variant.form
    latent, rope = (random(generator(4 + i), 200, width).to(dtype) for i, width in enumerate((form.latent, form.rope)))
    scale = torch.ones(1) if variant.kv_dtype == "e4m3" else None
    named = {"kv_dtype": variant.kv_dtype}
    mla.store_kv(latent, rope, pool, slots, scale=scale, **named)
    small = memory.pages_of(form, 200, 1)
    reference.store_kv(latent, rope, small, torch.arange(200), scale, **named)
    want = reference.gather_kv(small, torch.arange(200), out_dtype=variant.in_dtype, **named)
    assert_same_bytes("rows", mla.gather_kv(pool, slots.int(), out_dtype=variant.in_dtype, **named), want)


@pytest.mark.op("decode", where=lambda row: row.arch == "cpu" and row.kv_dtype == row.q_dtype)
def test_a_page_stride_beyond_32_bits(variant: Row) -> None:
    """Two pages are more than 2^31 elements apart."""
    import mla_kernels as mla

    dtype = memory.DTYPES[variant.kv_dtype]
    width = variant.form.d_qk
    pool = torch.empty(PLENTY + 10**6, dtype=dtype).as_strided((2, PAGE, width), (PLENTY + width, width, 1))
    values = random(generator(6), 2 * PAGE, width, deviation=0.1)
    write_rows(pool, torch.arange(2 * PAGE), encode(values, variant.form))
    q = random(generator(2), 2, 1, 3, width, deviation=5.0).to(dtype)
    lens = torch.tensor([PAGE, 30], dtype=torch.int32)
    got = mla.decode(q, pool, None, lens, softmax_scale=SCALE)
    want = reference.decode(q, pool, None, lens, softmax_scale=SCALE, dtype=torch.float64)
    compare(variant, got, want, DENSE)
