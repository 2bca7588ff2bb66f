"""gather_kv beside the CPU payload's: pools, what is read of them, and a launch over changing contents."""

from __future__ import annotations

import functools
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.formats import HEAD_DIM, LATENT, ROPE
from torch import Tensor

from tests.gpu.support.launches import Case
from tests.gpu.support.tensors import guarded, padded
from tests.support import memory
from tests.support.caches import Packed, encode, write_rows
from tests.support.compare import assert_same_bytes
from tests.support.problems import generator, random, unchanged

TYPES = [("fp16", "fp16"), ("bf16", "bf16")]
TYPES += [(kv, out) for kv in ("e4m3", "fp8_ds_mla") for out in ("fp32", "fp16", "bf16")]
"""Every cache, with every type that its rows can be read in."""


def kernel(arch: str, kv_dtype: str, out_dtype: str) -> Any:
    """The kernel of an arch for these types."""
    return mla.lookup(op="gather_kv", arch=arch, kv_dtype=kv_dtype, out_dtype=out_dtype)


def scale_of(kv_dtype: str) -> float:
    """The scale of a cache that has one for all of its elements, otherwise 1."""
    return 0.0137 if kv_dtype == "e4m3" else 1.0


def stored(kv_dtype: str, n: int, seed: int = 0) -> Tensor:
    """Random rows as a cache stores them."""
    return encode(random(generator(seed), n, HEAD_DIM), kv_dtype, 0.0137, exact_scales=False)


def pool(kv_dtype: str, slots: Tensor, rows: Tensor, pages: tuple[int, int]) -> Tensor:
    """A cache on the CPU that is NaN but for the given rows."""
    result = memory.poisoned((*pages, memory.width_of(kv_dtype)), memory.DTYPES[kv_dtype])
    write_rows(result, slots, rows)
    return result


def check(
    arch: str, types: tuple[str, str], cache: Packed, indices: Tensor, *, pad: int = 16, kv_scale: float | None = None
) -> None:
    """Gather into one tensor, and into latent and rope apart, and compare both with what the CPU's kernel gives."""
    kv_dtype, out_dtype = types
    scale = scale_of(kv_dtype) if kv_scale is None else kv_scale
    parts = cache if isinstance(cache, tuple) else (cache,)
    num_slots = parts[0].shape[0] * parts[0].shape[1]
    present = indices.masked_fill((indices < 0) | (indices >= num_slots), -1)
    want = kernel("cpu", kv_dtype, out_dtype)(cache, present, kv_scale=scale)
    on_gpu = tuple(padded(part, pad) for part in parts)
    given: Packed = on_gpu if len(on_gpu) == 2 else on_gpu[0]
    whole, latent, rope = (guarded((len(indices), width), out_dtype, pad) for width in (HEAD_DIM, LATENT, ROPE))
    gather, slots = kernel(arch, kv_dtype, out_dtype), indices.cuda()
    with unchanged(*on_gpu, slots):
        gather(given, slots, kv_scale=scale, out=whole.view)
        gather(given, slots, kv_scale=scale, out=(latent.view, rope.view))
    for name, out in (("out", whole), ("latent", latent), ("rope", rope)):
        out.assert_guards(name)
    assert_same_bytes("out", whole.view.cpu(), want)
    assert_same_bytes("latent and rope", torch.cat([latent.view, rope.view], -1).cpu(), want)
    absent = present < 0
    assert not whole.view.cpu()[absent].view(torch.uint8).any(), "zeros where there is no row"


def case(arch: str, kv_dtype: str, out_dtype: str, device: str = "cuda") -> Case:
    """A gather of 70 rows from 80 slots, where some indices are negative."""
    out = torch.empty(70, HEAD_DIM, dtype=memory.DTYPES[out_dtype], device=device)
    scale = scale_of(kv_dtype)

    def fresh(seed: int) -> tuple[Tensor, Tensor]:
        cache = pool(kv_dtype, torch.arange(80), stored(kv_dtype, 80, seed), (5, 16))
        return cache, torch.randperm(80, generator=generator(seed))[:70].int() - 2

    def want(cache: Tensor, indices: Tensor) -> Tensor:
        return kernel("cpu", kv_dtype, out_dtype)(cache, indices, kv_scale=scale)

    inputs = tuple(tensor.to(device) for tensor in fresh(0))
    run = functools.partial(kernel(arch, kv_dtype, out_dtype), *inputs, kv_scale=scale, out=out)
    return Case(inputs, fresh, run, out, want)
