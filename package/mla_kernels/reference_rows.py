"""Rows of a KV cache in plain torch: what every format stores, written and read as its row of the table says."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from mla_kernels.formats import CacheFormat, formats_of_rows

Packed = Tensor | tuple[Tensor, Tensor]
"""Rows in one tensor, or latent and rope in two."""

_TYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e8m0": torch.float8_e8m0fnu,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_MAX = {"e4m3": 448.0, "e2m1": 6.0}
_FLOAT32 = torch.finfo(torch.float32)
_POWERS_OF_TWO = (2.0**-13, 2.0**127)
"""Scales that are powers of two lie between these: vLLM and FlashMLA round ``max(amax / 448, 1e-4)`` up."""
_LEAST_E4M3 = 2.0**-9
"""The least scale of e4m3, above 0."""
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitude of each code of 4 bits; the highest bit is the sign, and two codes share a byte, the low half first."""


def format_of(kv_cache: Packed, kv_dtype: str | None = None) -> CacheFormat:
    """The format of a cache, by its element type and the width of its rows; float64, for tests, is taken for fp32.

    ``kv_dtype`` tells formats apart that have rows of as many bytes.

    Raises
    ------
    ValueError
        No format has such rows, or several have.
    """
    parts = kv_cache if isinstance(kv_cache, tuple) else (kv_cache,)
    width = sum(part.shape[-1] for part in parts)
    in_bytes = parts[0].element_size() == 1
    found = formats_of_rows("uint8", width) if in_bytes and len(parts) == 1 else ()
    found = found or formats_of_rows("e4m3" if in_bytes else _NAMES.get(parts[0].dtype, "fp32"), width)
    if len(found) > 1 and kv_dtype is not None:
        found = tuple(form for form in found if form.name == kv_dtype)
    if not found:
        raise ValueError(f"no format of caches has rows of {width} elements of {parts[0].dtype}")
    if len(found) > 1:
        raise ValueError(f"rows of {width} bytes are of {' or '.join(form.name for form in found)}: kv_dtype tells")
    return found[0]


