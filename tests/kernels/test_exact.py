"""Kernels give exactly the answer of inputs whose answer is known without arithmetic error."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.support import memory
from tests.support.caches import encode, poisoned_pool
from tests.support.compare import SINGLE_LSE, Tolerance, assert_close
from tests.support.problems import generator
from tests.support.rows import Row

EXACT = Tolerance(0.0, 0.0)
SHARP = 512.0
"""The chosen key has this logit. Every other key has 0, so that its weight underflows to 0."""


SIGNALS = 64
"""The last columns of a key, which select it. They are the rope part, where there is one that is no value."""


def integers(variant: Row, seed: int, n: int) -> Tensor:
    """Return rows of small integers, which every cache type holds exactly, and zeros in the last columns."""
    rows = torch.randint(-4, 5, (n, variant.form.d_qk), generator=generator(seed)).float()
    rows[:, -SIGNALS:] = 0.0
    return rows


def stored(variant: Row, rows: Tensor, page_size: int) -> Tensor:
    """Return a pool [pages, page_size, ...] that holds ``rows`` in order."""
    slots, form = torch.arange(len(rows)), variant.form
    pool = poisoned_pool(
        encode(rows, form),
        slots,
        -(-len(rows) // page_size),
        page_size,
        strided=False,
        split=False,
        device=variant.device,
        form=form,
    )
    assert isinstance(pool, Tensor)
    return pool


def one_hot(variant: Row, rows: Tensor, chosen: Tensor) -> Tensor:
    """Return queries [tokens, heads, d_qk] that select key ``chosen`` [tokens, heads] by a column of its own."""
    width = variant.form.d_qk
    for i in range(len(rows)):
        rows[i, width - SIGNALS + i] = 16.0
    q = torch.zeros(*chosen.shape, width)
    q.scatter_(-1, (width - SIGNALS + chosen)[..., None], SHARP / 16)
    return q.to(memory.DTYPES[variant.q_dtype]).to(variant.device)


@pytest.mark.op("decode")
@pytest.mark.parametrize("page_size", [1, 16, 61])
@pytest.mark.parametrize("max_splits", [1, 3])
def test_decode_selects_one_key(variant: Row, page_size: int, max_splits: int) -> None:
    import mla_kernels as mla

    rows = integers(variant, 1, 61)
    chosen = torch.randint(61, (2, 24), generator=generator(2))
    q = one_hot(variant, rows, chosen)[:, None]
    pool = stored(variant, rows, page_size)
    table = torch.arange(len(pool), dtype=torch.int32, device=variant.device).repeat(2, 1)
    lens = torch.full((2,), 61, dtype=torch.int32, device=variant.device)
    kernel = mla.lookup(
        op="decode",
        arch=variant.arch,
        kv_layout="paged",
        page_size=page_size,
        num_heads=24,
        q_len=1,
        **dict(variant.traits),
    )
    plan = kernel.plan(lens, num_heads=24, q_len=1, max_splits=max_splits)
    out, lse = kernel(q, pool, table, lens, plan=plan, softmax_scale=1.0)
    assert_close("out", out[:, 0], rows[chosen][..., : variant.form.d_v], EXACT)
    assert_close("lse", lse[..., 0], torch.full((2, 24), SHARP), SINGLE_LSE)


@pytest.mark.op("decode")
@pytest.mark.parametrize("length", [1, 2, 16, 64, 256])
def test_decode_averages_equal_keys(variant: Row, length: int) -> None:
    import mla_kernels as mla

    rows = integers(variant, 3, length)
    q = torch.zeros(1, 1, 5, variant.form.d_qk, dtype=memory.DTYPES[variant.q_dtype], device=variant.device)
    pool = stored(variant, rows, 8 * length)
    lens = torch.tensor([length], dtype=torch.int32, device=variant.device)
    out, lse = mla.decode(q, pool, None, lens, softmax_scale=1.0)
    mean = rows[:, : variant.form.d_v].sum(0) / length
    assert_close("out", out[0, 0], mean.to(out.dtype).expand(5, -1), EXACT)
    assert_close("lse", lse[0, :, 0], torch.full((5,), math.log(length)), Tolerance(1e-6, 1e-6))


@pytest.mark.op("decode")
def test_causal_rows_select_the_last_key_they_see(variant: Row) -> None:
    """Logits grow with the position, so that each token's answer is its last visible key."""
    import mla_kernels as mla

    length, q_len = 40, 9
    rows = integers(variant, 4, length)
    rows[:, -2] = torch.arange(length) // 8
    rows[:, -1] = torch.arange(length) % 8
    q = torch.zeros(1, q_len, 3, variant.form.d_qk, device=variant.device)
    q[..., -2], q[..., -1] = 1024.0, 128.0
    pool = stored(variant, rows, 16)
    lens = torch.tensor([length], dtype=torch.int32, device=variant.device)
    table = torch.arange(3, dtype=torch.int32, device=variant.device)[None]
    out, _ = mla.decode(q.to(memory.DTYPES[variant.q_dtype]), pool, table, lens, softmax_scale=1.0)
    want = rows[length - q_len :, None, : variant.form.d_v].expand(-1, 3, -1)
    assert_close("out", out[0], want, EXACT)


