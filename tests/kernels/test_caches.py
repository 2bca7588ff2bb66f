"""store_kv and gather_kv: exact bytes, every e4m3 code, round trips, untouched neighbours."""

from __future__ import annotations

import pytest
import torch
from mla_kernels import errors, reference
from torch import Tensor

from tests.support import memory
from tests.support.caches import Packed, encode, has_pair, poisoned_pool, pool, scale_of, tokens
from tests.support.compare import Tolerance, assert_close, assert_same_bytes
from tests.support.problems import generator, random, unchanged
from tests.support.rows import Row

FP8_BYTES = torch.arange(256, dtype=torch.uint8)
NAN_CODES = (0x7F, 0xFF)


def check_store(
    variant: Row, latent: Tensor, rope: Tensor, slots: Tensor, pages: tuple[int, int], *, powers: bool = False
) -> None:
    """Check that the whole buffer, guard zones too, is what the reference makes of it."""
    import mla_kernels as mla

    got, want = pool(variant, *pages), pool(variant, *pages)
    slots, scale = slots.to(variant.device), scale_of(variant)
    with unchanged(latent, rope, slots, scale):
        mla.store_kv(latent, rope, got.view, slots, scale=scale, power_of_two_scales=powers, kv_dtype=variant.kv_dtype)
    reference.store_kv(latent, rope, want.view, slots, scale, power_of_two_scales=powers, kv_dtype=variant.kv_dtype)
    assert_same_bytes("cache and its surroundings", got.buffer, want.buffer)


@pytest.mark.op("store_kv")
@pytest.mark.parametrize("page_size", [1, 2, 16, 48, 61, 64, 128, 576])
def test_store(variant: Row, page_size: int) -> None:
    num_pages = -(-160 // page_size)
    slots = torch.randperm(num_pages * page_size, generator=generator(page_size))[:97]
    slots[::7] = -1
    slots[3] = torch.iinfo(torch.int64).min
    check_store(variant, *tokens(variant, 97), slots, (num_pages, page_size))


@pytest.mark.op("store_kv")
@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 1.0, 60.0, 5000.0])
def test_store_magnitudes(variant: Row, deviation: float) -> None:
    check_store(variant, *tokens(variant, 33, deviation=deviation), torch.arange(33), (3, 16))


@pytest.mark.op("store_kv")
def test_store_zeros_and_signed_zeros(variant: Row) -> None:
    latent, rope = tokens(variant, 4)
    latent[0], rope[0] = 0.0, 0.0
    latent[1, 128:256] = 0.0
    latent[2] = 0.0
    latent[2, -1] = 3.0
    latent[3, :64] = -0.0
    check_store(variant, latent, rope, torch.tensor([3, 0, 1, 2]), (1, 4))


@pytest.mark.op("store_kv")
def test_store_strided_tokens(variant: Row) -> None:
    latent, rope = tokens(variant, 20)
    slots = torch.arange(20)
    check_store(variant, memory.strided_copy(latent), memory.strided_copy(rope), slots, (2, 16))


@pytest.mark.op("store_kv", where=has_pair)
def test_store_into_split_cache(variant: Row) -> None:
    import mla_kernels as mla

    latent, rope = tokens(variant, 9)
    slots, scale = torch.tensor([4, 9, 1, -1, 3, 11, 0, 2, 7], device=variant.device), scale_of(variant)
    got, want = [
        [
            memory.guarded((3, 4, width), memory.DTYPES[variant.kv_dtype], variant.device)
            for width in (variant.form.latent, variant.form.rope)
        ]
        for _ in range(2)
    ]
    mla.store_kv(latent, rope, (got[0].view, got[1].view), slots, scale=scale)
    reference.store_kv(latent, rope, (want[0].view, want[1].view), slots, scale)
    for name, one, other in zip(("latent", "rope"), got, want, strict=True):
        assert_same_bytes(name, one.buffer, other.buffer)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "e4m3" and row.has_usual_widths)
