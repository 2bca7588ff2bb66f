"""Caches of bytes, byte by byte: where elements and scales lie, every code of each, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from mla_kernels.errors import DTypeError, InvalidArgumentError, ShapeError, StrideError, VariantNotFoundError
from mla_kernels.formats import format_named
from torch import Tensor

from tests.support import memory
from tests.support.caches import poisoned_pool
from tests.support.compare import Tolerance, assert_close, assert_same_bytes
from tests.support.problems import generator, random
from tests.support.rows import Row
from tests.support.sparse import SparseDecode

V4, V41, FP4 = (format_named(name, 512) for name in ("fp8_ds_v4", "fp8_ds_v41", "fp4_ds_v41"))
NVFP4 = format_named("nvfp4_ds_mla")
EXACT = Tolerance(0.0, 0.0)
CODES = torch.arange(256, dtype=torch.uint8)


def gathered(variant: Row, cache: Tensor, slots: list[int], out_dtype: str = "fp32") -> Tensor:
    """Rows of a cache as the kernel gathers them."""
    import mla_kernels as mla

    rows = torch.tensor(slots, dtype=torch.int32, device=cache.device)
    return mla.gather_kv(cache, rows, kv_dtype=variant.kv_dtype, out_dtype=out_dtype)


def values(codes: Tensor) -> Tensor:
    return codes.view(torch.float8_e4m3fn).float()


def powers(codes: Tensor) -> Tensor:
    """What e8m0 codes stand for: 2^(code - 127), and NaN for the last one."""
    exponents = codes.int() - 127
    return torch.where(codes == 255, math.nan, torch.ldexp(torch.ones(len(codes)), exponents))


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "fp8_ds_v4")
@pytest.mark.parametrize("page_size", [1, 2, 64])
def test_a_page_of_v4_has_its_scales_behind_its_rows(variant: Row, page_size: int) -> None:
    source = generator(page_size)
    guarded = memory.guarded_pages(V4, 3, page_size, variant.device)
    codes = torch.randint(0, 127, (page_size, 448), dtype=torch.uint8, generator=source)
    scales = torch.randint(120, 135, (page_size, 7), dtype=torch.uint8, generator=source)
    rope = random(source, page_size, 64).bfloat16()
    page = guarded.view[1].view(-1)
    for token in range(page_size):
        page[576 * token : 576 * token + 448] = codes[token]
        page[576 * token + 448 : 576 * (token + 1)] = rope[token].view(torch.uint8)
        page[576 * page_size + 8 * token : 576 * page_size + 8 * token + 7] = scales[token]
    got = gathered(variant, guarded.view, [page_size + token for token in range(page_size)], variant.out_dtype)
    latent = values(codes) * powers(scales.flatten()).view(-1, 7).repeat_interleave(64, 1)
    assert_close("rows", got, torch.cat([latent, rope.float()], -1).to(got.dtype), EXACT)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "fp8_ds_v4" and row.in_dtype == "fp32")
def test_v4_stores_what_flash_mla_stores(variant: Row) -> None:
    """A scale is ``2 ** ceil(log2(max(amax / 448, 1e-4)))``, and the byte behind seven of them is 0."""
    import mla_kernels as mla

    guarded = memory.guarded_pages(V4, 2, 3, variant.device)
    latent, rope = torch.zeros(1, 448), random(generator(1), 1, 64)
    largest = [0.0, 448.0, 449.0, 1e-5, 224.0, 0.04, 3e38]
    for group, magnitude in enumerate(largest):
        latent[0, 64 * group + 5] = -magnitude
    mla.store_kv(latent, rope, guarded.view, torch.tensor([4]))
    page = guarded.view[1].view(-1)
    exponents = [math.ceil(math.log2(max(magnitude / 448, 1e-4))) for magnitude in largest]
    assert page[3 * 576 + 8 : 3 * 576 + 16].tolist() == [*(127 + exponent for exponent in exponents), 0]
    assert page[576 + 448 : 2 * 576].tolist() == rope.bfloat16().view(torch.uint8)[0].tolist()
    want = latent.view(7, 64) / torch.tensor([2.0**exponent for exponent in exponents])[:, None]
    assert_same_bytes("codes", page[576 : 576 + 448].view(torch.float8_e4m3fn), want.to(torch.float8_e4m3fn).flatten())


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "fp8_ds_v41" and row.out_dtype == "fp32")
def test_every_e8m0_scale(variant: Row) -> None:
    """0 is a subnormal number, and 255 is NaN; a product that is too large is infinite."""
    cache = torch.zeros(1, 16, 528, dtype=torch.uint8, device=variant.device)
    cache[..., :512] = CODES.repeat(2)
    cache[..., 512:] = CODES.view(16, 16)
    want = values(CODES.repeat(2)) * powers(CODES).view(16, 16).repeat_interleave(32, 1)
    assert_close("rows", gathered(variant, cache, list(range(16))), want, EXACT)


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "fp4_ds_v41" and row.out_dtype == "fp32")
def test_every_e2m1_element_and_e4m3_scale(variant: Row) -> None:
    """The low half of a byte is the even one of two columns."""
    magnitudes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    elements = torch.cat([magnitudes, -magnitudes])
    cache = torch.zeros(1, 8, 288, dtype=torch.uint8, device=variant.device)
    cache[..., :256] = CODES
    cache[..., 256:] = CODES.view(8, 32)
    latent = torch.stack([elements[(CODES & 15).long()], elements[(CODES >> 4).long()]], -1).flatten()
    want = latent * values(CODES).view(8, 32).repeat_interleave(16, 1)
    assert_close("rows", gathered(variant, cache, list(range(8))), want, EXACT)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "fp4_ds_v41")
def test_four_bits_are_rounded_to_even(variant: Row) -> None:
    """The scale of a group is its greatest magnitude over 6, in e4m3, and at least 2^-9."""
    import mla_kernels as mla

    dtype = memory.DTYPES[variant.in_dtype]
    latent = torch.zeros(1, 512)
    latent[0, :16] = torch.tensor([6, 5, 4.5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25, 0.26, -5, -3.5, -0.25, -0.75, 5.25, -6])
    latent[0, 17] = 2**-12
    cache = torch.full((1, 1, 288), 0xFF, dtype=torch.uint8, device=variant.device)
    mla.store_kv(latent.to(dtype), None, cache, torch.zeros(1, dtype=torch.int64))
    codes = torch.stack([cache[0, 0, :256] & 15, cache[0, 0, :256] >> 4], -1).flatten()
    assert codes[:16].tolist() == [7, 6, 6, 6, 4, 4, 2, 2, 0, 1, 14, 14, 8, 10, 7, 15]
    assert codes[16:].tolist() == [0] * 496
    assert cache[0, 0, 256:].tolist() == [0x38, *[0x01] * 31]


@pytest.mark.op("store_kv", where=lambda row: row.form.is_bytes)
def test_a_nan_stays_nan_and_changes_no_other_group(variant: Row) -> None:
    """An element of four bits has no NaN, so its group becomes NaN."""
    import mla_kernels as mla

    form, dtype = variant.form, memory.DTYPES[variant.in_dtype]
    latent, rope = (random(generator(i), 2, width).to(dtype) for i, width in enumerate((form.latent, form.rope)))
    cache = memory.pages_of(form, 1, 2, variant.device)
    latent[1] = latent[0]
    latent[1, form.scale_group + 3] = torch.nan
    mla.store_kv(latent, rope if form.rope else None, cache, torch.arange(2), kv_dtype=form.name)
    got = gathered(variant, cache, [0, 1])
    changed = (got[0, : form.latent] != got[1, : form.latent]).nonzero().flatten().tolist()
    group = range(form.scale_group, 2 * form.scale_group)
    assert changed == (list(group) if form.latent_type == "e2m1" else [form.scale_group + 3])
    assert got[1, changed].isnan().all()


@pytest.mark.op("sparse_decode", where=lambda row: row.kv_dtype == "fp8_ds_v4")
def test_pages_of_another_stride_are_refused(variant: Row) -> None:
    problem = SparseDecode(variant.name, num_heads=2)
    inputs = problem.tensors()
    pages = inputs["kv_cache"]
    inputs["kv_cache"] = torch.zeros(pages.shape, dtype=torch.uint8)
    with pytest.raises(StrideError, match=r"kv_cache: got stride 37376 along num_pages; accepts a multiple of 576, "):
        problem.launch(inputs)
    inputs["kv_cache"] = torch.zeros(9, 64, 592, dtype=torch.uint8)[..., :584]
    with pytest.raises(StrideError, match=r"kv_cache: got stride 592 along page_size; accepts 584 bytes a token"):
        problem.launch(inputs)
    inputs["kv_cache"] = pages
    inputs |= {"extra_kv_cache": torch.zeros(2, 4, 584, dtype=torch.uint8), "extra_indices": inputs["indices"]}
    with pytest.raises(StrideError, match="extra_kv_cache: got stride 2336 along num_pages"):
        problem.launch(inputs)


@pytest.mark.op("sparse_decode", where=lambda row: row.form.is_bytes)
def test_a_second_cache_of_another_format_is_refused(variant: Row) -> None:
    problem = SparseDecode(variant.name, num_heads=2)
    inputs = problem.tensors()
    other = 288 if variant.extra_form.token_bytes != 288 else 528
    inputs |= {"extra_kv_cache": torch.zeros(2, 4, other, dtype=torch.uint8), "extra_indices": inputs["indices"]}
    with pytest.raises(ShapeError, match=rf"extra_kv_cache: got shape \[2, 4, {other}\]; accepts"):
        problem.launch(inputs)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == row.in_dtype)
def test_the_rope_part_must_be_that_of_the_format(variant: Row) -> None:
    import mla_kernels as mla

    form, dtype = variant.form, memory.DTYPES[variant.in_dtype]
    latent, cache = torch.ones(2, form.latent, dtype=dtype), torch.zeros(1, 2, form.d_qk, dtype=dtype)
    slots = torch.arange(2)
    refused: tuple[type[InvalidArgumentError], str] = (ShapeError, r"rope: got shape \[2, 65\]")
    with pytest.raises(refused[0], match=refused[1]):
        mla.store_kv(latent, torch.ones(2, 65, dtype=dtype), cache, slots)
    if form.rope:
        with pytest.raises(DTypeError, match="rope: got None; accepts a tensor"):
            mla.store_kv(latent, None, cache, slots)
    else:
        with pytest.raises(ShapeError, match=r"rope: got shape \[2, 64\]; accepts \[num_tokens, 0\]"):
            mla.store_kv(latent, torch.ones(2, 64, dtype=dtype), cache, slots)
        mla.store_kv(latent, torch.ones(2, 0, dtype=dtype), cache, slots)
        assert (cache == 1).all()
        mla.store_kv(2 * latent, None, cache, slots)
        assert (cache == 2).all()


@pytest.mark.op("store_kv", where=lambda row: row.form.is_bytes and row.in_dtype == "fp32")
def test_rows_of_another_width_are_refused(variant: Row) -> None:
    import mla_kernels as mla

    form = variant.form
    latent, rope = torch.ones(2, form.latent), torch.ones(2, form.rope) if form.rope else None
    cache = torch.zeros(1, 2, form.token_bytes - 1, dtype=torch.uint8)
    said = rf"kv_cache: got rows of {form.token_bytes - 1} bytes; accepts .*656 \(fp8_ds_mla\)"
    with pytest.raises(ShapeError, match=said):
        mla.store_kv(latent, rope, cache, torch.arange(2))
    assert not cache.any()


def test_formats_that_look_alike_must_be_named() -> None:
    import mla_kernels as mla

    cache, slots = torch.zeros(1, 2, 528, dtype=torch.uint8), torch.arange(2)
    said = "kv_dtype: got None; accepts fp8_ds_mla or fp8_ds_v41, because kv_cache has rows of 528 bytes"
    q, indices = torch.zeros(1, 1, 2, 512), torch.zeros(1, 1, 2, dtype=torch.int32)
    with pytest.raises(DTypeError, match=said):
        mla.store_kv(torch.ones(2, 512), None, cache, slots)
    with pytest.raises(DTypeError, match=said):
        mla.gather_kv(cache, slots.int())
    with pytest.raises(DTypeError, match=said):
        mla.sparse_decode(q, cache, indices, softmax_scale=1.0)
    with pytest.raises(
        ShapeError, match=r"kv_cache: got rows of 528 bytes; accepts .*; sparse_decode reads the others"
    ):
        mla.decode(q, cache, None, slots[:1].int(), softmax_scale=1.0)
    for name, code in (("fp8_ds_v41", 0x78), ("fp8_ds_mla", 0x7E)):
        mla.store_kv(torch.ones(2, 512), None, cache, slots, kv_dtype=name)
        assert cache[0, 0, :512].tolist() == [code] * 512
        torch.testing.assert_close(mla.gather_kv(cache, slots.int(), kv_dtype=name), torch.ones(2, 512).bfloat16())
        out, _ = mla.sparse_decode(q, cache, indices, softmax_scale=1.0, kv_dtype=name)
        torch.testing.assert_close(out, torch.ones(1, 1, 2, 512))


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "mxfp4_ds_v4")
def test_a_row_of_mxfp4(variant: Row) -> None:
    """224 bytes of elements, 14 scales and two bytes that nobody reads, then the rope part."""
    cache = torch.full((1, 2, 368), 0xFF, dtype=torch.uint8, device=variant.device)
    rope = random(generator(1), 64).bfloat16()
    cache[0, 1, :224] = 0x21  # 0.5 in even columns, and 1 in odd ones
    cache[0, 1, 224:238] = 120 + torch.arange(14, dtype=torch.uint8)
    cache[0, 1, 240:] = rope.view(torch.uint8)
    latent = torch.tensor([0.5, 1.0]).repeat(224) * powers(120 + torch.arange(14)).repeat_interleave(32)
    got = gathered(variant, cache, [1], variant.out_dtype)
    assert_close("row", got, torch.cat([latent, rope.float()])[None].to(got.dtype), EXACT)


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "nvfp4_ds_mla")
def test_a_row_of_nvfp4(variant: Row) -> None:
    """As vLLM 0.33 says: 512 e2m1, 64 e4m3 without a scale, 32 e4m3 scales, that of group g at 8 (g % 4) + g // 4."""
    cache = torch.full((1, 3, 352), 0xFF, dtype=torch.uint8)
    cache[0, 1, :256] = 0x21  # 0.5 in even columns, and 1 in odd ones
    cache[0, 1, 256:320] = torch.arange(64, dtype=torch.uint8)
    cache[0, 1, 320:] = 0x20 + torch.arange(32, dtype=torch.uint8)
    places = torch.tensor([8 * (group % 4) + group // 4 for group in range(32)])
    scales = values((0x20 + places).byte()).repeat_interleave(16)
    want = torch.cat([torch.tensor([0.5, 1.0]).repeat(256) * scales, values(torch.arange(64, dtype=torch.uint8))])
    got = gathered(variant, cache.to(variant.device), [1], variant.out_dtype)
    assert_close("row", got, want[None].to(got.dtype), EXACT)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "nvfp4_ds_mla")
def test_nvfp4_saturates_its_rope_part(variant: Row) -> None:
    import mla_kernels as mla

    dtype = memory.DTYPES[variant.in_dtype]
    latent, rope = torch.zeros(1, 512), torch.linspace(-600, 600, 64)[None]
    latent[0, 40] = -12.0
    cache = torch.full((1, 1, 352), 0xFF, dtype=torch.uint8)
    mla.store_kv(latent.to(dtype), rope.to(dtype), cache, torch.zeros(1, dtype=torch.int64))
    assert cache[0, 0, :256].tolist() == [0] * 20 + [0x0F] + [0] * 235
    stored = rope.to(dtype).float().clamp(-448, 448).to(torch.float8_e4m3fn)
    assert_same_bytes("rope", cache[0, 0, 256:320].view(torch.float8_e4m3fn), stored[0])
    assert cache[0, 0, 320:].tolist() == [1] * 16 + [0x40] + [1] * 15  # group 2


def has_scales_of_a_byte(variant: Row) -> bool:
    """Whether a cache of the variant has scales of which bf16 has all digits, and of their products."""
    return any(form.is_bytes and form.scale_type != "fp32" for form in (variant.form, variant.extra_form))


@pytest.mark.op("sparse_decode", where=has_scales_of_a_byte)
@pytest.mark.parametrize("in_extra", [False, True])
@pytest.mark.parametrize("num_heads", [1, 128])
def test_attention_reads_every_code_and_every_scale(variant: Row, in_extra: bool, num_heads: int) -> None:
    """A token that selects one key gets its value. Numbers are those that no type of output makes infinite, and that
    bf16 has as normal numbers."""
    form, prefix = (variant.extra_form, "extra_") if in_extra else (variant.form, "")
    groups, code_bytes = form.latent // form.scale_group, form.latent // (2 if form.latent_type == "e2m1" else 1)
    codes = CODES.clone()
    codes[CODES & 127 == 127] = 0x7E if form.latent_type == "e4m3" else 0x7F
    slots = torch.arange(64)
    scales = CODES[(4 * slots[:, None] + torch.arange(groups)) % 256]
    numbers = (powers(scales.flatten()) if form.scale_type == "e8m0" else values(scales)).view(scales.shape).abs()
    scales[~((numbers == 0) | (numbers >= 2.0**-100) & (numbers <= 2.0**7))] = (
        0x38 if form.scale_type == "e4m3" else 128
    )
    stored = torch.zeros(64, form.token_bytes, dtype=torch.uint8)
    for slot in range(64):
        stored[slot, :code_bytes] = codes.roll(16 * slot).repeat(2)[:code_bytes]
    first = form.row_bytes if form.scale_place == "page" else form.scale_offset
    stored[:, first : first + groups] = scales
    # Partial results share powers of two, so there are none.
    one = {"max_splits": 1, "topk": 1}
    heads = variant.heads(num_heads)
    problem = SparseDecode(variant.name, batch=64, num_heads=heads, page_size=4, num_pages=16, **one)
    inputs = problem.tensors()
    pool = poisoned_pool(stored, slots, 16, 4, strided=False, split=False, device=variant.device, form=form)
    chosen = slots.int()[:, None, None].to(variant.device)
    inputs |= {"q": torch.zeros_like(inputs["q"]), "indices": torch.full_like(chosen, -1)}
    inputs |= {f"{prefix}kv_cache": pool, f"{prefix}indices": chosen}
    out, *_ = problem.run(inputs)
    assert_close("out", out, problem.expected(inputs)[0].to(out.dtype), EXACT)


@pytest.mark.op("sparse_decode", where=lambda row: row.extra_kv_dtype != "same")
def test_a_call_finds_two_formats_by_their_rows(variant: Row) -> None:
    """288 bytes are of one format, 528 of two: ``kv_dtype`` names that of the first cache, and so of the second."""
    import mla_kernels as mla

    problem = SparseDecode(variant.name, num_heads=2, extra_topk=9)
    inputs, scalars = problem.tensors(), problem.scalars()
    want = mla.lookup(**problem.config())(**inputs, **scalars)
    for named in ({}, {"extra_kv_dtype": "fp4_ds_v41"}):
        got = mla.sparse_decode(**inputs, **scalars, kv_dtype="fp8_ds_v41", **named)
        assert_same_bytes("out", got[0], want[0])
    with pytest.raises(DTypeError, match="kv_dtype: got None; accepts fp8_ds_mla or fp8_ds_v41"):
        mla.sparse_decode(**inputs, **scalars)
    with pytest.raises(VariantNotFoundError, match="a second cache has the format of the first one, or of one pair"):
        mla.sparse_decode(**inputs, **scalars, kv_dtype="fp8_ds_mla")
    with pytest.raises(ShapeError, match=r"extra_kv_cache: got shape .* accepts .*528"):
        mla.sparse_decode(**inputs, **scalars, kv_dtype="fp8_ds_v41", extra_kv_dtype="fp8_ds_v41")
    same = mla.lookup(**problem.config() | {"extra_kv_dtype": "fp8_ds_v41"})
    assert same.variant.name == variant.name.removesuffix("_extrafp4_ds_v41")