@pytest.mark.op("sparse_decode", where=lambda row: row.form.latent_type != "e2m1")  # its scales are not exact
def test_sparse_decode_selects_one_key(variant: Row) -> None:
    import mla_kernels as mla

    rows = integers(variant, 5, 61)
    chosen = torch.randint(61, (3, 17), generator=generator(6))
    q = one_hot(variant, rows, chosen)[:, None]
    indices = torch.randperm(61, generator=generator(7)).int().repeat(3, 1, 1).to(variant.device)
    pool = stored(variant, rows, 8)
    out, lse = mla.sparse_decode(q, pool, indices, softmax_scale=1.0, kv_dtype=variant.kv_dtype)
    assert_close("out", out[:, 0], rows[chosen][..., : variant.form.d_v], EXACT)
    assert_close("lse", lse[..., 0], torch.full((3, 17), SHARP), SINGLE_LSE)


@pytest.mark.op("sparse_prefill")
def test_sparse_prefill_selects_one_key(variant: Row) -> None:
    import mla_kernels as mla

    rows = integers(variant, 8, 61)
    chosen = torch.randint(61, (4, 17), generator=generator(9))
    q = one_hot(variant, rows, chosen)
    indices = torch.randperm(61, generator=generator(10)).int().repeat(4, 1).to(variant.device)
    out, max_logits, lse = mla.sparse_prefill(q, stored(variant, rows, 1)[:, 0], indices, softmax_scale=1.0)
    assert_close("out", out, rows[chosen][..., : variant.form.d_v], EXACT)
    assert_close("max_logits", max_logits, torch.full((4, 17), SHARP), EXACT)
    assert_close("lse", lse, torch.full((4, 17), SHARP), SINGLE_LSE)


@pytest.mark.op("decode", where=lambda row: row.kv_dtype in ("e4m3", "fp8_ds_mla"))
@pytest.mark.parametrize("codes", [range(127), range(128, 255)], ids=["positive", "negative"])
def test_every_finite_code_comes_out_of_decode(variant: Row, codes: range) -> None:
    """A request of one token returns its latent: each code, exactly (fp16 and bf16 hold every one)."""
    import mla_kernels as mla

    form = variant.form
    raw = torch.tensor([*codes], dtype=torch.uint8).repeat(5)[: form.latent]
    if variant.kv_dtype == "fp8_ds_mla":
        row = torch.cat([raw, torch.ones(4).view(torch.uint8), torch.zeros(128, dtype=torch.uint8)])
    else:
        row = torch.cat([raw, torch.zeros(form.rope, dtype=torch.uint8)])
    q = torch.full((1, 1, 3, form.d_qk), 0.01, dtype=memory.DTYPES[variant.q_dtype], device=variant.device)
    one = torch.ones(1, dtype=torch.int32, device=variant.device)
    out, _ = mla.decode(q, row.view(1, 1, -1).to(variant.device), None, one, softmax_scale=0.01)
    want = raw.view(torch.float8_e4m3fn).float()
    assert_close("out", out[0, 0], want.expand(3, -1), EXACT)


@pytest.mark.op("decode")
@pytest.mark.parametrize("code", [0x7F, 0xFF])
@pytest.mark.parametrize("column", [0, 127, 128, 511])
def test_nan_stays_in_its_request(variant: Row, code: int, column: int) -> None:
    out, lse = decode_beside_nan(variant, code, column)
    assert torch.isnan(out[1, 2]).all()
    assert torch.isnan(lse[1, :, 2]).all()
    assert torch.isfinite(lse[1, :, :2]).all()
    assert torch.isfinite(out[0]).all()
    assert torch.isfinite(lse[0]).all()


def decode_beside_nan(variant: Row, code: int, column: int) -> tuple[Tensor, Tensor]:
    """Three tokens of two requests of 20 keys; the last key of the second holds a NaN, and only token 2 sees it."""
    import mla_kernels as mla

    pool, column = stored(variant, integers(variant, 11, 40), 20), min(column, variant.form.latent - 1)
    if pool.element_size() == 1:
        pool.view(torch.uint8)[1, 19, column] = code
    else:
        pool[1, 19, column] = torch.nan
    q = torch.ones(2, 3, 4, variant.form.d_qk, dtype=memory.DTYPES[variant.q_dtype], device=variant.device)
    lens = torch.tensor([20, 20], dtype=torch.int32, device=variant.device)
    out, lse = mla.decode(q, pool, None, lens, softmax_scale=0.01)
    return out, lse