def test_store_rounds_to_nearest_even_and_saturates(variant: Row) -> None:
    """Inputs are every code, every midpoint between neighbours (exact in each input type), and values beyond 448."""
    import mla_kernels as mla

    finite = FP8_BYTES[:127].view(torch.float8_e4m3fn).float()
    middles = (finite[1:] + finite[:-1]) / 2
    beyond = torch.tensor([450.0, 462.0, 464.0, 466.0, 478.0, 480.0, 1e4, 65504.0])
    magnitudes = torch.cat([finite, middles, beyond])
    values = torch.zeros(512)
    values[: 2 * len(magnitudes)] = torch.cat([magnitudes, -magnitudes])[:512]
    latent = values.to(memory.DTYPES[variant.in_dtype])[None].to(variant.device)
    rope = torch.full((1, 64), torch.inf, dtype=latent.dtype, device=variant.device)
    rope[0, 32:] = -torch.inf
    cache = torch.zeros(1, 1, 576, dtype=torch.uint8, device=variant.device)
    one = torch.ones(1, device=variant.device)
    mla.store_kv(latent, rope, cache, torch.zeros(1, dtype=torch.int64, device=variant.device), scale=one)
    want = latent.float().clamp(-448, 448).to(torch.float8_e4m3fn)
    assert_same_bytes("codes", cache[0, :, :512], want.view(torch.uint8))
    assert cache[0, 0, 512:].tolist() == [0x7E] * 32 + [0xFE] * 32


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "e4m3" and row.has_usual_widths)
def test_store_keeps_nan(variant: Row) -> None:
    import mla_kernels as mla

    latent, rope = tokens(variant, 1)
    latent[0, 5] = torch.nan
    cache = torch.zeros(1, 1, 576, dtype=torch.uint8, device=variant.device)
    zero = torch.zeros(1, dtype=torch.int64, device=variant.device)
    mla.store_kv(latent, rope, cache, zero, scale=torch.ones(1, device=variant.device))
    assert cache[0, 0, 5].item() in NAN_CODES
    assert int(((cache & 0x7F) == 0x7F).sum()) == 1


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths)
def test_store_scale_is_amax_over_448(variant: Row) -> None:
    """The scale of a group of zeros is the least normal number, so that no reader divides by zero or multiplies NaN."""
    latent, scales = stored_scales(variant)
    want = (groups(latent).abs().amax(-1) / 448).clamp(min=2.0**-126)
    assert torch.equal(scales, want)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths)
def test_store_power_of_two_scales(variant: Row) -> None:
    """They are what vLLM and FlashMLA store: ``2 ** ceil(log2(max(amax / 448, 1e-4)))``, 2^-13 for zeros."""
    latent, scales = stored_scales(variant, power_of_two_scales=True)
    amax = groups(latent).abs().amax(-1).double()
    assert torch.equal(scales.double(), torch.exp2((amax / 448).clamp(min=1e-4).log2().ceil()))
    by_hand = {336.0: 1.0, 448.0: 1.0, 450.0: 2.0, 224.0: 0.5, 0.0: 2**-13, 0.01: 2**-13}
    for largest, want in by_hand.items():
        latent = torch.zeros(1, 512, dtype=latent.dtype, device=variant.device)
        latent[0, 200] = -largest
        assert stored_scales(variant, latent, power_of_two_scales=True)[1].tolist() == [[2**-13, want, *[2**-13] * 2]]


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths)
@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 1.0, 60.0, 5000.0])
def test_store_with_power_of_two_scales(variant: Row, deviation: float) -> None:
    latent, rope = tokens(variant, 33, deviation=deviation)
    latent[0], latent[1, 128:256], latent[2, 7] = 0.0, -0.0, torch.inf
    check_store(variant, latent, rope, torch.arange(33), (3, 16), powers=True)


@pytest.mark.op("store_kv", where=lambda row: row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths)
def test_power_of_two_scales_make_rows_exact_in_bf16(variant: Row) -> None:
    """Code times scale is a bf16 number, so gathering rounds nothing; with scales of any value it must round."""
    import mla_kernels as mla

    latent, rope = tokens(variant, 64, deviation=3.0)
    slots = torch.arange(64, device=variant.device)
    exact = {}
    for powers in (True, False):
        cache = pool(variant, 4, 16).view
        mla.store_kv(latent, rope, cache, slots, power_of_two_scales=powers)
        got = mla.gather_kv(cache, slots.int(), out_dtype="bf16")[:, :512]
        row = cache.reshape(64, 656)
        codes, scales = row[:, :512].view(torch.float8_e4m3fn), row[:, 512:528].clone().view(torch.float32)
        want = codes.double().view(64, 4, 128) * scales.double()[..., None]
        exact[powers] = torch.equal(got.double(), want.flatten(1))
    assert exact == {True: True, False: False}


