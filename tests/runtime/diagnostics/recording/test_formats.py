"""Calls over every format of caches are replayed to the same bits, and are right by the reference."""

from __future__ import annotations

import json

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.diagnostics import record
from mla_kernels.diagnostics.cli import main
from mla_kernels.formats import FORMATS, CacheFormat, page_bytes

from tests.runtime.small_decode import SCALE
from tests.support.memory import DTYPES

PAGE, PAGES, TOKENS = 16, 8, 40
UNWRITTEN = "mxfp4_ds_v4"
"""The format that engines write themselves: no kernel stores or gathers it."""


def cache_of(form: CacheFormat, apart: int = 1) -> torch.Tensor:
    """An empty cache; its pages are padded where the format asks and lie as many of their sizes ``apart``."""
    if not form.is_bytes:
        return torch.zeros(PAGES, PAGE, form.d_qk, dtype=DTYPES[form.name])
    pages = torch.zeros(PAGES, apart * page_bytes(form, PAGE), dtype=torch.uint8)
    return pages[:, : PAGE * form.token_bytes].unflatten(1, (PAGE, form.token_bytes))


def calls(form: CacheFormat, apart: int = 1) -> None:
    """Store rows, read them, and attend to some."""
    torch.manual_seed(1)
    own = DTYPES[form.name] if form.name in ("fp32", "fp16") else torch.bfloat16
    rows, cache = torch.randn(TOKENS, form.d_qk).to(own), cache_of(form, apart)
    rope = rows[:, form.latent :] if form.rope else None
    scale = torch.tensor([0.0137]) if form.name == "e4m3" else None
    kv_scale = 1.0 if scale is None else float(scale)
    where, slots = torch.arange(TOKENS) + 20, torch.arange(-1, 60, dtype=torch.int32)
    if form.name == UNWRITTEN:
        reference.store_kv(rows[:, : form.latent], rope, cache, where, kv_dtype=form.name)
    else:
        mla.store_kv(rows[:, : form.latent], rope, cache, where, scale=scale, kv_dtype=form.name)
        mla.gather_kv(cache, slots, kv_dtype=form.name, out_dtype=own, kv_scale=kv_scale)
    q, chosen = torch.randn(2, 1, 4, form.d_qk).to(own), slots[20:50].expand(2, 1, 30)
    mla.sparse_decode(q, cache, chosen, kv_dtype=form.name, kv_scale=kv_scale, softmax_scale=SCALE)


@pytest.mark.parametrize("apart", [1, 9])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.name}-{form.d_qk}")
def test_a_format(form, apart, tmp_path, capsys):
    """Also of pages so far apart that a replay brings them together."""
    with record(tmp_path) as files:
        calls(form, apart)
    assert len(files) == (1 if form.name == UNWRITTEN else 3)
    first, *others = map(str, files)
    assert main(["replay", first, "--json", *others]) == 0
    for told in json.loads(capsys.readouterr().out):
        assert told["replayed"]["same_bits"]
        assert {each["wrong"] for each in told["recorded_results"]} == {0}
