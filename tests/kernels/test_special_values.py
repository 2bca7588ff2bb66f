"""Numbers at the ends of their types: NaN of any payload, tiny groups, zero scales, slots and pages beyond 32 bits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from mla_kernels.errors import InvalidArgumentError, ValueRangeError
from mla_kernels.reference_rows import decoded, rope_bytes
from torch import Tensor

from tests.support import memory
from tests.support.caches import encode
from tests.support.compare import assert_same_bytes
from tests.support.problems import generator, random
from tests.support.rows import Row

CPU = {"where": lambda row: row.arch == "cpu"}
OF_EQUAL_ROWS = {"where": lambda row: row.arch == "cpu" and row.form.scale_place != "page"}
USUAL_E4M3 = {"where": lambda row: row.arch == "cpu" and row.kv_dtype == "e4m3" and row.has_usual_widths}
OF_FP32 = {"where": lambda row: row.in_dtype == "fp32" != row.kv_dtype and row.arch == "cpu" and row.has_usual_widths}
NAN_BITS = (0x7F800001, 0x7F807FFF, 0x7F80FFFF, 0x7F810000, 0x7FC00000, 0x7FFFFFFF)
"""NaN of float32 whose payload lies in the low half alone, crosses it, or fills it, so that rounding would overflow."""
HUGE_PAGES = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1)


def store(variant: Row, latent: Tensor, rope: Tensor) -> Tensor:
    """Store one token per row, and return the rows of the cache."""
    import mla_kernels as mla

    dtype = memory.DTYPES[variant.in_dtype]
    cache = memory.pages_of(variant.form, len(latent), 1).zero_()
    scale = torch.ones(1) if variant.kv_dtype == "e4m3" else None
    mla.store_kv(latent.to(dtype), rope.to(dtype), cache, torch.arange(len(latent)), scale=scale)
    return cache[:, 0]


def scales_of(rows: Tensor) -> Tensor:
    """The scales [tokens, 4] of rows of ``fp8_ds_mla``."""
    return rows[:, 512:528].clone().view(torch.float32)


@pytest.mark.op("merge_states", where=lambda row: row.arch == "cpu" and row.in_dtype == "fp32")
def test_every_nan_stays_nan_in_an_output(variant: Row) -> None:
    import mla_kernels as mla

    signed = torch.tensor([*NAN_BITS, *(bits - 2**31 for bits in NAN_BITS)], dtype=torch.int32)
    o = signed.view(torch.float32).repeat(512 // len(signed) + 1)[:512].reshape(1, 1, 1, 512).clone()
    out, _ = mla.merge_states(o, torch.zeros(1, 1, 1), out_dtype=variant.out_dtype)
    assert out.isnan().all()


@pytest.mark.op("store_kv", **OF_FP32)
def test_every_nan_stays_nan_in_a_cache(variant: Row) -> None:
    latent, rope = torch.ones(1, 512), torch.ones(1, 64)
    bits = torch.tensor([*NAN_BITS, *(bits - 2**31 for bits in NAN_BITS)], dtype=torch.int32).view(torch.float32)
    latent[0, : len(bits)], rope[0, : len(bits)] = bits, bits
    form = variant.form
    row = store(variant, latent, rope)[0].view(torch.uint8)
    of_rope = decoded(row[None, form.rope_offset : form.rope_offset + rope_bytes(form)], form.rope_type)[0]
    assert of_rope.isnan().tolist() == [True] * len(bits) + [False] * (64 - len(bits))
    if form.latent_type == "e2m1":  # the scale of a group is NaN in place of its elements
        scales = decoded(row[None, form.scale_offset :], form.scale_type)[0]
        assert scales.isnan().tolist() == [True] + [False] * 31
        return
    codes = row[:512] & 0x7F
    assert (codes == 0x7F).tolist() == [True] * len(bits) + [False] * (512 - len(bits))


@pytest.mark.op(
    "store_kv", where=lambda row: row.arch == "cpu" and row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths
)
@pytest.mark.parametrize("column", [0, 1, 60, 127])
def test_a_nan_leaves_the_scale_of_its_group_alone(variant: Row, column: int) -> None:
    latent = random(generator(column), 1, 512).to(memory.DTYPES[variant.in_dtype])
    latent[0, (column + 1) % 128] = 5.0  # the group's largest magnitude, behind the NaN and before it
    broken = latent.clone()
    broken[0, column] = torch.nan
    latent[0, column] = 0.0
    rope = torch.zeros(1, 64)
    whole, with_nan = store(variant, latent, rope), store(variant, broken, rope)
    assert_same_bytes("scales", scales_of(with_nan), scales_of(whole))
    assert with_nan[0, column] & 0x7F == 0x7F
    with_nan[0, column] = whole[0, column]
    assert_same_bytes("row", with_nan, whole)


@pytest.mark.op(
    "store_kv", where=lambda row: row.arch == "cpu" and row.kv_dtype == "fp8_ds_mla" and row.has_usual_widths
)
def test_a_scale_is_a_normal_number(variant: Row) -> None:
    """Dividing by a subnormal one would lose precision, or give infinities where the processor flushes it to zero."""
    least = torch.finfo(torch.float32).tiny
    latent = torch.zeros(4, 512)
    for token, magnitude in enumerate((2.0**-140, 2.0**-126, 447 * 2.0**-126, 449 * 2.0**-126)):
        latent[token, ::128] = magnitude
    latent = latent.to(memory.DTYPES[variant.in_dtype])
    want = (latent[:, ::128].float() / 448).clamp(min=least)
    scales = scales_of(store(variant, latent, torch.zeros(4, 64)))
    assert scales.tolist() == want.tolist()
    assert (scales >= least).all()


@pytest.mark.op("store_kv", **USUAL_E4M3)
@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, torch.inf, -torch.inf, torch.nan])
def test_a_scale_that_divides_nothing_is_refused(variant: Row, scale: float) -> None:
    import mla_kernels as mla

    latent, rope = (torch.ones(2, n, dtype=memory.DTYPES[variant.in_dtype]) for n in (512, 64))
    cache = torch.full((1, 4, 576), 0x55, dtype=torch.uint8)
    with pytest.raises(ValueRangeError, match=r"scale: got .*; accepts a positive number"):
        mla.store_kv(latent, rope, cache, torch.arange(2), scale=torch.tensor([scale]))
    assert (cache == 0x55).all()


@pytest.mark.op("store_kv", **CPU)
@pytest.mark.parametrize("slot", [8, 2**31 - 1, 2**31, 2**31 + 3, 2**32, 2**32 + 3, 2**40 + 5, 2**63 - 1])
def test_a_slot_beyond_the_cache_is_refused_whatever_its_low_bits_say(variant: Row, slot: int) -> None:
    import mla_kernels as mla

    form, dtype = variant.form, memory.DTYPES[variant.in_dtype]
    latent, rope = (torch.ones(2, width, dtype=dtype) for width in (form.latent, form.rope))
    cache = memory.pages_of(form, 2, 4).zero_()
    scale = torch.ones(1) if variant.kv_dtype == "e4m3" else None
    with pytest.raises(InvalidArgumentError) as caught:
        mla.store_kv(latent, rope, cache, torch.tensor([0, slot]), scale=scale, kv_dtype=form.name)
    assert (caught.value.argument, caught.value.got) == ("slot_mapping[1]", str(slot))
    assert not cache.any()


@pytest.mark.op("store_kv", **USUAL_E4M3)
def test_a_slot_of_a_cache_of_more_than_2_31_tokens(variant: Row, tmp_path: Path) -> None:
    """The cache is a file with holes, of which only the pages that are touched cost memory."""
    import mla_kernels as mla

    pages = 2**31 // 64 + 2
    size = pages * 64 * 576
    (tmp_path / "cache").touch()
    os.truncate(tmp_path / "cache", size)
    cache = torch.from_file(str(tmp_path / "cache"), shared=True, size=size, dtype=torch.uint8).view(pages, 64, 576)
    dtype = memory.DTYPES[variant.in_dtype]
    slots = [5, 2**31 - 1, 2**31, 2**31 + 69]
    latent = torch.arange(1.0, 5.0)[:, None].expand(4, 512).to(dtype).contiguous()
    mla.store_kv(latent, torch.ones(4, 64, dtype=dtype), cache, torch.tensor(slots), scale=torch.ones(1))
    for slot, want in zip(slots, (1.0, 2.0, 3.0, 4.0), strict=True):
        row = cache[slot // 64, slot % 64].view(torch.float8_e4m3fn).float()
        assert (row[:512] == want).all()
    assert not cache[1, 5].any()


@pytest.mark.parametrize("page_size", HUGE_PAGES)
def test_global_indices_of_pages_beyond_32_bits(device: str, page_size: int) -> None:
    import mla_kernels as mla

    tokens = torch.tensor([[0, 1, 2**31 - 1, -1]], dtype=torch.int32, device=device)
    for page in (0, 1):
        table = torch.tensor([[page, 0]], dtype=torch.int32, device=device)
        got = mla.to_global_indices(
            torch.zeros(1, dtype=torch.int32, device=device), table, tokens, page_size=page_size
        )
        slots = [page * page_size + token if token < page_size else token - page_size for token in (0, 1, 2**31 - 1)]
        assert got.tolist() == [[*(slot if slot < 2**31 else -1 for slot in slots), -1]]


def repeated(variant: Row, page_size: int) -> tuple[Tensor, Tensor]:
    """A page of one row over and over, without memory of its own, and the row's value."""
    row = random(generator(page_size % 97), 1, variant.form.d_qk)
    stored = encode(row, variant.form, 1.0, exact_scales=True)
    from mla_kernels import reference

    cache = stored.reshape(1, 1, -1)
    first = torch.zeros(1, dtype=torch.int32)
    rows = reference.gather_kv(cache, first, out_dtype="fp32", kv_dtype=variant.kv_dtype)
    value = rows[:, : variant.form.d_v]
    return cache.as_strided((1, page_size, cache.shape[-1]), (0, 0, 1)), value