@pytest.mark.op("store_kv", where=lambda row: row.form.scale_place == "tensor" or row.form.scale_type == "e4m3")
def test_power_of_two_scales_are_refused_without_scales_in_rows(variant: Row) -> None:
    import mla_kernels as mla

    latent, rope = tokens(variant, 2)
    slots = torch.arange(2, device=variant.device)
    with pytest.raises(errors.UnsupportedError, match=r"power_of_two_scales: got True; accepts False"):
        mla.store_kv(latent, rope, pool(variant, 1, 4).view, slots, scale=scale_of(variant), power_of_two_scales=True)


def groups(latent: Tensor) -> Tensor:
    return latent.float().view(len(latent), 4, 128)


def stored_scales(variant: Row, latent: Tensor | None = None, **options: bool) -> tuple[Tensor, Tensor]:
    """Tokens, some groups of which are zeros, and the scales [tokens, 4] that are stored with them."""
    import mla_kernels as mla

    if latent is None:
        latent = tokens(variant, 5)[0]
        latent[2, 128:256], latent[4, :128] = 0.0, -0.0
    rope = torch.zeros(len(latent), 64, dtype=latent.dtype, device=variant.device)
    cache = torch.full((len(latent), 1, 656), 0x55, dtype=torch.uint8, device=variant.device)
    mla.store_kv(latent, rope, cache, torch.arange(len(latent), device=variant.device), **options)
    zeros = groups(latent) == 0
    assert not (cache[:, 0, :512].view(-1, 4, 128)[zeros] & 0x7F).any()
    return latent, cache[:, 0, 512:528].clone().view(torch.float32)


@pytest.mark.op("store_kv")
def test_store_nothing(variant: Row) -> None:
    check_store(variant, *tokens(variant, 0), torch.zeros(0, dtype=torch.int64), (2, 4))
    check_store(variant, *tokens(variant, 3), torch.tensor([-1, -2, -3]), (2, 4))


@pytest.mark.op("store_kv")
def test_round_trip(variant: Row) -> None:
    """What was stored is gathered within half a step of the cache's type, and as the reference gathers it."""
    import mla_kernels as mla

    latent, rope = tokens(variant, 40)
    latent[7], rope[7] = 0.0, 0.0
    cache = pool(variant, 5, 16)
    slots = torch.randperm(80, generator=generator(2))[:40].to(variant.device)
    scale = scale_of(variant)
    mla.store_kv(latent, rope, cache.view, slots, scale=scale, kv_dtype=variant.kv_dtype)
    factor = 1.0 if scale is None else scale.item()
    got = mla.gather_kv(cache.view, slots.int(), kv_dtype=variant.kv_dtype, out_dtype=variant.in_dtype, kv_scale=factor)
    values = torch.cat([latent, rope], -1).float()
    if variant.in_dtype == variant.kv_dtype:
        assert_same_bytes("rows", got, values.to(got.dtype))
        return
    form = variant.form
    if form.scale_place == "tensor":
        allowed = values.abs() / 16 + factor * 2**-10
    else:
        relative, step, most = {"e4m3": (1 / 16, 2**-10, 448), "e2m1": (1 / 4, 1 / 4, 6)}[form.latent_type]
        grouped = values[:, : form.latent].reshape(40, -1, form.scale_group)
        scales = (2 * grouped.abs().amax(-1, keepdim=True) / most).clamp(min=2**-9)
        of_latent = (grouped.abs() * relative + scales * step).flatten(1)
        of_rope = values[:, form.latent :].abs() * {"e4m3": 1 / 16, "bf16": 1 / 256}.get(form.rope_type, 0.0)
        allowed = torch.cat([of_latent, of_rope + 2**-10 * (form.rope_type == "e4m3")], -1)
    error = (got.float() - values).abs() - 2**-8 * values.abs()
    assert (error <= allowed + 1e-12).all()
    assert not got[7].any()


@pytest.mark.op("gather_kv")
@pytest.mark.parametrize("page_size", [1, 16, 61, 576])
@pytest.mark.parametrize("strided", [False, True])
def test_gather(variant: Row, page_size: int, strided: bool) -> None:
    source = generator(page_size)
    num_pages = -(-200 // page_size)
    slots = torch.randperm(num_pages * page_size, generator=source)[:50]
    values = random(source, 50, variant.form.d_qk)
    cache = stored_rows(variant, values, slots, num_pages, page_size, strided=strided)
    indices = torch.cat([slots, slots[:9], torch.tensor([-1, -(2**31), -5])])
    check_gather(variant, cache, indices[torch.randperm(len(indices), generator=source)])


@pytest.mark.op("gather_kv", where=has_pair)
def test_gather_from_split_cache(variant: Row) -> None:
    source = generator(3)
    slots = torch.randperm(60, generator=source)[:20]
    cache = stored_rows(variant, random(source, 20, variant.form.d_qk), slots, 15, 4, strided=True, split=True)
    check_gather(variant, cache, slots)


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "e4m3" and row.has_usual_widths)
@pytest.mark.parametrize("kv_scale", [1.0, 0.25, 0.0137, 3.3e-5, 111.0])
def test_gather_every_code(variant: Row, kv_scale: float) -> None:
    import mla_kernels as mla

    cache = FP8_BYTES.repeat(3)[:576].view(1, 1, 576).to(variant.device)
    zero = torch.zeros(1, dtype=torch.int32, device=variant.device)
    got = mla.gather_kv(cache, zero, out_dtype=variant.out_dtype, kv_scale=kv_scale)
    want = cache[0].view(torch.float8_e4m3fn).float() * torch.tensor(kv_scale)
    compare_rows(got, want)


