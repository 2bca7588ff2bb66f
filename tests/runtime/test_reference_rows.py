"""The rows of caches in plain torch: what is written is read again, in all of today's formats and the next ones."""

from __future__ import annotations

import math

import pytest
import torch
from mla_kernels import formats, reference, reference_rows
from mla_kernels.formats import CacheFormat

from codegen.render.formats import fields
from tests.support.formats import with_next
from tests.support.problems import generator, random

ALL = [CacheFormat(**fields(row)) for row in with_next().rows]
EPSILON = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-9, "e4m3": 2**-4, "e2m1": 2**-2}
TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
PAGE = 5


@pytest.fixture(params=ALL, ids=lambda form: f"{form.name}-{form.d_qk}-{form.d_v}")
def form(request, monkeypatch) -> CacheFormat:
    """One format, where it is the only one whose rows have its width."""
    row = request.param
    key = ("uint8", row.token_bytes) if row.is_bytes else (row.name, row.d_qk)
    monkeypatch.setattr(formats, "_ROWS", {key: (row,)})
    return row


def pool(form: CacheFormat, pages: int) -> torch.Tensor:
    """A pool of 0xff bytes, its pages padded as the format asks."""
    width = form.token_bytes if form.is_bytes else form.d_qk
    if not form.is_bytes:
        return torch.full((pages, PAGE, width), math.nan).to(TORCH[form.name])
    page_bytes = -(-PAGE * form.token_bytes // form.page_multiple) * form.page_multiple
    whole = torch.full((pages, page_bytes), 0xFF, dtype=torch.uint8)
    return (
        whole[:, : PAGE * form.token_bytes].view(pages, PAGE, width)
        if form.page_multiple == 1
        else whole.as_strided((pages, PAGE, width), (page_bytes, width, 1))
    )


def store(form: CacheFormat, rows: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> float:
    """Write rows in the type that the format stores without scales, or else in float32; the scale of the cache."""
    rows = rows.to(TORCH[form.name]) if form.scale_place == "none" else rows
    scale = torch.tensor([0.02]) if form.scale_place == "tensor" else None
    reference.store_kv(rows[:, : form.latent], rows[:, form.latent :], cache, slots, scale)
    return 1.0 if scale is None else float(scale)


def test_what_is_written_is_read_again(form) -> None:
    source = generator(1)
    rows, cache = random(source, 9, form.d_qk), pool(form, 4)
    slots = torch.randperm(4 * PAGE, generator=source)[:9]
    kv_scale = store(form, rows, cache, slots)
    got = reference.gather_kv(cache, slots, out_dtype="fp32", kv_scale=kv_scale)
    assert reference_rows.format_of(cache) == form
    for part, columns in (("latent", slice(0, form.latent)), ("rope", slice(form.latent, None))):
        largest = rows[:, columns].abs().amax() if rows[:, columns].numel() else torch.tensor(1.0)
        within = 2 * EPSILON[form.latent_type if part == "latent" else form.rope_type] * largest
        assert (got[:, columns] - rows[:, columns]).abs().le(within).all(), part


def test_a_token_touches_its_own_bytes_only(form) -> None:
    cache = pool(form, 2)
    before = cache.view(torch.uint8).clone()
    store(form, torch.ones(1, form.d_qk), cache, torch.tensor([PAGE + 2]))
    changed = (cache.view(torch.uint8) != before).flatten(1).nonzero()
    assert set(changed[:, 0].tolist()) == {1}
    row, scales = form.row_bytes, form.scale_bytes if form.scale_place == "page" else 0
    own = {*range(2 * row, 3 * row), *range(PAGE * row + 2 * scales, PAGE * row + 3 * scales)}
    assert set(changed[:, 1].tolist()) <= own


def test_the_value_is_the_leading_columns(form) -> None:
    source = generator(2)
    rows, cache = random(source, PAGE, form.d_qk), pool(form, 1)
    kv_scale = store(form, rows, cache, torch.arange(PAGE))
    q = torch.zeros(1, 1, 1, form.d_qk)
    out, _ = reference.decode(q, cache, seq_lens=torch.tensor([PAGE]), softmax_scale=1.0, kv_scale=kv_scale)
    want = reference.gather_kv(cache, torch.arange(PAGE), out_dtype="fp32", kv_scale=kv_scale).mean(0)
    assert out.shape[-1] == form.d_v
    torch.testing.assert_close(out[0, 0, 0], want[: form.d_v])


def test_four_bits_by_hand() -> None:
    codes = torch.tensor([[0x21, 0xF7]], dtype=torch.uint8)  # 0.5, 1, 6 and -6, the low half first
    assert reference_rows.decoded(codes, "e2m1").tolist() == [[0.5, 1.0, 6.0, -6.0]]
    assert reference_rows.encoded(torch.tensor([[0.4, 1.1, 7.0, -100.0]]), "e2m1").tolist() == codes.tolist()


def test_scales_of_eight_bits_are_powers_of_two_that_no_element_exceeds() -> None:
    form = next(form for form in ALL if form.scale_type == "e8m0" and form.scale_place == "page")
    latent = random(generator(3), 2, form.latent, deviation=30.0)
    codes, scales = reference_rows.quantised(latent, form)
    assert scales.shape == (2, form.scale_bytes)
    factors = reference_rows.decoded(scales, "e8m0")[:, : form.latent // form.scale_group]
    assert torch.equal(factors.log2(), factors.log2().round())
    assert reference_rows.decoded(codes, "e4m3").isfinite().all()
    assert (448 * factors >= latent.reshape(2, -1, form.scale_group).abs().amax(-1)).all()


def test_rows_of_no_format_are_refused() -> None:
    with pytest.raises(ValueError, match="no format of caches has rows of 577 elements"):
        reference_rows.format_of(torch.zeros(1, 1, 577))
