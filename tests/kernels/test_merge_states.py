"""merge_states: against attention that was never split, empty states, counts, strides."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from mla_kernels import reference
from torch import Tensor

from tests.support import memory
from tests.support.compare import DENSE, LSE, SINGLE, SINGLE_LSE, as_bytes, assert_close, assert_same_bytes
from tests.support.problems import generator, random, unchanged
from tests.support.rows import Row

pytestmark = pytest.mark.op("merge_states")


def states(variant: Row, *sizes: int, dim: int = 512, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return ``o`` and ``lse`` of (states, tokens, heads)."""
    source = generator(seed)
    o = random(source, *sizes, dim).to(memory.DTYPES[variant.in_dtype])
    return o.to(variant.device), random(source, *sizes, deviation=3.0).to(variant.device)


def merge(variant: Row, o: Tensor, lse: Tensor, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Merge between guard zones, and once more into outputs that the call allocates."""
    import mla_kernels as mla

    dtype = memory.DTYPES[variant.out_dtype]
    into = memory.guarded((*o.shape[1:],), dtype, variant.device)
    into_lse = memory.guarded((*lse.shape[1:],), torch.float32, variant.device)
    mla.merge_states(o, lse, counts, out=into.view, out_lse=into_lse.view)
    into.assert_guards("out")
    into_lse.assert_guards("lse")
    out, merged = mla.merge_states(o, lse, counts, out_dtype=variant.out_dtype)
    assert_same_bytes("out=", into.view, out)
    assert_same_bytes("out_lse=", into_lse.view, merged)
    assert out.dtype == dtype
    assert merged.dtype == torch.float32
    return out, merged


def check(variant: Row, o: Tensor, lse: Tensor, counts: Tensor | None = None) -> None:
    with unchanged(o, lse, counts):
        out, merged = merge(variant, o, lse, counts)
    want_out, want_lse = reference.merge_states(o, lse, counts, dtype=torch.float64)
    single = variant.out_dtype == "fp32"
    assert_close("lse", merged, want_lse, SINGLE_LSE if single else LSE)
    assert_close("out", out, want_out, SINGLE if single else DENSE)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("heads", [1, 9, 16, 128])
def test_merge(variant: Row, n: int, heads: int) -> None:
    check(variant, *states(variant, n, 3, heads, seed=n))


@pytest.mark.parametrize("dim", [1, 7, 64, 100, 512, 576])
def test_head_dims(variant: Row, dim: int) -> None:
    check(variant, *states(variant, 4, 5, 3, dim=dim))


def test_counts(variant: Row) -> None:
    o, lse = states(variant, 5, 6, 4)
    counts = torch.tensor([0, 1, 2, 3, 4, 5], dtype=torch.int32, device=variant.device)
    for token, count in enumerate(counts.tolist()):
        o[count:, token], lse[count:, token] = torch.nan, torch.nan
    check(variant, o, lse, counts)


def test_one_state_is_copied(variant: Row) -> None:
    o, lse = states(variant, 1, 4, 4)
    out, merged = merge(variant, o, lse)
    assert_same_bytes("out", out, o[0].to(out.dtype))
    assert_same_bytes("lse", merged, lse[0])


@pytest.mark.parametrize("empty", [-math.inf, math.inf])
def test_empty_states(variant: Row, empty: float) -> None:
    """FlashMLA gives an empty row the LSE +inf, and this package -inf: both are empty."""
    o, lse = states(variant, 3, 4, 4)
    lse[:, 0] = empty
    o[:, 0] = torch.nan
    lse[1, 1:] = empty
    check(variant, o, lse)
    out, merged = merge(variant, o, lse)
    assert (out[0] == 0).all()
    assert torch.isneginf(merged[0]).all()
    assert_same_bytes("out", out[1:], merge(variant, o[::2], lse[::2])[0][1:])


@pytest.mark.parametrize("empty", [-math.inf, math.inf])
def test_an_empty_state_adds_nothing_whatever_it_holds(variant: Row, empty: float) -> None:
    o, lse = states(variant, 3, 4, 4)
    lse[1, 2], o[1, 2] = empty, torch.nan
    check(variant, o, lse)


@pytest.mark.parametrize("empty", [-math.inf, math.inf])
def test_one_empty_state(variant: Row, empty: float) -> None:
    o, lse = states(variant, 1, 4, 4)
    lse[0, 2], o[0, 2] = empty, torch.nan
    out, merged = merge(variant, o, lse)
    assert (out[2] == 0).all()
    assert torch.isneginf(merged[2]).all()
    assert_same_bytes("out", out[:2], o[0, :2].to(out.dtype))


@pytest.mark.parametrize("offset", [-1e4, 1e4, 80.0])
def test_far_from_zero(variant: Row, offset: float) -> None:
    o, lse = states(variant, 4, 2, 4)
    check(variant, o, lse + offset)


def test_one_state_outweighs_the_others(variant: Row) -> None:
    o, lse = states(variant, 3, 2, 4)
    lse[1] += 500.0
    out, merged = merge(variant, o, lse)
    assert_same_bytes("out", out, o[1].to(out.dtype))
    assert_same_bytes("lse", merged, lse[1])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nan_states_stay_in_their_row(variant: Row, count: int) -> None:
    o, lse = states(variant, count, 4, 4)
    want_out, want_lse = merge(variant, o, lse)
    lse[count // 2, 2, 3] = math.nan
    out, merged = merge(variant, o, lse)
    assert torch.isnan(merged[2, 3])
    assert torch.isnan(out[2, 3]).all()
    out[2, 3], merged[2, 3] = want_out[2, 3], want_lse[2, 3]
    assert_same_bytes("out", out, want_out)
    assert_same_bytes("lse", merged, want_lse)


def test_strided_states(variant: Row) -> None:
    o, lse = states(variant, 3, 4, 5)
    want = merge(variant, o, lse)
    got = merge(variant, memory.strided_copy(o), memory.strided_copy(lse))
    transposed = merge(
        variant,
        o.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
        lse.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    )
    for name, plain, strided, other in zip(("out", "lse"), want, got, transposed, strict=True):
        assert_same_bytes(name, strided, plain)
        assert_same_bytes(name, other, plain)


def test_merge_undoes_a_split_of_attention(variant: Row) -> None:
    source = generator(11)
    logits, values = random(source, 6, 4, 96, deviation=4.0), random(source, 96, 512, deviation=0.1)
    bounds = (0, 1, 40, 64, 96)
    parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    o = torch.stack([logits[..., part].softmax(-1) @ values[part] for part in parts])
    lse = torch.stack([logits[..., part].logsumexp(-1) for part in parts])
    out, merged = merge(variant, o.to(memory.DTYPES[variant.in_dtype]).to(variant.device), lse.to(variant.device))
    single = variant.in_dtype == variant.out_dtype == "fp32"
    tolerance = SINGLE if single else DENSE.widened(2)  # the states are rounded too
    assert_close("out", out, logits.double().softmax(-1) @ values.double(), tolerance)
    assert_close("lse", merged, logits.double().logsumexp(-1), LSE)


def test_no_tokens(variant: Row) -> None:
    out, merged = merge(variant, *states(variant, 2, 0, 4))
    assert tuple(out.shape) == (0, 4, 512)
    assert as_bytes(merged).numel() == 0
