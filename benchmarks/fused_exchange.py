"""An experiment, not a part of the package: what a layer takes where each exchange is one kernel, in Triton.

``push`` writes the own queries into the memory of every rank and returns when those of all ranks have arrived.
``merge`` waits until all ranks have their partial results, and merges them from where they are. A block waits for the
blocks of its number on the other ranks, so that no kernel waits for all of its own blocks. Flags go from 0 to 1 when a
rank signals and back to 0 when the other one has seen it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
import triton
import triton.language as tl
from mla_kernels.distributed.records import LayerShape, Records

BLOCKS = 128
"""No more than a device runs at once."""
LEAST_WORDS = 256


@triton.jit  # type: ignore[untyped-decorator]
def _signal_and_wait(flags: Any, rank: Any, block: Any, ranks: tl.constexpr, blocks: tl.constexpr) -> None:
    tl.debug_barrier()
    pads = flags.to(tl.pointer_type(tl.int64))
    for step in tl.static_range(1, ranks):
        peer = (rank + step) % ranks
        theirs = tl.load(pads + peer).to(tl.pointer_type(tl.int32)) + rank * blocks + block
        while tl.atomic_cas(theirs, 0, 1, sem="release", scope="sys") != 0:
            pass
    own = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for step in tl.static_range(1, ranks):
        peer = (rank + step) % ranks
        while tl.atomic_cas(own + peer * blocks + block, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def _push(  # noqa: PLR0917  # a kernel takes no keywords
    own: Any, memory: Any, flags: Any, rank: Any, words: Any,
    ranks: tl.constexpr, blocks: tl.constexpr, width: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0)
    places = memory.to(tl.pointer_type(tl.int64))
    for first in range(block * width, words, tl.num_programs(0) * width):
        at = first + tl.arange(0, width)
        values = tl.load(own + at, mask=at < words)
        for peer in tl.static_range(ranks):
            place = tl.load(places + peer).to(tl.pointer_type(tl.int64)) + rank * words
            tl.store(place + at, values, mask=at < words)
    _signal_and_wait(flags, rank, block, ranks, blocks)


@triton.jit  # type: ignore[untyped-decorator]
def _merge(  # noqa: PLR0917
    memory: Any, flags: Any, out: Any, out_lse: Any, rank: Any, rows: Any, tokens: Any,
    first_byte: Any, record: Any, output_bytes: Any,
    ranks: tl.constexpr, blocks: tl.constexpr, d_v: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0)
    _signal_and_wait(flags, rank, block, ranks, blocks)
    places = memory.to(tl.pointer_type(tl.int64))
    columns = tl.arange(0, d_v)
    for row in range(block, rows, tl.num_programs(0)):  # a row is a token of a head
        head, token = row // tokens, row % tokens
        begin = first_byte + (rank * (rows // tokens) + head).to(tl.int64) * record
        greatest = -float("inf")
        for peer in tl.static_range(ranks):
            of_peer = tl.load(places + peer) + begin + output_bytes
            lse = tl.load(of_peer.to(tl.pointer_type(tl.float32)) + token)
            greatest = tl.maximum(greatest, lse)
        shift = tl.where(greatest == -float("inf"), 0.0, greatest)
        total = 0.0
        summed = tl.zeros((d_v,), tl.float32)
        for peer in tl.static_range(ranks):
            of_peer = tl.load(places + peer) + begin
            lse = tl.load((of_peer + output_bytes).to(tl.pointer_type(tl.float32)) + token)
            weight = tl.exp(lse - shift)
            values = tl.load(of_peer.to(tl.pointer_type(tl.bfloat16)) + token * d_v + columns).to(tl.float32)
            summed += tl.where(weight > 0, weight * values, 0.0)
            total += weight
        scale = tl.where(total > 0, 1 / total, 0.0)
        tl.store(out + (token * (rows // tokens) + head) * d_v + columns, (summed * scale).to(tl.bfloat16))
        tl.store(out_lse + token * (rows // tokens) + head, tl.log(total) + shift)


class Fused:
    """The two kernels for one shape, of bf16 and on NVLink.

    Attributes
    ----------
    queries : [heads of all ranks, tokens, d_qk]
    partials : Records
        Where the attention of this rank writes.
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape, self.rank = shape, dist.get_rank()
        self._first = shape.world_size * shape.query_bytes
        size = self._first + shape.world_size * shape.partial_bytes
        self._memory, self._handle = _shared(size)
        self._flags, self._flag_handle = _shared(4 * shape.world_size * BLOCKS)
        self._flags.zero_()
        torch.cuda.synchronize()
        dist.barrier()
        queries = self._memory[: self._first].view(shape.dtype)
        self.queries = queries.view(shape.world_size * shape.num_heads, shape.tokens, shape.d_qk)
        self.partials = Records(shape, self._memory[self._first :])
        self.out = torch.empty(shape.tokens, shape.num_heads, shape.d_v, dtype=shape.dtype, device="cuda")
        self.lse = torch.empty(shape.tokens, shape.num_heads, device="cuda")

    def push(self, own: torch.Tensor) -> None:
        """Give all ranks the own queries [heads, tokens, d_qk]."""
        words = own.view(-1).view(torch.int64)
        width = LEAST_WORDS if len(words) <= BLOCKS * LEAST_WORDS else 1024
        _push[(min(BLOCKS, triton.cdiv(len(words), width)),)](
            words, self._handle.buffer_ptrs_dev, self._flag_handle.buffer_ptrs_dev, self.rank, len(words),
            ranks=self.shape.world_size, blocks=BLOCKS, width=width, num_warps=4,
        )  # fmt: skip

    def merge(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge what all ranks have of the own heads."""
        shape = self.shape
        rows = shape.num_heads * shape.tokens
        _merge[(min(BLOCKS, rows),)](
            self._handle.buffer_ptrs_dev, self._flag_handle.buffer_ptrs_dev, self.out, self.lse, self.rank, rows,
            shape.tokens, self._first, shape.record_bytes, shape.output_bytes,
            ranks=shape.world_size, blocks=BLOCKS, d_v=shape.d_v, num_warps=2,
        )  # fmt: skip
        return self.out, self.lse


def _shared(size: int) -> tuple[torch.Tensor, Any]:
    own = symmetric_memory.empty(size, dtype=torch.uint8, device=torch.device("cuda", torch.cuda.current_device()))
    return own, symmetric_memory.rendezvous(own, dist.distributed_c10d._get_default_group())
