"""store_kv beside the CPU payload's: what is stored, where, and a launch over changing contents."""

from __future__ import annotations

import functools
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.formats import HEAD_DIM, LATENT
from torch import Tensor

from tests.gpu.support.launches import Case
from tests.gpu.support.tensors import guarded, padded
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import generator, random, unchanged

TYPES = [(i, kv) for i in ("fp16", "bf16") for kv in (i, "e4m3", "fp8_ds_mla")]
"""Every input type, with every cache that it can be stored in."""


def kernel(arch: str, in_dtype: str, kv_dtype: str) -> Any:
    """The kernel of an arch for these types."""
    return mla.lookup(op="store_kv", arch=arch, in_dtype=in_dtype, kv_dtype=kv_dtype)


def scale_of(kv_dtype: str, value: float = 0.0137) -> Tensor | None:
    """The scale that the cache needs, or None."""
    return torch.tensor([value]) if kv_dtype == "e4m3" else None


def on_gpu(tensor: Tensor | None) -> Tensor | None:
    """A tensor on the GPU, where there is one."""
    return None if tensor is None else tensor.cuda()


def tokens(in_dtype: str, n: int, seed: int = 0, deviation: float = 1.0) -> tuple[Tensor, Tensor]:
    """Latent and rope parts of random tokens, views of the same rows."""
    source, dtype = generator(seed), memory.DTYPES[in_dtype]
    values = random(source, n, HEAD_DIM, deviation=deviation).to(dtype)
    return values[:, :LATENT], values[:, LATENT:]


def present(slots: Tensor, num_slots: int) -> Tensor:
    """The same slots as the CPU payload accepts them, -1 for every slot that does not exist."""
    return slots.masked_fill((slots < 0) | (slots >= num_slots), -1)


def check(
    arch: str,
    types: tuple[str, str],
    tokens: tuple[Tensor, Tensor],
    slots: Tensor,
    pages: tuple[int, int],
    *,
    scale: Tensor | None = None,
    pad: int = 16,
    powers: bool = False,
) -> None:
    """Store on the GPU and on the CPU, and compare the whole buffers, guard zones included."""
    in_dtype, kv_dtype = types
    latent, rope = tokens
    scale = scale_of(kv_dtype) if scale is None else scale
    got = guarded((*pages, memory.width_of(kv_dtype)), kv_dtype, pad)
    want = guarded((*pages, memory.width_of(kv_dtype)), kv_dtype, pad, "cpu")
    inputs = padded(latent, pad), padded(rope, pad), slots.cuda(), on_gpu(scale)
    with unchanged(*inputs):
        kernel(arch, in_dtype, kv_dtype)(*inputs[:2], got.view, inputs[2], scale=inputs[3], power_of_two_scales=powers)
    cpu, slots = kernel("cpu", in_dtype, kv_dtype), present(slots, pages[0] * pages[1])
    cpu(latent, rope, want.view, slots, scale=scale, power_of_two_scales=powers)
    assert_same_bytes("cache and its surroundings", got.buffer, want.buffer)


def case(arch: str, in_dtype: str, kv_dtype: str, device: str = "cuda") -> Case:
    """A store of 70 tokens, two of them nowhere, into 80 slots."""
    shape = (5, 16, memory.width_of(kv_dtype))
    cache = torch.empty(shape, dtype=memory.DTYPES[kv_dtype], device=device)

    def fresh(seed: int) -> tuple[Tensor, ...]:
        slots = torch.randperm(80, generator=generator(seed))[:70] - 2
        scale = scale_of(kv_dtype, 0.01 + seed)
        return (
            *(part.contiguous() for part in tokens(in_dtype, 70, seed)),
            slots,
            *(() if scale is None else (scale,)),
        )

    def want(latent: Tensor, rope: Tensor, slots: Tensor, scale: Tensor | None = None) -> Tensor:
        result = memory.garbage(cache.numel() * cache.element_size()).view(cache.dtype).view(shape)
        kernel("cpu", in_dtype, kv_dtype)(latent, rope, result, slots, scale=scale)
        return result

    inputs = tuple(tensor.to(device) for tensor in fresh(0))
    latent, rope, slots, *scale = inputs
    store = kernel(arch, in_dtype, kv_dtype)
    run = functools.partial(store, latent, rope, cache, slots, scale=scale[0] if scale else None)
    return Case(inputs, fresh, run, cache, want)
