"""Caches as tests make them: rows in bytes, at their slots, and poison everywhere else."""

from __future__ import annotations

import torch
from mla_kernels.formats import CacheFormat, format_named
from mla_kernels.reference_rows import encoded, quantised
from torch import Tensor

from . import memory
from .compare import as_bytes
from .rows import Row

Packed = Tensor | tuple[Tensor, Tensor]


def generator(seed: int) -> torch.Generator:
    """Return a seeded source of random numbers."""
    return torch.Generator().manual_seed(seed)


def random(source: torch.Generator, *shape: int, deviation: float = 1.0) -> Tensor:
    """Return normally distributed float32 numbers."""
    return torch.randn(*shape, generator=source) * deviation


def encode(values: Tensor, kv_dtype: str | CacheFormat, kv_scale: float = 1.0, *, exact_scales: bool = True) -> Tensor:
    """Encode rows [n, d_qk] as a cache stores them; ``exact_scales`` are powers of two, which 16-bit floats hold.

    Scales that lie elsewhere in a page follow their row.
    """
    form = format_named(kv_dtype) if isinstance(kv_dtype, str) else kv_dtype
    if form.scale_place == "tensor":
        return (values / kv_scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    if not form.is_bytes:
        return values.to(memory.DTYPES[form.name])
    rope = encoded(values[:, form.latent :], form.rope_type)
    if form.scale_type != "fp32":
        codes, scales = quantised(values[:, : form.latent], form)
        scales_last = form.scale_place == "page" or form.scale_offset > form.rope_offset
        return torch.cat([codes, rope, scales] if scales_last else [codes, scales, rope], -1)
    tiles = values[:, : form.latent].reshape(-1, form.latent // form.scale_group, form.scale_group)
    scale = tiles.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    if exact_scales:
        scale = torch.exp2(scale.log2().ceil())
    codes = (tiles / scale).clamp(-448, 448).to(torch.float8_e4m3fn).flatten(1)
    return torch.cat([as_bytes(codes), as_bytes(scale.flatten(1)), rope], -1)


def write_rows(pool: Tensor, slots: Tensor, stored: Tensor, form: CacheFormat | None = None) -> None:
    """Put stored rows [n, width] into global slots [n] of a pool [pages, page_size, width]."""
    if pool.element_size() == 1:
        pool, stored = pool.view(torch.uint8), stored.view(torch.uint8)
    slots, stored = slots.long(), stored.to(pool.device)
    if form is None or form.scale_place != "page":
        pool[slots // pool.shape[1], slots % pool.shape[1]] = stored
        return
    size = pool.shape[1]
    parts = pool.view(len(pool), -1).split([size * form.row_bytes, size * form.scale_bytes], 1)
    for part, own in zip(parts, stored.split([form.row_bytes, form.scale_bytes], 1), strict=True):
        part.unflatten(1, (size, -1))[slots // size, slots % size] = own


def poisoned_pool(
    stored: Tensor,
    slots: Tensor,
    num_pages: int,
    page_size: int,
    *,
    strided: bool,
    split: bool,
    device: str,
    finite: bool = False,
    form: CacheFormat | None = None,
) -> Packed:
    """Make a pool of NaN that holds ``stored`` rows at ``slots``; ``split`` gives latent and rope their own tensors.

    Pages of a format that pads them are always apart.
    """
    form = form or format_named("bf16")
    if form.page_multiple > 1:
        pages = memory.guarded_pages(form, num_pages, page_size, device).view
        write_rows(pages, slots, stored, form)
        return pages
    parts = stored.split([form.latent, form.rope], -1) if split else (stored,)
    pools = []
    for part in parts:
        pool = memory.poisoned(
            (num_pages, page_size, part.shape[-1]), part.dtype, device, strided=strided, finite=finite
        )
        write_rows(pool, slots, part)
        pools.append(pool)
    return (pools[0], pools[1]) if split else pools[0]


def pool(variant: Row, num_pages: int, page_size: int) -> memory.Guarded:
    """Make a poisoned cache of the variant's format in a poisoned border."""
    return memory.guarded_pool(variant.form, num_pages, page_size, variant.device)


def tokens(variant: Row, n: int, seed: int = 0, deviation: float = 1.0) -> tuple[Tensor, Tensor]:
    """Make the latents and the rope parts of new tokens."""
    source, dtype, form = generator(seed), memory.DTYPES[variant.in_dtype], variant.form
    latent, rope = (random(source, n, width, deviation=deviation) for width in (form.latent, form.rope))
    return latent.to(dtype).to(variant.device), rope.to(dtype).to(variant.device)


def has_pair(variant: Row) -> bool:
    """Whether latent and rope may be tensors of their own."""
    return not variant.form.is_bytes and variant.form.rope > 0


def scale_of(variant: Row, value: float = 0.0137) -> Tensor | None:
    """Return the scale of a cache that has one for all of its rows."""
    return torch.tensor([value], device=variant.device) if variant.kv_dtype == "e4m3" else None
