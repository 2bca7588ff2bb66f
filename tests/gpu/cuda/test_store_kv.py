"""store_kv writes what the CPU payload writes, to the byte, and nothing else."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import UnsupportedError
from torch import Tensor

from tests.gpu.support.store_kv import TYPES, check, kernel, on_gpu, scale_of, tokens
from tests.gpu.support.tensors import PADS, PAGE_SIZES, current_stream, guarded
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.memory import width_of
from tests.support.problems import generator, random

INT64 = torch.iinfo(torch.int64)
PLENTY = 2**31

types = pytest.mark.parametrize(("in_dtype", "kv_dtype"), TYPES)


@types
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("pad", PADS)
def test_pages(arch: str, in_dtype: str, kv_dtype: str, page_size: int, pad: int) -> None:
    num_pages = -(-300 // page_size)
    num_slots = num_pages * page_size
    slots = torch.randperm(num_slots, generator=generator(page_size))[:231]
    slots[::7] = -1
    slots[3:8] = torch.tensor([INT64.min, INT64.max, num_slots, num_slots + 1, 2**32])
    check(arch, (in_dtype, kv_dtype), tokens(in_dtype, 231), slots, (num_pages, page_size), pad=pad)


@types
@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 60.0, 5000.0])
def test_magnitudes(arch: str, in_dtype: str, kv_dtype: str, deviation: float) -> None:
    latent, rope = tokens(in_dtype, 33, deviation=deviation)
    latent[2], rope[2] = 0.0, -0.0
    latent[3, 128:256] = -0.0
    latent[4] = 0.0
    latent[4, 511] = 3.0
    check(arch, (in_dtype, kv_dtype), (latent, rope), torch.arange(33), (3, 16))


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 1.0, 60.0, 5000.0])
@pytest.mark.parametrize("pad", PADS)
def test_power_of_two_scales(arch: str, in_dtype: str, deviation: float, pad: int) -> None:
    latent, rope = tokens(in_dtype, 33, deviation=deviation)
    latent[2], rope[2] = 0.0, -0.0
    latent[3, 128:256] = -0.0
    latent[4, 511], latent[5, 7], latent[6, 130] = 3.0, torch.inf, torch.nan
    latent[7], latent[8] = 448.0, 450.0
    check(arch, (in_dtype, "fp8_ds_mla"), (latent, rope), torch.arange(33), (3, 16), pad=pad, powers=True)


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
def test_every_value_with_power_of_two_scales(arch: str, in_dtype: str) -> None:
    check(arch, (in_dtype, "fp8_ds_mla"), every_value(in_dtype), torch.arange(128), (2, 64), powers=True)


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
def test_scales_in_rows(arch: str, in_dtype: str) -> None:
    """They are those of the reference. Code times a power of two is a bf16 number, so that gathering rounds nothing."""
    latent, rope = tokens(in_dtype, 64, deviation=3.0)
    latent[2], latent[3, 128:256] = 0.0, -0.0
    slots, exact = torch.arange(64), {}
    gather = mla.lookup(op="gather_kv", arch=arch, kv_dtype="fp8_ds_mla", out_dtype="bf16")
    for powers in (True, False):
        got, want = torch.zeros(4, 16, 656, dtype=torch.uint8, device="cuda"), torch.zeros(4, 16, 656).byte()
        kernel(arch, in_dtype, "fp8_ds_mla")(latent.cuda(), rope.cuda(), got, slots.cuda(), power_of_two_scales=powers)
        reference.store_kv(latent, rope, want, slots, power_of_two_scales=powers)
        assert_same_bytes("cache", got.cpu(), want)
        row = want.view(64, 656)
        codes, scales = row[:, :512].view(torch.float8_e4m3fn), row[:, 512:528].clone().view(torch.float32)
        products = (codes.double().view(64, 4, 128) * scales.double()[..., None]).flatten(1)
        exact[powers] = torch.equal(gather(got, slots.int().cuda())[:, :512].cpu().double(), products)
    assert exact == {True: True, False: False}


@pytest.mark.parametrize(("in_dtype", "kv_dtype"), [row for row in TYPES if row[1] != "fp8_ds_mla"])
def test_power_of_two_scales_are_refused_without_scales_in_rows(arch: str, in_dtype: str, kv_dtype: str) -> None:
    latent, rope = (part.cuda() for part in tokens(in_dtype, 2))
    cache, slots = guarded((1, 4, width_of(kv_dtype)), kv_dtype), torch.arange(2).cuda()
    with pytest.raises(UnsupportedError, match="power_of_two_scales"):
        kernel(arch, in_dtype, kv_dtype)(
            latent, rope, cache.view, slots, scale=on_gpu(scale_of(kv_dtype)), power_of_two_scales=True
        )


def every_value(in_dtype: str) -> tuple[Tensor, Tensor]:
    """Each of the 65,536 codes of a 16-bit type but NaN, for which 0 stands."""
    codes = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(memory.DTYPES[in_dtype])
    values = codes.where(~codes.isnan(), 0.0)
    return values.view(128, 512), values.view(1024, 64)[::8].contiguous()


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("scale", [1.0, 0.0137, 1 / 3, 7.7e-6, 447.3, 3e-39, 1e-30, 2.1e25, 3e38])
def test_every_value(arch: str, in_dtype: str, scale: float) -> None:
    """Values are rounded as one IEEE division and one conversion round them, with any scale."""
    check(arch, (in_dtype, "e4m3"), every_value(in_dtype), torch.arange(128), (2, 64), scale=torch.tensor([scale]))


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
def test_random_scales(arch: str, in_dtype: str) -> None:
    for seed in range(40):
        scale = 2.0 ** (random(generator(seed), 1, deviation=8.0))
        check(arch, (in_dtype, "e4m3"), every_value(in_dtype), torch.arange(128), (2, 64), scale=scale)


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
def test_every_value_in_groups(arch: str, in_dtype: str) -> None:
    """Neighbours of like magnitude, infinities among them, give the groups scales of every magnitude."""
    check(arch, (in_dtype, "fp8_ds_mla"), every_value(in_dtype), torch.arange(128), (2, 64))


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("kv_dtype", ["e4m3", "fp8_ds_mla"])
def test_nan_stays_where_it_is(arch: str, in_dtype: str, kv_dtype: str) -> None:
    latent, rope = tokens(in_dtype, 4)
    want = guarded((1, 4, width_of(kv_dtype)), kv_dtype)
    got = guarded((1, 4, width_of(kv_dtype)), kv_dtype)
    store, slots, scale = kernel(arch, in_dtype, kv_dtype), torch.arange(4).cuda(), on_gpu(scale_of(kv_dtype))
    latent[1, 5] = 0.0
    store(latent.cuda(), rope.cuda(), want.view, slots, scale=scale)
    latent[1, 5] = torch.nan
    store(latent.cuda(), rope.cuda(), got.view, slots, scale=scale)
    got_bytes, want_bytes = got.view.view(torch.uint8), want.view.view(torch.uint8)
    assert got_bytes[0, 1, 5].item() in (0x7F, 0xFF)
    got_bytes[0, 1, 5] = want_bytes[0, 1, 5]
    assert_same_bytes("cache and its surroundings", got.buffer, want.buffer)


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, torch.inf, -torch.inf, torch.nan])
def test_no_scale_at_all_gives_nan(arch: str, in_dtype: str, scale: float) -> None:
    latent, rope = tokens(in_dtype, 3)
    cache = guarded((1, 3, 576), "e4m3")
    cache.view.view(torch.uint8).zero_()
    slots = torch.tensor([0, 2, -1]).cuda()
    kernel(arch, in_dtype, "e4m3")(latent.cuda(), rope.cuda(), cache.view, slots, scale=torch.tensor([scale]).cuda())
    assert cache.view[0, [0, 2]].float().isnan().all()
    assert not cache.view[0, 1].view(torch.uint8).any()
    cache.assert_guards("cache")


@pytest.mark.parametrize(("in_dtype", "kv_dtype"), [row for row in TYPES if row[1] != "fp8_ds_mla"])
@pytest.mark.parametrize("pad", PADS)
def test_split_cache(arch: str, in_dtype: str, kv_dtype: str, pad: int) -> None:
    latent, rope = tokens(in_dtype, 9)
    slots, scale = torch.tensor([4, 9, 1, -1, 3, 11, 0, 2, 7]), scale_of(kv_dtype)
    got = [guarded((3, 4, n), kv_dtype, pad) for n in (512, 64)]
    want = [guarded((3, 4, n), kv_dtype, pad, "cpu") for n in (512, 64)]
    store = kernel(arch, in_dtype, kv_dtype)
    store(latent.cuda(), rope.cuda(), (got[0].view, got[1].view), slots.cuda(), scale=on_gpu(scale))
    kernel("cpu", in_dtype, kv_dtype)(latent, rope, (want[0].view, want[1].view), slots, scale=scale)
    for name, one, other in zip(("latent", "rope"), got, want, strict=True):
        assert_same_bytes(name, one.buffer, other.buffer)


@types
def test_one_row_for_all_tokens(arch: str, in_dtype: str, kv_dtype: str) -> None:
    """The inputs repeat one row with stride 0."""
    latent, rope = (part[:1].expand(20, -1) for part in tokens(in_dtype, 1))
    got = guarded((2, 16, width_of(kv_dtype)), kv_dtype)
    want = guarded((2, 16, width_of(kv_dtype)), kv_dtype)
    store, slots, scale = kernel(arch, in_dtype, kv_dtype), torch.arange(20).cuda(), on_gpu(scale_of(kv_dtype))
    store(latent[:1].cuda().expand(20, -1), rope[:1].cuda().expand(20, -1), got.view, slots, scale=scale)
    store(latent.contiguous().cuda(), rope.contiguous().cuda(), want.view, slots, scale=scale)
    assert_same_bytes("cache and its surroundings", got.buffer, want.buffer)


@types
@pytest.mark.parametrize(("n", "pages"), [(0, (2, 4)), (0, (0, 4)), (3, (0, 4)), (5, (2, 4))])
def test_nothing(arch: str, in_dtype: str, kv_dtype: str, n: int, pages: tuple[int, int]) -> None:
    check(arch, (in_dtype, kv_dtype), tokens(in_dtype, n), torch.arange(n) - n, pages)
    check(arch, (in_dtype, kv_dtype), tokens(in_dtype, n), torch.arange(n) + pages[0] * pages[1], pages)


@pytest.mark.parametrize(("in_dtype", "kv_dtype"), [row for row in TYPES if row[0] != row[1]])
def test_pool_beyond_32_bits(arch: str, in_dtype: str, kv_dtype: str) -> None:
    width, n = width_of(kv_dtype), 200
    pages = PLENTY // (64 * width) + 40
    pool = torch.empty(pages, 64, width, dtype=torch.uint8, device="cuda")
    assert pool.numel() > PLENTY
    slots = torch.cat([torch.arange(n // 2), pages * 64 - 1 - torch.arange(n // 2)])
    small = torch.empty(n, 1, width, dtype=torch.uint8)
    latent, rope = tokens(in_dtype, n)
    scale = scale_of(kv_dtype)
    kernel(arch, in_dtype, kv_dtype)(latent.cuda(), rope.cuda(), pool, slots.cuda(), scale=on_gpu(scale))
    kernel("cpu", in_dtype, kv_dtype)(latent, rope, small, torch.arange(n), scale=scale)
    assert_same_bytes("rows", pool.view(-1, width)[slots.cuda()].cpu(), small[:, 0])


@pytest.mark.parametrize("in_dtype", ["fp16", "bf16"])
def test_page_stride_beyond_32_bits(arch: str, in_dtype: str) -> None:
    """The two pages lie 2^31 elements and more apart."""
    memory_of_both = torch.empty(PLENTY + 10**5, dtype=memory.DTYPES[in_dtype], device="cuda")
    pool = memory_of_both.as_strided((2, 16, 576), (PLENTY + 576, 576, 1))
    latent, rope = tokens(in_dtype, 32)
    kernel(arch, in_dtype, in_dtype)(latent.cuda(), rope.cuda(), pool, torch.arange(32).cuda())
    assert_same_bytes("rows", pool.reshape(32, 576).cpu(), torch.cat([latent, rope], -1))


@types
def test_refusals(arch: str, in_dtype: str, kv_dtype: str) -> None:
    latent, rope = (part.cuda() for part in tokens(in_dtype, 2))
    cache, slots = guarded((1, 4, width_of(kv_dtype)), kv_dtype), torch.arange(2).cuda()
    wrong = None if kv_dtype == "e4m3" else torch.ones(1).cuda()
    with pytest.raises(mla.InvalidArgumentError, match="scale"):
        kernel(arch, in_dtype, kv_dtype)(latent, rope, cache.view, slots, scale=wrong)
    cache.assert_guards("cache")
    assert_same_bytes("cache", cache.view, guarded((1, 4, width_of(kv_dtype)), kv_dtype).view)


def test_cupy(arch: str, cupy: Any) -> None:
    latent, rope = tokens("fp16", 6)
    cache, slots = guarded((2, 4, 576), "fp16"), torch.arange(6).cuda()
    arrays = [cupy.from_dlpack(part.contiguous().cuda()) for part in (latent, rope)]
    kernel(arch, "fp16", "fp16")(
        *arrays, cupy.from_dlpack(cache.view), cupy.from_dlpack(slots), stream=current_stream()
    )
    torch.cuda.synchronize()
    assert_same_bytes("rows", cache.view.reshape(8, 576)[:6], torch.cat([latent, rope], -1).cuda())
    cache.assert_guards("cache")
