"""gather_kv reads what the CPU payload reads, to the byte, and zeros where there is no row."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from torch import Tensor

from tests.gpu.support.gather_kv import TYPES, check, kernel, pool, scale_of, stored
from tests.gpu.support.tensors import PADS, PAGE_SIZES, current_stream, guarded, padded
from tests.support import memory
from tests.support.caches import write_rows
from tests.support.compare import Tolerance, assert_close, assert_same_bytes
from tests.support.memory import width_of
from tests.support.problems import generator
from tests.support.sparse import INT_MAX, INT_MIN

FP8_BYTES = torch.arange(256, dtype=torch.uint8)
PLENTY = 2**31

types = pytest.mark.parametrize(("kv_dtype", "out_dtype"), TYPES)
outs = pytest.mark.parametrize("out_dtype", ["fp32", "fp16", "bf16"])


def compare_rows(got: Tensor, want: Tensor) -> None:
    """Rows are what one float32 product and one rounding give; any NaN stands for any other."""
    assert_close("rows", got, want.to(got.dtype), Tolerance(0.0, 0.0))


@types
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("pad", PADS)
def test_pages(arch: str, kv_dtype: str, out_dtype: str, page_size: int, pad: int) -> None:
    source = generator(page_size)
    num_pages = -(-200 // page_size)
    num_slots = num_pages * page_size
    slots = torch.randperm(num_slots, generator=source)[:50]
    wild = torch.tensor([-1, INT_MIN, INT_MAX, -5, num_slots, num_slots + 1, 2_000_000_000])
    indices = torch.cat([slots, slots[:9], wild]).int()
    indices = indices[torch.randperm(len(indices), generator=source)]
    check(
        arch,
        (kv_dtype, out_dtype),
        pool(kv_dtype, slots, stored(kv_dtype, 50), (num_pages, page_size)),
        indices,
        pad=pad,
    )


@pytest.mark.parametrize(("kv_dtype", "out_dtype"), [row for row in TYPES if row[0] != "fp8_ds_mla"])
@pytest.mark.parametrize("pad", PADS)
def test_split_cache(arch: str, kv_dtype: str, out_dtype: str, pad: int) -> None:
    slots = torch.randperm(60, generator=generator(3))[:20]
    latent, rope = pool(kv_dtype, slots, stored(kv_dtype, 20), (15, 4)).split([512, 64], -1)
    check(arch, (kv_dtype, out_dtype), (latent, rope), slots.int(), pad=pad)


@outs
@pytest.mark.parametrize("kv_scale", [1.0, 0.25, 0.0137, 3.3e-5, 111.0, 1e-42, -2.7, 0.0])
def test_every_code(arch: str, out_dtype: str, kv_scale: float) -> None:
    cache = FP8_BYTES.repeat(3)[:576].view(1, 1, 576)
    zero = torch.zeros(1, dtype=torch.int32).cuda()
    for given in (cache.cuda(), padded(cache, 3)):
        got = kernel(arch, "e4m3", out_dtype)(given, zero, kv_scale=kv_scale)
        compare_rows(got.cpu(), cache[0].view(torch.float8_e4m3fn).float() * torch.tensor(kv_scale))


@outs
@pytest.mark.parametrize("tile_scale", [1.0, 2**-9, 0.0137, 7.7e-6, 3.1e5, 1e-40, 3e37])
def test_every_code_with_group_scales(arch: str, out_dtype: str, tile_scale: float) -> None:
    scales = tile_scale * torch.tensor([1.0, 1.1, 0.6, -2.3])
    rope = torch.cat([torch.arange(61), torch.tensor([torch.inf, -torch.inf, torch.nan])]).bfloat16()
    row = torch.cat([FP8_BYTES, FP8_BYTES, scales.view(torch.uint8), rope.view(torch.uint8)]).view(1, 1, 656)
    zero = torch.zeros(1, dtype=torch.int32).cuda()
    codes = FP8_BYTES.repeat(2).view(torch.float8_e4m3fn).float()
    want = torch.cat([codes * scales.repeat_interleave(128), rope.float()])[None]
    for given in (row.cuda(), padded(row, 3)):
        compare_rows(kernel(arch, "fp8_ds_mla", out_dtype)(given, zero).cpu(), want)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_value_is_copied(arch: str, dtype: str) -> None:
    """Every value keeps its bits, NaN included."""
    codes = torch.arange(65536, dtype=torch.int32).to(torch.int16).repeat(9).view(memory.DTYPES[dtype])
    cache = codes.view(64, 16, 576)
    got = kernel(arch, dtype, dtype)(cache.cuda(), torch.arange(1024, dtype=torch.int32).cuda())
    assert_same_bytes("rows", got.cpu(), cache.view(1024, 576))


@types
@pytest.mark.parametrize(("n", "pages"), [(0, (2, 4)), (0, (0, 4)), (6, (0, 4))])
def test_nothing(arch: str, kv_dtype: str, out_dtype: str, n: int, pages: tuple[int, int]) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    cache = pool(kv_dtype, none, stored(kv_dtype, 0), pages)
    check(arch, (kv_dtype, out_dtype), cache, torch.arange(n).int() - 3)


@pytest.mark.parametrize(("kv_dtype", "out_dtype"), [row for row in TYPES if row[0] in ("e4m3", "fp8_ds_mla")])
def test_pool_beyond_32_bits(arch: str, kv_dtype: str, out_dtype: str) -> None:
    width, n = width_of(kv_dtype), 200
    pages = PLENTY // (64 * width) + 40
    huge = torch.empty(pages, 64, width, dtype=torch.uint8, device="cuda")
    assert huge.numel() > PLENTY
    slots = torch.cat([torch.arange(n // 2), pages * 64 - 1 - torch.arange(n // 2)])
    rows = stored(kv_dtype, n)
    write_rows(huge, slots.cuda(), rows.cuda())
    small = pool(kv_dtype, torch.arange(n), rows, (n, 1))
    indices = torch.arange(n, dtype=torch.int32)
    options = {"kv_scale": scale_of(kv_dtype)}
    got = kernel(arch, kv_dtype, out_dtype)(huge.view(memory.DTYPES[kv_dtype]), slots.int().cuda(), **options)
    assert_same_bytes("rows", got.cpu(), kernel("cpu", kv_dtype, out_dtype)(small, indices, **options))


@types
def test_refusals(arch: str, kv_dtype: str, out_dtype: str) -> None:
    cache = pool(kv_dtype, torch.arange(4), stored(kv_dtype, 4), (1, 4)).cuda()
    out = guarded((2, 576), out_dtype)
    wrong = torch.nan if kv_dtype == "e4m3" else 2.0
    with pytest.raises(mla.InvalidArgumentError, match="kv_scale"):
        kernel(arch, kv_dtype, out_dtype)(cache, torch.zeros(2).int().cuda(), kv_scale=wrong, out=out.view)
    out.assert_guards("out")
    assert_same_bytes("out", out.view, guarded((2, 576), out_dtype).view)


def test_cupy(arch: str, cupy: Any) -> None:
    cache = pool("fp16", torch.arange(8), stored("fp16", 8), (2, 4)).cuda()
    indices, out = torch.tensor([3, -1, 7], dtype=torch.int32).cuda(), guarded((3, 576), "fp16")
    kernel(arch, "fp16", "fp16")(
        *map(cupy.from_dlpack, (cache, indices)), out=cupy.from_dlpack(out.view), stream=current_stream()
    )
    torch.cuda.synchronize()
    want = cache.reshape(8, 576)[[3, 0, 7]]
    want[1] = 0.0
    assert_same_bytes("rows", out.view, want)
    out.assert_guards("out")
