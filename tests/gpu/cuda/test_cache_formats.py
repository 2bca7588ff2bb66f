"""store_kv and gather_kv of the formats since DeepSeek V4 do what the CPU payload does, to the byte, and no more."""

from __future__ import annotations

import math

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import StrideError, UnsupportedError
from mla_kernels.formats import CacheFormat, format_named

from tests.gpu.support.cache_rows import FORMS, GATHERS, STORES, UNWRITTEN, check_gather, check_store, kernel
from tests.gpu.support.tensors import PADS, PAGE_SIZES, padded
from tests.support import memory
from tests.support.caches import encode, write_rows
from tests.support.compare import Tolerance, assert_close, assert_same_bytes
from tests.support.problems import generator, random
from tests.support.rows import rows
from tests.support.sparse import INT_MAX, INT_MIN

V4, V41 = (format_named(name, 512) for name in ("fp8_ds_v4", "fp8_ds_v41"))
EXACT = Tolerance(0.0, 0.0)
INT64 = torch.iinfo(torch.int64)
CODES = torch.arange(256, dtype=torch.uint8)

stores = pytest.mark.parametrize(("in_dtype", "form"), STORES, ids=lambda each: getattr(each, "name", each))
gathers = pytest.mark.parametrize(("form", "out_dtype"), GATHERS, ids=lambda each: getattr(each, "name", each))
pads = pytest.mark.parametrize("pad", PADS)


@pytest.mark.parametrize("payload_arch", ["sm90a", "sm100f"])
def test_every_variant_is_tested(payload_arch: str) -> None:
    stored, gathered = (
        [row for row in rows(op) if row.arch == payload_arch and row.form in FORMS] for op in ("store_kv", "gather_kv")
    )
    assert {(row.in_dtype, row.kv_dtype) for row in stored} == {(in_dtype, form.name) for in_dtype, form in STORES}
    assert {(row.kv_dtype, row.out_dtype) for row in gathered} == {
        (form.name, out_dtype) for form, out_dtype in GATHERS
    }


@stores
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pads
def test_pages_are_written(arch: str, in_dtype: str, form: CacheFormat, page_size: int, pad: int) -> None:
    num_pages = -(-300 // page_size)
    num_slots = num_pages * page_size
    slots = torch.randperm(num_slots, generator=generator(page_size))[:231]
    slots[::7] = -1
    slots[3:8] = torch.tensor([INT64.min, INT64.max, num_slots, num_slots + 1, 2**32])
    values = random(generator(1), 231, form.d_qk)
    check_store(arch, in_dtype, form, values, slots, (num_pages, page_size), pad=pad)


@stores
@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 60.0, 5000.0])
@pads
def test_magnitudes(arch: str, in_dtype: str, form: CacheFormat, deviation: float, pad: int) -> None:
    values = random(generator(2), 33, form.d_qk, deviation=deviation)
    values[2], values[3, 32:128] = 0.0, -0.0
    values[4] = 0.0
    values[4, [0, 31, 447, 511]] = 3.0
    values[5, 64:70] = math.inf
    if form.latent_type == "e2m1":  # whose group becomes NaN; the sign of another NaN is lost on a GPU
        values[6, 100] = math.nan
    for powers in {False, form.name in {"fp8_ds_mla", "fp8_ds_v41"}}:
        check_store(arch, in_dtype, form, values, torch.arange(33), (3, 16), pad=pad, powers=powers)