@pytest.mark.op("gather_kv", where=lambda row: row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths)
@pytest.mark.parametrize("tile_scale", [1.0, 2**-9, 0.0137, 7.7e-6, 3.1e5])
def test_gather_every_code_with_tile_scales(variant: Row, tile_scale: float) -> None:
    import mla_kernels as mla

    scales = tile_scale * torch.tensor([1.0, 1.1, 0.6, -2.3])
    rope = torch.arange(64).bfloat16()
    row = torch.cat([FP8_BYTES, FP8_BYTES, scales.view(torch.uint8), rope.view(torch.uint8)])
    zero = torch.zeros(1, dtype=torch.int32, device=variant.device)
    got = mla.gather_kv(row.view(1, 1, 656).to(variant.device), zero, out_dtype=variant.out_dtype)
    codes = FP8_BYTES.repeat(2).view(torch.float8_e4m3fn).float()
    compare_rows(got, torch.cat([codes * scales.repeat_interleave(128), rope.float()])[None])


@pytest.mark.op("gather_kv")
def test_gather_nothing(variant: Row) -> None:
    import mla_kernels as mla

    cache = pool(variant, 2, 4).view
    for indices in (torch.zeros(0), torch.tensor([-1, -9])):
        rows = indices.int().to(variant.device)
        got = mla.gather_kv(cache, rows, kv_dtype=variant.kv_dtype, out_dtype=variant.out_dtype)
        assert tuple(got.shape) == (len(indices), variant.form.d_qk)
        assert not got.any()


def stored_rows(
    variant: Row,
    values: Tensor,
    slots: Tensor,
    num_pages: int,
    page_size: int,
    *,
    strided: bool = False,
    split: bool = False,
) -> Packed:
    form = variant.form
    rows = encode(values, form, 0.0137, exact_scales=False)
    return poisoned_pool(
        rows, slots, num_pages, page_size, strided=strided, split=split, device=variant.device, form=form
    )


def check_gather(variant: Row, cache: Packed, indices: Tensor) -> None:
    """Gather into a new tensor, into a guarded one, and into latent and rope apart."""
    import mla_kernels as mla

    factor = 0.0137 if variant.kv_dtype == "e4m3" else 1.0
    indices = indices.int().to(variant.device)
    with unchanged(cache, indices):
        got = mla.gather_kv(cache, indices, kv_dtype=variant.kv_dtype, out_dtype=variant.out_dtype, kv_scale=factor)
    dtype = memory.DTYPES[variant.out_dtype]
    assert got.dtype == dtype
    want = reference.gather_kv(cache, indices, out_dtype="fp32", kv_scale=factor, kv_dtype=variant.kv_dtype)
    compare_rows(got, want)
    form = variant.form
    whole, latent, rope = (
        memory.guarded((len(indices), width), dtype, variant.device) for width in (form.d_qk, form.latent, form.rope)
    )
    mla.gather_kv(cache, indices, kv_dtype=variant.kv_dtype, kv_scale=factor, out=whole.view)
    mla.gather_kv(cache, indices, kv_dtype=variant.kv_dtype, kv_scale=factor, out=(latent.view, rope.view))
    assert_same_bytes("out", whole.view, got)
    assert_same_bytes("latent and rope", torch.cat([latent.view, rope.view], -1), got)
    for guarded in (whole, latent, rope):
        guarded.assert_guards("out")


def compare_rows(got: Tensor, want: Tensor) -> None:
    """Check for the bits that float32 arithmetic and one rounding give, where any NaN equals any NaN."""
    want = want.to(got.dtype)
    assert_close("rows", got, want, Tolerance(0.0, 0.0))
