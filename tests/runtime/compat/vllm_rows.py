"""Rows of DeepSeek V4 and V4.1 as they lie in a cache, byte by byte, from their layouts and by no code of the package.

Scales that are powers of two are at least 2^-13, as in FlashMLA; those of vLLM go down to 2^-22.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK_BYTES = {584: 576, 528: 528, 288: 288}
"""What the stride of blocks is a multiple of, by the bytes of a token."""

_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def record(row: Tensor, bytes_per_token: int) -> tuple[Tensor, Tensor]:
    """The bytes of a token's elements and those of its scales: ``row`` is [512]."""
    if bytes_per_token == 584:
        codes, scales = in_e4m3(row[:448], 64)
        rope = row[448:].bfloat16().view(torch.uint8)
        return torch.cat([codes, rope]), torch.cat([(127 + scales).byte(), torch.zeros(1, dtype=torch.uint8)])
    if bytes_per_token == 528:
        codes, scales = in_e4m3(row, 32)
        return codes, (127 + scales).byte()
    return in_e2m1(row)


def insert(memory: Tensor, k: Tensor, slots: Tensor, block_size: int, bytes_per_token: int) -> None:
    """Write tokens to blocks of bytes [num_blocks, block_bytes]."""
    for row, slot in zip(k, slots.tolist(), strict=True):
        if slot < 0:
            continue
        elements, scales = record(row, bytes_per_token)
        block, token = memory[slot // block_size], slot % block_size
        if bytes_per_token == 584:
            first, scale = 576 * token, 576 * block_size + 8 * token
        else:
            first = bytes_per_token * token
            scale = first + len(elements)
        block[first : first + len(elements)] = elements
        block[scale : scale + len(scales)] = scales


def in_e4m3(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Elements as bytes, and the exponents of the scales, one of each group."""
    groups = values.float().view(-1, group)
    mantissa, exponent = torch.frexp((largest(groups) / 448).clamp(min=2.0**-13))  # mantissa from 0.5 to below 1
    exponents = torch.where(mantissa == 0.5, exponent - 1, exponent)
    exponents[largest(groups) == torch.inf] = 127
    scaled = groups / torch.exp2(exponents.double()).float()[:, None]
    return scaled.clamp(-448, 448).to(torch.float8_e4m3fn).flatten().view(torch.uint8), exponents


def in_e2m1(values: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of elements as bytes, the even column in the low half, and the scales in e4m3."""
    groups = values.float().view(-1, 16)
    scales = (largest(groups) / 6).clamp(2.0**-9, 448).to(torch.float8_e4m3fn)
    scaled = (groups / scales.float()[:, None]).flatten()
    distance = (scaled.abs().clamp(max=6)[:, None] - _MAGNITUDES).abs()
    distance[:, 1::2] += 1e-6 * (distance[:, 1::2] > 0)  # of two that are as near, the even code
    codes = distance.argmin(1) + 8 * scaled.signbit()
    lost = groups.isnan().any(1)
    codes[lost.repeat_interleave(16)] = 0
    stored = scales.view(torch.uint8).masked_fill(lost, 0x7F)
    return (codes[::2] + 16 * codes[1::2]).byte(), stored


def largest(groups: Tensor) -> Tensor:
    """The greatest magnitude of each group that is not NaN, [groups]."""
    return groups.abs().masked_fill(groups.isnan(), 0.0).amax(1)