@gathers
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pads
def test_pages_are_read(arch: str, form: CacheFormat, out_dtype: str, page_size: int, pad: int) -> None:
    source, num_pages = generator(page_size), -(-200 // page_size)
    num_slots = num_pages * page_size
    slots = torch.randperm(num_slots, generator=source)[:50]
    wild = torch.tensor([-1, INT_MIN, INT_MAX, -5, num_slots, num_slots + 1, 2_000_000_000])
    indices = torch.cat([slots, slots[:9], wild]).int()
    indices = indices[torch.randperm(len(indices), generator=source)]
    check_gather(arch, form, out_dtype, slots, indices, (num_pages, page_size), pad=pad)


@pytest.mark.parametrize("out_dtype", ["fp32", "fp16", "bf16"])
def test_every_code_with_every_scale(arch: str, out_dtype: str) -> None:
    """Scales are powers of two from 2^-127, and 255 is NaN."""
    scales = torch.where(CODES == 255, math.nan, torch.ldexp(torch.ones(256), CODES.int() - 127))
    values = CODES.repeat(2).view(torch.float8_e4m3fn).float()
    slots = torch.arange(16, dtype=torch.int32).cuda()
    page = torch.cat([CODES.repeat(2).expand(16, 512), CODES.view(16, 16)], -1)[None]
    want = values * scales.view(16, 16).repeat_interleave(32, 1)
    for given in (page.cuda(), padded(page, 3)):
        got = kernel("gather_kv", arch, V41, out_dtype=out_dtype)(given, slots)
        assert_close("rows of V4.1", got.cpu(), want.to(got.dtype), EXACT)
    pages = memory.guarded_pool(V4, 2, 16, "cuda").view
    stored = torch.zeros(16, 584, dtype=torch.uint8)
    stored[:, :448], stored[:, 576:583] = CODES.repeat(2)[:448], CODES.view(16, 16)[:, 9:]
    write_rows(pages, torch.arange(16, 32), stored, V4)
    got = kernel("gather_kv", arch, V4, out_dtype=out_dtype)(pages, slots + 16)
    want = values[:448] * scales.view(16, 16)[:, 9:].repeat_interleave(64, 1)
    want = torch.cat([want, torch.zeros(16, 64)], -1)
    assert_close("rows of V4", got.cpu(), want.to(got.dtype), EXACT)


@pytest.mark.parametrize("out_dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("form", [form for form in FORMS if form.latent_type == "e2m1"], ids=lambda form: form.name)
def test_every_pair_of_four_bits_with_every_scale(arch: str, form: CacheFormat, out_dtype: str) -> None:
    """Also a scale that is NaN, and products that are too large or too small for the output."""
    code_bytes, groups = form.latent // 2, form.latent // form.scale_group
    rows_ = torch.zeros(256, form.token_bytes, dtype=torch.uint8)
    rows_[:, :code_bytes] = CODES.repeat(2)[:code_bytes]
    scales = CODES[(torch.arange(256)[:, None] + 8 * torch.arange(groups)) % 256]
    rows_[:, form.scale_offset : form.scale_offset + groups] = scales
    slots = torch.arange(256, dtype=torch.int32)
    want = kernel("gather_kv", "cpu", form, out_dtype=out_dtype)(rows_[None], slots)
    for given in (rows_[None].cuda(), padded(rows_[None], 3)):
        got = kernel("gather_kv", arch, form, out_dtype=out_dtype)(given, slots.cuda())
        assert_close("rows", got.cpu(), want, EXACT)


@gathers
def test_a_cache_beyond_32_bits(arch: str, form: CacheFormat, out_dtype: str) -> None:
    n, num_pages = 200, 2**31 // (64 * form.token_bytes) + 40
    huge = memory.pages_of(form, num_pages, 64, "cuda")
    slots = torch.cat([torch.arange(n // 2), num_pages * 64 - 1 - torch.arange(n // 2)])
    tokens = encode(random(generator(3), n, form.d_qk), form, exact_scales=False)
    write_rows(huge, slots, tokens, form)
    small, order = memory.pages_of(form, n, 1), torch.arange(n)
    write_rows(small, order, tokens, form)
    got = kernel("gather_kv", arch, form, out_dtype=out_dtype)(huge, slots.int().cuda())
    want = kernel("gather_kv", "cpu", form, out_dtype=out_dtype)(small, order.int())
    assert_same_bytes("rows", got.cpu(), want)


@stores
def test_nothing_is_stored_where_there_is_no_page(arch: str, in_dtype: str, form: CacheFormat) -> None:
    check_store(arch, in_dtype, form, torch.ones(5, form.d_qk), torch.arange(5) - 2, (0, 4))
    check_store(arch, in_dtype, form, torch.ones(0, form.d_qk), torch.arange(0), (2, 4))


def test_public_calls_find_the_formats(arch: str) -> None:
    """A cache of bytes is V4's by its rows; 528 bytes are of two formats, which ``kv_dtype`` tells apart."""
    for form in FORMS:
        values = random(generator(4), 20, form.d_qk).bfloat16()
        latent, rope = values.split([form.latent, form.rope], -1)
        if form.name in {"fp16", *UNWRITTEN}:
            continue
        pages = memory.pages_of(form, 2, 16, "cuda")
        scale = torch.ones(1).cuda() if form.scale_place == "tensor" else None
        mla.store_kv(
            latent.cuda(), rope.cuda() if form.rope else None, pages, torch.arange(20).cuda(), scale=scale,
            kv_dtype=form.name,
        )  # fmt: skip
        got = mla.gather_kv(pages, torch.arange(20).int().cuda(), kv_dtype=form.name)
        assert_close(
            form.name, got.cpu(), values, Tolerance(0.3, 0.3) if form.latent_type == "e2m1" else Tolerance(0.02, 0.07)
        )


def test_pages_that_are_not_padded_are_refused(arch: str) -> None:
    dense = torch.zeros(2, 16, 584, dtype=torch.uint8, device="cuda")
    with pytest.raises(StrideError, match="a multiple of 576"):
        kernel("gather_kv", arch, V4, out_dtype="bf16")(dense, torch.zeros(1).int().cuda())
    latent, rope = torch.zeros(1, 448).bfloat16().cuda(), torch.zeros(1, 64).bfloat16().cuda()
    with pytest.raises(StrideError, match="a multiple of 576"):
        kernel("store_kv", arch, V4, in_dtype="bf16")(latent, rope, dense, torch.zeros(1).long().cuda())


def test_power_of_two_scales_are_refused_where_there_are_none(arch: str) -> None:
    form = FORMS[2]
    with pytest.raises(UnsupportedError, match="power_of_two_scales"):
        check_store(arch, "bf16", form, torch.ones(1, 512), torch.arange(1), (1, 1), powers=True)