@pytest.mark.op("decode", **CPU)
@pytest.mark.parametrize("page_size", HUGE_PAGES)
def test_decode_of_pages_beyond_32_bits(variant: Row, page_size: int) -> None:
    import mla_kernels as mla

    cache, value = repeated(variant, page_size)
    q = random(generator(1), 1, 1, 2, variant.form.d_qk).to(memory.DTYPES[variant.q_dtype])
    table, lens = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([77], dtype=torch.int32)
    out, _ = mla.decode(q, cache, table, lens, softmax_scale=0.05, compute_dtype=variant.compute_dtype)
    torch.testing.assert_close(out[0, 0].float(), value.expand(2, -1), rtol=2e-2, atol=2e-2)


@pytest.mark.op("decode", **CPU)
@pytest.mark.parametrize("page_size", [*HUGE_PAGES, 2**63 - 2**31 + 2, 2**63 - 1])
def test_a_page_that_a_cache_of_huge_pages_does_not_have(variant: Row, page_size: int) -> None:
    import mla_kernels as mla

    cache, _ = repeated(variant, 1)
    none = cache[:0].expand(0, page_size, -1)
    q = random(generator(1), 1, 1, 2, variant.form.d_qk).to(memory.DTYPES[variant.q_dtype])
    table, lens = torch.full((1, 1), 12345, dtype=torch.int32), torch.tensor([2**31 - 1], dtype=torch.int32)
    with pytest.raises(ValueRangeError, match=r"block_table\[0, 0\]: got 12345; accepts no page"):
        mla.decode(q, none, table, lens, softmax_scale=0.05, compute_dtype=variant.compute_dtype)


