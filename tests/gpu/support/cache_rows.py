"""store_kv and gather_kv over rows of 512 columns, and over rows of four bits, beside the CPU payload's."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.formats import CacheFormat, format_named
from torch import Tensor

from tests.gpu.support.store_kv import present
from tests.gpu.support.tensors import padded
from tests.support import memory
from tests.support.caches import encode, poisoned_pool
from tests.support.compare import assert_same_bytes
from tests.support.problems import generator, random, unchanged

Pages = tuple[int, int]

NAMES = ("fp16", "bf16", "e4m3", "fp8_ds_mla", "fp8_ds_v4", "fp8_ds_v41", "fp4_ds_v41", "mxfp4_ds_v4")
FORMS = (*(format_named(name, 512) for name in NAMES), format_named("nvfp4_ds_mla"))
QUANTISED = ("e4m3", "e2m1")
UNWRITTEN = ("mxfp4_ds_v4",)
"""Formats that nobody here writes."""
STORES = [
    (in_dtype, form)
    for in_dtype in ("fp16", "bf16")
    for form in FORMS
    if form.name == in_dtype or (form.latent_type in QUANTISED and form.name not in UNWRITTEN)
]
GATHERS = [
    (form, out_dtype)
    for form in FORMS
    for out_dtype in ("fp32", "fp16", "bf16")
    if form.name == out_dtype or form.latent_type in QUANTISED
]
SCALE = 0.0137


def kernel(op: str, arch: str, form: CacheFormat, **dtypes: str) -> Any:
    """The kernel of an arch for a cache format."""
    return mla.lookup(op=op, arch=arch, kv_dtype=form.name, d_qk=form.d_qk, **dtypes)


def check_store(
    arch: str, in_dtype: str, form: CacheFormat, values: Tensor, slots: Tensor, pages: Pages, *,
    pad: int = 16, powers: bool = False,
) -> None:  # fmt: skip
    """Store on the GPU and on the CPU, and compare the whole buffers, guard zones included."""
    values = values.to(memory.DTYPES[in_dtype])
    parts = values.split([form.latent, form.rope], -1)
    latent, rope = parts if form.rope else (parts[0], None)
    scale = torch.tensor([SCALE]) if form.scale_place == "tensor" else None
    got, want = (memory.guarded_pool(form, *pages, device, pad=pad) for device in ("cuda", "cpu"))
    inputs = padded(latent, pad), None if rope is None else padded(rope, pad), slots.cuda()
    given: Any = {"scale": None if scale is None else scale.cuda(), "power_of_two_scales": powers}
    with unchanged(*(each for each in inputs if each is not None)):
        kernel("store_kv", arch, form, in_dtype=in_dtype)(*inputs[:2], got.view, inputs[2], **given)
    cpu = kernel("store_kv", "cpu", form, in_dtype=in_dtype)
    cpu(latent, rope, want.view, present(slots, pages[0] * pages[1]), **{**given, "scale": scale})
    assert_same_bytes("cache and its surroundings", got.buffer, want.buffer)


def check_gather(
    arch: str, form: CacheFormat, out_dtype: str, slots: Tensor, indices: Tensor, pages: Pages, *, pad: int = 16
) -> None:
    """Gather into one tensor, and into latent and rope apart, and compare both with what the CPU's kernel gives."""
    rows = encode(random(generator(len(slots)), len(slots), form.d_qk), form, SCALE, exact_scales=False)
    on_gpu, on_cpu = (
        poisoned_pool(rows, slots, *pages, strided=pad != 16, split=False, device=device, form=form)
        for device in ("cuda", "cpu")
    )
    scale = SCALE if form.scale_place == "tensor" else 1.0
    want = kernel("gather_kv", "cpu", form, out_dtype=out_dtype)(
        on_cpu, present(indices, pages[0] * pages[1]), kv_scale=scale
    )
    dtype, gather = memory.DTYPES[out_dtype], kernel("gather_kv", arch, form, out_dtype=out_dtype)
    widths = [(form.d_qk,)] + [(form.latent, form.rope)] * (form.rope > 0)
    for given in widths:
        outs = [memory.guarded((len(indices), width), dtype, "cuda", pad=pad) for width in given]
        views = tuple(out.view for out in outs)
        gather(on_gpu, indices.cuda(), kv_scale=scale, out=views if len(views) == 2 else views[0])
        for out in outs:
            out.assert_guards("out")
        assert_same_bytes("rows", torch.cat(views, -1).cpu(), want)
