"""How queries and partial results of a layer lie in memory while ranks exchange them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

ALIGNMENT = 16
"""Bytes that the parts of a record, and what is copied in words, are multiples of."""
_LSE_BYTES = 4


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What the ranks exchange in a layer.

    Attributes
    ----------
    world_size : int
    num_heads : int
        Heads of a rank.
    tokens : int
        Query tokens of all requests.
    d_qk, d_v : int
    dtype : torch.dtype
        Of the queries and of the partial outputs.
    device : torch.device
    """

    world_size: int
    num_heads: int
    tokens: int
    d_qk: int
    d_v: int
    dtype: torch.dtype
    device: torch.device

    @property
    def query_bytes(self) -> int:
        """Bytes of the queries of a rank."""
        return self.num_heads * self.tokens * self.d_qk * self.dtype.itemsize

    @property
    def output_bytes(self) -> int:
        """Bytes of a head's outputs, with which its record begins."""
        return -(-self.tokens * self.d_v * self.dtype.itemsize // ALIGNMENT) * ALIGNMENT

    @property
    def record_bytes(self) -> int:
        """Bytes of a head's outputs and LSEs."""
        return self.output_bytes + -(-self.tokens * _LSE_BYTES // ALIGNMENT) * ALIGNMENT

    @property
    def partial_bytes(self) -> int:
        """Bytes of the records of a rank's heads, from one rank."""
        return self.num_heads * self.record_bytes


class Records:
    """Partial results of heads, each with the LSEs behind the outputs, so that one copy moves both.

    Attributes
    ----------
    bytes : uint8 [world_size * num_heads * bytes of a record]
    out : [world_size * num_heads, tokens, d_v]
    lse : float32 [world_size * num_heads, tokens]
    """

    def __init__(self, shape: LayerShape, data: torch.Tensor | None = None) -> None:
        heads, record = shape.world_size * shape.num_heads, shape.record_bytes
        size = shape.dtype.itemsize
        self.bytes = data if data is not None else torch.empty(heads * record, dtype=torch.uint8, device=shape.device)
        elements = self.bytes.view(shape.dtype)
        self.out = elements.as_strided(
            (heads, shape.tokens, shape.d_v), (record // size, shape.d_v, 1), elements.storage_offset()
        )
        floats = self.bytes.view(torch.float32)
        self.lse = floats.as_strided(
            (heads, shape.tokens),
            (record // _LSE_BYTES, 1),
            floats.storage_offset() + shape.output_bytes // _LSE_BYTES,
        )
