"""merge_states with every layout, count and size that only a GPU's grid makes interesting."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.gpu.support.merge_states import TYPES, check, kernel, merge, states
from tests.gpu.support.tensors import PADS, current_stream, guarded
from tests.support import memory
from tests.support.compare import LSE, assert_close, assert_same_bytes
from tests.support.sparse import INT_MAX, INT_MIN

types = pytest.mark.parametrize(("in_dtype", "out_dtype"), TYPES)


@types
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 16, 33, 64, 132, 256, 257, 1000])
@pytest.mark.parametrize("pad", PADS)
def test_states(arch: str, in_dtype: str, out_dtype: str, n: int, pad: int) -> None:
    check(arch, (in_dtype, out_dtype), *states(in_dtype, n, 2, 5, seed=n), pad=pad)


@types
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 64, 100, 127, 128, 132, 512, 576, 1031, 4100])
@pytest.mark.parametrize("n", [3, 40])
def test_head_dims(arch: str, in_dtype: str, out_dtype: str, dim: int, n: int) -> None:
    for pad in PADS:
        check(arch, (in_dtype, out_dtype), *states(in_dtype, n, 3, 3, dim=dim), pad=pad)


@types
@pytest.mark.parametrize(("tokens", "heads"), [(70_000, 1), (1, 70_000), (300, 300)])
def test_more_rows_than_a_grid_is_high(arch: str, in_dtype: str, out_dtype: str, tokens: int, heads: int) -> None:
    check(arch, (in_dtype, out_dtype), *states(in_dtype, 2, tokens, heads, dim=4))


@types
@pytest.mark.parametrize("n", [5, 40])
def test_counts(arch: str, in_dtype: str, out_dtype: str, n: int) -> None:
    """Some counts are such as no array has, and states that do not count are NaN."""
    o, lse = states(in_dtype, n, 9, 4)
    counts = torch.tensor([0, 1, 2, n - 1, n, n + 1, -1, INT_MIN, INT_MAX], dtype=torch.int32)
    for token, count in enumerate(counts.clamp(0, n).tolist()):
        o[count:, token], lse[count:, token] = torch.nan, torch.nan
    check(arch, (in_dtype, out_dtype), o, lse, counts)
    out, merged = merge(arch, (in_dtype, out_dtype), o, lse, counts)
    assert not out[[0, 6, 7]].view(torch.uint8).any()
    assert torch.isneginf(merged[[0, 6, 7]]).all()


@types
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_one_state_is_copied(arch: str, in_dtype: str, out_dtype: str, value: float) -> None:
    """A state is copied to the bit, unless it is empty."""
    o, lse = states(in_dtype, 3, 4, 4)
    lse[0, 2], lse[0, 3, 1], lse[0, 3, 2] = value, -math.inf, math.inf
    o[0, :, 0, ::3] = -0.0
    out, merged = merge(arch, (in_dtype, out_dtype), o, lse, torch.ones(4, dtype=torch.int32))
    want = o[0].to(out.dtype)
    want[3, 1:3] = 0.0
    lse[0, 3, 2] = -math.inf
    assert_same_bytes("out", out, want)
    assert_close("lse", merged, lse[0], LSE)


@types
@pytest.mark.parametrize("empty", [-math.inf, math.inf])
@pytest.mark.parametrize("n", [1, 3, 40])
def test_empty_states_add_nothing(arch: str, in_dtype: str, out_dtype: str, empty: float, n: int) -> None:
    """FlashMLA gives an empty row the LSE +inf, and this package -inf: both are empty."""
    o, lse = states(in_dtype, n, 4, 4)
    lse[:, 0], o[:, 0] = empty, torch.nan
    lse[n // 2, 1:], o[n // 2, 1:] = empty, torch.nan
    lse[:-1, 2], o[:-1, 2] = empty, torch.inf
    check(arch, (in_dtype, out_dtype), o, lse)
    assert torch.isneginf(merge(arch, (in_dtype, out_dtype), o, lse)[1][0]).all()


@types
@pytest.mark.parametrize("n", [1, 3, 40])
def test_nan_states_stay_in_their_row(arch: str, in_dtype: str, out_dtype: str, n: int) -> None:
    """Where the LSE of a state is NaN, so are the output and the LSE, of one state too."""
    o, lse = states(in_dtype, n, 4, 4)
    want_out, want_lse = merge(arch, (in_dtype, out_dtype), o, lse)
    lse[n // 2, 2, 3] = math.nan
    out, merged = merge(arch, (in_dtype, out_dtype), o, lse)
    assert out[2, 3].isnan().all()
    assert merged[2, 3].isnan()
    out[2, 3], merged[2, 3] = want_out[2, 3], want_lse[2, 3]
    assert_same_bytes("out", out, want_out)
    assert_same_bytes("lse", merged, want_lse)


@types
@pytest.mark.parametrize("offset", [-1e4, 1e4, 80.0])
def test_far_from_zero(arch: str, in_dtype: str, out_dtype: str, offset: float) -> None:
    o, lse = states(in_dtype, 40, 2, 4)
    check(arch, (in_dtype, out_dtype), o, lse + offset)


@types
@pytest.mark.parametrize("pad", PADS)
def test_the_batch_does_not_matter(arch: str, in_dtype: str, out_dtype: str, pad: int) -> None:
    """A row alone is shared by the warps of a block, one of many is not; the result is the same to the bit."""
    o, lse = states(in_dtype, 50, 200, 64, dim=100)
    whole = merge(arch, (in_dtype, out_dtype), o, lse, pad=pad)
    alone = merge(arch, (in_dtype, out_dtype), o[:, 7:8, :3], lse[:, 7:8, :3], pad=pad)
    for name, part, all_rows in zip(("out", "lse"), alone, whole, strict=True):
        assert_same_bytes(name, part, all_rows[7:8, :3])


@types
def test_transposed_states(arch: str, in_dtype: str, out_dtype: str) -> None:
    o, lse = states(in_dtype, 12, 4, 5)
    want = merge(arch, (in_dtype, out_dtype), o, lse)
    run = kernel(arch, in_dtype, out_dtype)
    turned = o.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3).cuda()
    lse_turned = lse.permute(1, 2, 0).contiguous().permute(2, 0, 1).cuda()
    out = torch.empty(5, 4, 512, dtype=memory.DTYPES[out_dtype], device="cuda").transpose(0, 1)
    merged = torch.empty(5, 4, device="cuda").T
    run(turned, lse_turned, out=out, out_lse=merged)
    assert_same_bytes("out", out.cpu(), want[0])
    assert_same_bytes("lse", merged.cpu(), want[1])


@types
@pytest.mark.parametrize(("n", "tokens", "heads"), [(2, 0, 4), (0, 3, 4)])
def test_nothing(arch: str, in_dtype: str, out_dtype: str, n: int, tokens: int, heads: int) -> None:
    out, merged = merge(arch, (in_dtype, out_dtype), *states(in_dtype, n, tokens, heads))
    assert not out.any()
    assert torch.isneginf(merged).all()


def test_state_stride_beyond_32_bits(arch: str) -> None:
    """The two states lie 2^31 elements and more apart."""
    o, lse = states("bf16", 2, 3, 4, dim=128)
    both = torch.empty(2**31 + 10**5, dtype=torch.bfloat16, device="cuda").as_strided(o.shape, (2**31 + 8, 512, 128, 1))
    both.copy_(o)
    out, merged = kernel(arch, "bf16", "bf16")(both, lse.cuda())
    want = merge(arch, ("bf16", "bf16"), o, lse)
    assert_same_bytes("out", out.cpu(), want[0])
    assert_same_bytes("lse", merged.cpu(), want[1])


def test_cupy(arch: str, cupy: Any) -> None:
    o, lse = states("fp16", 3, 2, 4)
    out = guarded((2, 4, 512), "fp16")
    arrays = [cupy.from_dlpack(tensor) for tensor in (o.cuda(), lse.cuda(), out.view)]
    kernel(arch, "fp16", "fp16")(*arrays[:2], out=arrays[2], out_lse=False, stream=current_stream())
    torch.cuda.synchronize()
    out.assert_guards("out")
    assert_same_bytes("out", out.view.cpu(), merge(arch, ("fp16", "fp16"), o, lse)[0])
