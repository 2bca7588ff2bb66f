"""The exchange by symmetric memory: each rank reads or writes the memory of the others.

Where Triton works, a layer has two small launches beside the attention (``PeerKernels``): one writes the own queries
into the memory of every rank and waits for those of all, and one waits for the attention of all ranks and merges the
partial results of the own heads from where they are. No rank overwrites what another still reads:

- Other ranks write the next queries when their merge has ended. It waited for the merge of this rank, which began when
  this rank's attention, which reads them, had ended.
- The next attention of this rank overwrites its partial results. It begins when its queries have come from all ranks,
  which sent them when their merges, which read the results, had ended.

Elsewhere it has four, and ``merge_states``: a copy of the own queries to every rank, a barrier, a copy of each rank's
partial results to that rank, and a barrier. No rank overwrites what another still reads here either. Call the barriers
of layer ``n`` ``A(n)``, after the queries are written, and ``B(n)``, after the partial results are. The work of a rank
is in the order of its stream, and a rank leaves a barrier when all have entered it.

- Queries are read by the attention of layer ``n``, between ``A(n)`` and ``B(n)`` of the rank that has them. Other ranks
  write the next ones after they have left ``B(n)``, which that rank entered when its attention had ended.
- Partial results are read by ``merge_states`` of layer ``n``, between ``B(n)`` and ``A(n + 1)`` of the rank that has
  them. Other ranks write the next ones after they have left ``A(n + 1)``, which that rank entered when its
  ``merge_states`` had ended.

All of this holds for layers of different shapes too, because all of them have queries in the first part of a buffer,
and partial results in the second one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from mla_kernels.distributed.collectives import of_group
from mla_kernels.distributed.exchange import Exchange, SendsRecords
from mla_kernels.distributed.records import ALIGNMENT, LayerShape, Records
from mla_kernels.tensors import DTypeLike

_LEAST = 512
"""Bytes of the smallest part of a buffer."""
_COPIES = 64
"""Pairs of tensors that one launch of ``torch._foreach_copy_`` takes. It gives each pair of up to 65,536 elements one
block, so that the bytes for a rank are cut into several pairs."""
_WORD = torch.int64
"""What is copied, whatever its type: the launch moves four elements at a time."""
_MOST_NANOSECONDS = 1 << 62
"""Of a time-out, which a kernel adds to a time in 64 bits."""
_logger = logging.getLogger(__name__)


class Buffer(Protocol):
    """As much memory of every rank, which all ranks can write; torch's ``_SymmetricMemory`` is one."""

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """Return a part of a rank's memory, from an offset in elements."""
        ...

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Make the current stream wait until the streams of all ranks have come here."""
        ...


Agree = Callable[[bool], bool]
"""Says whether all ranks agree; all call it at the same time."""
Allocate = Callable[[int], Buffer]
"""Allocates a buffer of so many bytes; all ranks call it at the same time."""


class Workspaces:
    """The buffers of all shapes: a shape uses the smallest one into which it fits.

    Ranks allocate together and in the same order, so that all choose the same buffer for a shape. A buffer is never
    given back while this object lives, because CUDA graphs have its addresses. The bytes of its parts are powers of
    two, so that batches that grow one by one do not each need a buffer.

    Parameters
    ----------
    rank : int
    allocate : callable
        Allocates a buffer on all ranks.
    timeout : timedelta
        How long a device waits for the other ranks.
    agree : callable, optional
        Kernels in Triton are used where the ranks agree that all have compiled them; without it, never.
    """

    def __init__(self, rank: int, allocate: Allocate, timeout: timedelta, *, agree: Agree | None = None) -> None:
        self._rank = rank
        self._allocate = allocate
        self._timeout = timeout
        self._agree = agree
        self._flags: Buffer | None = None
        self._workspaces: list[_Workspace] = []

    def exchange(self, shape: LayerShape) -> Exchange:
        """Return the exchange of a shape; every rank calls it at the same time."""
        queries, partials = (_part(shape.world_size * size) for size in (shape.query_bytes, shape.partial_bytes))
        fitting = [each for each in self._workspaces if each.fits(queries, partials)]
        if not fitting:
            with of_group():
                fitting = [_Workspace(self._allocate(queries + partials), queries, partials)]
            self._workspaces += fitting
        workspace = min(fitting, key=lambda each: each.bytes)
        by_kernels = self._by_kernels(shape, workspace) if self._agree else None
        if self._agree and self._agree(by_kernels is not None) and by_kernels:
            return by_kernels
        return ByCopies(shape, self._rank, workspace, self._timeout)

    def _by_kernels(self, shape: LayerShape, workspace: _Workspace) -> ByPeerKernels | None:
        """Return None where Triton fails on this rank; the ranks meet when all have compiled, or failed."""
        flags = self._zeros(shape)
        try:
            return ByPeerKernels(shape, self._rank, workspace, flags, self._timeout)
        except Exception:  # whatever a compiler raises
            _logger.warning("Triton failed on rank %s, so all ranks copy in this shape", self._rank, exc_info=True)
            return None

    def _zeros(self, shape: LayerShape) -> Buffer:
        """Return the flags of all shapes, which are 0 on this rank; the ranks meet before one of them signals."""
        if self._flags is None:
            from mla_kernels.distributed.peer_kernels import BLOCKS

            with of_group():
                flags = self._allocate(torch.int32.itemsize * shape.world_size * BLOCKS)
            flags.get_buffer(self._rank, (shape.world_size * BLOCKS,), torch.int32).zero_()
            torch.cuda.synchronize(shape.device)
            self._flags = flags
        return self._flags


def _part(size: int) -> int:
    """Bytes of a part of a buffer into which as many fit."""
    return max(_LEAST, 1 << (size - 1).bit_length())


class _Workspace:
    """A buffer in two parts.

    Attributes
    ----------
    buffer : Buffer
    queries, partials : int
        Bytes of the first part and of the second one.
    """

    def __init__(self, buffer: Buffer, queries: int, partials: int) -> None:
        self.buffer = buffer
        self.queries = queries
        self.partials = partials
        self.bytes = queries + partials

    def fits(self, queries: int, partials: int) -> bool:
        """Say whether the parts are large enough."""
        return queries <= self.queries and partials <= self.partials


class ByCopies(SendsRecords):
    """The exchange of one shape by copies into a buffer that all ranks can write, and barriers.

    Attributes
    ----------
    query_places, partial_places : list of tensors
        Where the parts of the own queries, and of the records of each rank's heads, are written, rank after rank.
    """

    def __init__(self, shape: LayerShape, rank: int, workspace: _Workspace, timeout: timedelta) -> None:
        self._buffer = workspace.buffer
        self._shape = shape
        self._timeout_ms = milliseconds(timeout)
        self._ranks = range(shape.world_size)
        self._queries = self._part(rank, 0, shape.world_size * shape.query_bytes).view(shape.dtype)
        self._queries = self._queries.view(shape.world_size * shape.num_heads, shape.tokens, shape.d_qk)
        received = self._part(rank, workspace.queries, shape.world_size * shape.partial_bytes)
        self._received = Records(shape, received)
        self._query_cuts = self._cuts(shape.query_bytes)
        self.query_places = self._places(rank * shape.query_bytes, shape.query_bytes, self._query_cuts)
        self._partial_cuts = self._cuts(shape.partial_bytes)
        self.partial_places = self._places(
            workspace.queries + rank * shape.partial_bytes, shape.partial_bytes, self._partial_cuts
        )

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Write the own queries into the memory of every rank, and wait for those of all ranks."""
        torch._foreach_copy_(self.query_places, self.cut_queries(own))
        self._buffer.barrier(0, self._timeout_ms)
        return self._queries

    def send(self, partials: Records) -> Records:
        """Write the records of each rank's heads into the memory of that rank, and wait for those of all ranks."""
        torch._foreach_copy_(self.partial_places, self.cut_partials(partials))
        self._buffer.barrier(0, self._timeout_ms)
        return self._received

    def cut_queries(self, own: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the own queries in parts, once for each rank."""
        words = aligned(own).view(-1).view(_WORD)
        return torch.split_with_sizes(words, self._query_cuts) * len(self._ranks)

    def cut_partials(self, partials: Records) -> tuple[torch.Tensor, ...]:
        """Return the records of each rank's heads in parts."""
        return torch.split_with_sizes(partials.bytes.view(_WORD), self._partial_cuts * len(self._ranks))

    def _part(self, rank: int, first: int, size: int) -> torch.Tensor:
        return self._buffer.get_buffer(rank, (size,), torch.uint8, first)

    def _cuts(self, size: int) -> list[int]:
        """Words of each pair of tensors that together copy some bytes to one rank."""
        words = size // _WORD.itemsize
        pairs = max(1, _COPIES // len(self._ranks))
        most = max(4, -(-words // pairs // 4) * 4)
        return [min(most, words - first) for first in range(0, words, most)] or [0]

    def _places(self, first: int, size: int, cuts: list[int]) -> list[torch.Tensor]:
        """Where the parts of as many bytes lie on each rank."""
        whole = [self._part(rank, first, size).view(_WORD) for rank in self._ranks]
        return [part for words in whole for part in torch.split_with_sizes(words, cuts)]


class ByPeerKernels:
    """The exchange of one shape by kernels that read and write the memory of all ranks."""

    def __init__(self, shape: LayerShape, rank: int, workspace: _Workspace, flags: Buffer, timeout: timedelta) -> None:
        from mla_kernels.distributed.peer_kernels import BLOCKS, PeerKernels

        self._buffers = workspace, flags  # as long as the kernels have their addresses
        ranks, buffer = range(shape.world_size), workspace.buffer
        words = shape.query_bytes // _WORD.itemsize
        places = [buffer.get_buffer(each, (words,), _WORD, rank * words) for each in ranks]
        size = shape.world_size * shape.partial_bytes
        partials = [Records(shape, buffer.get_buffer(each, (size,), torch.uint8, workspace.queries)) for each in ranks]
        queries = shape.world_size * shape.num_heads, shape.tokens, shape.d_qk
        self._queries = buffer.get_buffer(rank, queries, shape.dtype)
        self._partials = partials[rank]
        flags_of_ranks = [flags.get_buffer(each, (shape.world_size * BLOCKS,), torch.int32) for each in ranks]
        nanoseconds = min(milliseconds(timeout) * 1_000_000, _MOST_NANOSECONDS)
        self._kernels = PeerKernels(shape, rank, places, partials, flags_of_ranks, timeout=nanoseconds)

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Write the own queries into the memory of every rank, and wait for those of all ranks."""
        self._kernels.push(aligned(own))
        return self._queries

    def partials(self) -> Records:
        """Return the records that the ranks read."""
        return self._partials

    def merge(self, partials: Records, out_dtype: DTypeLike | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Wait for the attention of all ranks, and merge what they have of the own heads."""
        return self._kernels.merge(out_dtype)


def aligned(own: torch.Tensor) -> torch.Tensor:
    """Return the own queries where they can be copied in words."""
    return own.clone() if own.data_ptr() % ALIGNMENT else own


def milliseconds(timeout: timedelta) -> int:
    """Return a time-out in milliseconds, rounded up."""
    return -(-timeout // timedelta(milliseconds=1))


def allocator(group: dist.ProcessGroup | None, device: torch.device) -> Allocate:
    """Return what allocates torch's symmetric memory on a device of each rank."""

    def allocate(size: int) -> Buffer:
        import torch.distributed._symmetric_memory as symmetric_memory

        members = group or dist.distributed_c10d._get_default_group()
        own = symmetric_memory.empty(size, dtype=torch.uint8, device=device)
        return _Mapped(own, symmetric_memory.rendezvous(own, members))

    return allocate


class _Mapped:
    """A buffer of torch, which lives as long as its tensor."""

    def __init__(self, own: torch.Tensor, handle: Any) -> None:
        self._own = own
        self.get_buffer = handle.get_buffer
        self.barrier = handle.barrier