def slots_of(kv_cache: Packed, block_table: Tensor | None, request: int, length: int) -> Tensor:
    """The global slots of a request's tokens, in order; without a table, the request is a page."""
    pages = kv_cache[0] if isinstance(kv_cache, tuple) else kv_cache
    page_size = pages.shape[1]
    position = torch.arange(length, device=pages.device)
    page = torch.full_like(position, request)
    if block_table is not None:
        page = block_table[request].long()[position // page_size]
    return page * page_size + position % page_size


def read_rows(
    kv_cache: Packed, slots: Tensor, kv_scale: float, dtype: torch.dtype, kv_dtype: str | None = None
) -> Tensor:
    """The dequantised rows [n, d_qk] at global slots [n]."""
    form, slots = format_of(kv_cache, kv_dtype), slots.long()
    if isinstance(kv_cache, tuple) or not form.is_bytes:
        parts = kv_cache if isinstance(kv_cache, tuple) else (kv_cache,)
        stored = [_bytes_or_elements(part)[slots // part.shape[1], slots % part.shape[1]] for part in parts]
        typed = [part.view(_TYPES[form.latent_type]) if part.dtype == torch.uint8 else part for part in stored]
        rows = torch.cat(typed, -1).to(dtype)
        return rows * kv_scale if form.scale_place == "tensor" else rows
    row, scales = (pool[index] for pool, index in _places(kv_cache.view(torch.uint8), slots, form))
    latent = decoded(row[:, : form.scale_offset or form.rope_offset], form.latent_type).to(dtype)[:, : form.latent]
    rope = decoded(row[:, form.rope_offset : form.rope_offset + rope_bytes(form)], form.rope_type).to(dtype)
    groups, apart = form.latent // form.scale_group, form.scale_interleave
    factors = decoded(scales, form.scale_type).to(dtype)[:, :groups]
    if apart > 1:
        factors = factors.reshape(-1, apart, groups // apart).transpose(1, 2).flatten(1)
    return torch.cat([latent * factors.repeat_interleave(form.scale_group, -1), rope], -1)


def write_rows(
    kv_cache: Packed,
    slots: Tensor,
    latent: Tensor,
    rope: Tensor,
    scale: Tensor | None,
    *,
    power_of_two_scales: bool = False,
    kv_dtype: str | None = None,
) -> None:
    """Write tokens to global slots [n], quantised as the format asks; ``scale`` is that of the whole cache."""
    form = format_of(kv_cache, kv_dtype)
    if isinstance(kv_cache, tuple) or not form.is_bytes:
        whole = torch.cat([latent, rope], -1)
        values = ((latent, rope), kv_cache) if isinstance(kv_cache, tuple) else ((whole,), (kv_cache,))
        for part, pool in zip(*values, strict=True):
            stored = part if scale is None else encoded(part.float() / scale.float(), form.latent_type)
            _bytes_or_elements(pool)[slots // pool.shape[1], slots % pool.shape[1]] = stored
        return
    codes, scales = quantised(latent, form, power_of_two_scales=power_of_two_scales)
    row_place, scale_place = _places(kv_cache.view(torch.uint8), slots, form)
    row = torch.cat([codes, encoded(rope, form.rope_type)], -1)
    if form.scale_place == "row":
        row = torch.cat([row[:, : form.scale_offset], scales, row[:, form.scale_offset :]], -1)
    row_place[0][row_place[1]] = row
    if form.scale_place == "page":
        scale_place[0][scale_place[1]] = scales


def rope_bytes(form: CacheFormat) -> int:
    """The bytes of the rope part of a token."""
    return form.rope * _TYPES[form.rope_type].itemsize if form.rope else 0


def quantised(latent: Tensor, form: CacheFormat, *, power_of_two_scales: bool = False) -> tuple[Tensor, Tensor]:
    """Bytes of the elements and of the scales of tokens [n, latent]: a scale is the largest magnitude of its group."""
    groups = latent.float().reshape(len(latent), latent.shape[1] // form.scale_group, form.scale_group)
    scales = groups.abs().nan_to_num(0, posinf=torch.inf).amax(-1, keepdim=True) / _MAX[form.latent_type]
    if power_of_two_scales or form.scale_type == "e8m0":
        bits = scales.clamp(*_POWERS_OF_TWO).view(torch.int32)
        scales = ((bits + 0x7FFFFF) & -0x800000).view(torch.float32)  # the mantissa rounds up into the exponent
    elif form.scale_type == "e4m3":
        scales = scales.clamp(_LEAST_E4M3, _MAX["e4m3"]).to(_TYPES["e4m3"]).float()
    else:
        scales = scales.clamp(_FLOAT32.tiny, _FLOAT32.max)
    if form.latent_type == "e2m1":  # an element cannot be NaN, but the scale of its group can
        lost = groups.isnan().any(-1, keepdim=True)
        scales, groups = scales.masked_fill(lost, torch.nan), groups.masked_fill(lost, 0.0)
    stored = encoded(scales.flatten(1), form.scale_type)
    if form.scale_interleave > 1:  # a scale has one byte
        apart = form.scale_interleave
        stored = stored.reshape(-1, stored.shape[1] // apart, apart).transpose(1, 2).flatten(1)
    codes = encoded((groups / scales).flatten(1), form.latent_type)
    padding = stored.new_zeros(len(latent), form.scale_bytes - stored.shape[1])
    return codes, torch.cat([stored, padding], -1)


def decoded(stored: Tensor, element: str) -> Tensor:
    """Bytes [n, bytes] as float32 [n, columns]."""
    if element != "e2m1":
        return stored.contiguous().view(_TYPES[element]).float()
    codes = torch.stack([stored & 15, stored >> 4], -1).flatten(1)
    magnitudes = torch.tensor(_E2M1, dtype=torch.float32, device=stored.device)[(codes & 7).long()]
    return torch.where(codes >= 8, -magnitudes, magnitudes)


def encoded(values: Tensor, element: str) -> Tensor:
    """Float32 [n, columns] as bytes [n, bytes], rounded to the nearest element; what is too large saturates.

    Of two that are as near, it is the even one. An ``e2m1`` of NaN is 0.
    """
    if element != "e2m1":
        limit = _MAX.get(element, torch.inf)
        return values.clamp(-limit, limit).to(_TYPES[element]).contiguous().view(torch.uint8)
    magnitudes = values.abs().nan_to_num(0)
    halves = [(low + high) / 2 for low, high in pairwise(_E2M1)]
    middles = torch.tensor(halves, dtype=torch.float32, device=values.device)
    below, above = torch.bucketize(magnitudes, middles), torch.bucketize(magnitudes, middles, right=True)
    codes = torch.where(below % 2 == 0, below, above) + 8 * (values.signbit() & ~values.isnan())
    return (codes[:, ::2] | codes[:, 1::2] << 4).byte()


def _bytes_or_elements(pool: Tensor) -> Tensor:
    """A pool as torch can index it: elements of one byte as bytes."""
    return pool.view(torch.uint8) if pool.element_size() == 1 else pool


_Place = tuple[Tensor, tuple[Tensor, ...]]


def _places(pool: Tensor, slots: Tensor, form: CacheFormat) -> tuple[_Place, _Place]:
    """Where the rows and the scales of tokens are: a view of the pool, and indices into it."""
    page, token = slots // pool.shape[1], slots % pool.shape[1]
    if form.scale_place != "page":
        scales = slice(form.scale_offset, form.scale_offset + form.scale_bytes)
        return (pool, (page, token)), (pool[..., scales], (page, token))
    pages = pool.flatten(1)  # no copy, because the bytes of a page follow one another
    first = pool.shape[1] * form.row_bytes
    row = token[:, None] * form.row_bytes + torch.arange(form.row_bytes, device=pool.device)
    scale = first + token[:, None] * form.scale_bytes + torch.arange(form.scale_bytes, device=pool.device)
    return (pages, (page[:, None], row)), (pages, (page[:, None], scale))