@pytest.mark.op("sparse_decode", **OF_EQUAL_ROWS)
@pytest.mark.parametrize("page_size", HUGE_PAGES)
def test_sparse_decode_of_pages_beyond_32_bits(variant: Row, page_size: int) -> None:
    import mla_kernels as mla

    cache, value = repeated(variant, page_size)
    q = random(generator(1), 1, 1, 2, variant.form.d_qk).to(memory.DTYPES[variant.q_dtype])
    indices = torch.tensor([[[0, 5, 2**31 - 2, -1, 77]]], dtype=torch.int32)
    out, _ = mla.sparse_decode(q, cache, indices, softmax_scale=0.05, kv_dtype=variant.kv_dtype)
    torch.testing.assert_close(out[0, 0].float(), value.expand(2, -1), rtol=2e-2, atol=2e-2)


@pytest.mark.op("decode", where=lambda row: row.arch == "cpu" and row.kv_dtype == row.q_dtype)
def test_an_infinite_logit_shows_in_the_lse(variant: Row) -> None:
    import mla_kernels as mla

    dtype = memory.DTYPES[variant.kv_dtype]
    width = variant.form.d_qk
    cache, q = torch.zeros(1, 8, width, dtype=dtype), torch.zeros(1, 1, 2, width, dtype=dtype)
    cache[0, 3, 0], q[0, 0, 0, 0] = torch.inf, 1.0
    q[0, 0, 1, 1] = 1.0  # its logit of the infinite key is 0 times infinity, which is NaN
    table, lens = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([8], dtype=torch.int32)
    _, lse = mla.decode(q, cache, table, lens, softmax_scale=1.0)
    assert lse[0, 0, 0] == torch.inf
    assert lse[0, 1, 0].isnan()


@pytest.mark.op("sparse_decode", **OF_EQUAL_ROWS)
@pytest.mark.parametrize("sink", [-torch.inf, -1e30, 0.0, 1e30, torch.inf])
def test_a_token_that_selects_nothing_is_zero_whatever_its_sink(variant: Row, sink: float) -> None:
    import mla_kernels as mla

    cache, _ = repeated(variant, 64)
    q = random(generator(1), 1, 1, 2, variant.form.d_qk).to(memory.DTYPES[variant.q_dtype])
    indices = torch.full((1, 1, 4), -1, dtype=torch.int32)
    options = {"attn_sink": torch.full((2,), sink), "kv_dtype": variant.kv_dtype}
    out, lse = mla.sparse_decode(q, cache, indices, softmax_scale=0.05, **options)
    assert not out.any()
    assert torch.isneginf(lse).all()
