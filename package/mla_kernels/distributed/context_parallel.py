"""A decode step and its layers, by ranks that share the caches of all requests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from mla_kernels.api.ops import decode
from mla_kernels.api.selection import decode_kernel
from mla_kernels.distributed.agreement import Choice, all_agree, choose, device_of, have_triton
from mla_kernels.distributed.collectives import Collectives, gather_integers
from mla_kernels.distributed.exchange import Exchange
from mla_kernels.distributed.lengths import local_lengths, period
from mla_kernels.distributed.records import LayerShape, Records
from mla_kernels.distributed.symmetric_memory import Workspaces, allocator
from mla_kernels.errors import DeviceError, DTypeError, GroupError, ShapeError, ValueRangeError
from mla_kernels.formats import D_V
from mla_kernels.kernels.base import Plan
from mla_kernels.scalars import count
from mla_kernels.tensors import DTypeLike, element_name, extents

__all__ = ["ContextParallel", "Step"]

MOST_HEADS = 128
"""Heads of one launch; more take several."""


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of a decode step share on one rank; ``ContextParallel.step`` makes it.

    Attributes
    ----------
    block_table : int32 [batch, table_width]
    lengths : int32 [batch]
        Tokens of each request that the rank has.
    token_lengths : int32 [batch, q_len], optional
        Tokens of the rank that each query token sees; None where a request has one, which sees all.
    plans : tuple of Plan
        Of each launch, which has up to 128 of the heads.
    q_len : int
    shape : LayerShape
        Of the queries and the results of each layer.
    exchange : Exchange
        How the ranks give each other queries and partial results.
    """

    block_table: torch.Tensor
    lengths: torch.Tensor
    token_lengths: torch.Tensor | None
    plans: tuple[Plan, ...]
    q_len: int
    shape: LayerShape
    exchange: Exchange


class ContextParallel:
    """The ranks of a group that share the caches of all requests; every rank makes one.

    Launches can be captured in a CUDA graph once the same shapes have run without one.

    Ranks exchange queries and partial results in one of two ways, and all of them in the same one, which the attribute
    ``exchange`` tells. ``collectives`` are an all-gather and an all-to-all of the group. With ``symmetric_memory`` each
    rank reads and writes the memory of the others, which takes less time on devices of one host; ``has_triton`` tells
    whether kernels in Triton do that, or copies and barriers. Its layers share buffers: they run one after another, on
    one stream or on streams that wait for each other. Batches whose layers overlap have a ``ContextParallel`` each.

    A rank that is lost, or does not answer, ends a call by ``collectives`` with an error when the time-out of the group
    is over (``dist.new_group(timeout=...)``). By ``symmetric_memory`` no ``decode`` waits for another rank; the devices
    do, for ``timeout``. After that time the kernel that waits stops its device, and the next call that waits for the
    device raises a CUDA error, as does every later one: end the process.

    Where a layer raises an error on one rank only, its exchange is no longer at the same layer as those of the others.
    Every later ``step`` and ``decode`` of this object therefore raises ``GroupError``.

    Parameters
    ----------
    group : ProcessGroup, optional
        By default the group of all processes.
    interleave : int
        Neighbouring tokens that one rank holds.
    exchange : str
        ``collectives``; ``symmetric_memory``; or ``auto``, which is ``symmetric_memory`` where the group uses NCCL, the
        ranks' current devices are different ones of one host, each process sees all of them, and each device has
        atomic operations in the memory of all others. Otherwise it is ``collectives``.
    timeout : timedelta
        How long a device waits for the other ranks with ``symmetric_memory``.

    Raises
    ------
    ValueRangeError
        ``interleave`` or ``timeout`` is not positive, all ranks together do not fit into an int32, there is no such
        exchange, or a rank has another one.
    DTypeError
        ``interleave`` is no integer.
    GroupError
        ``symmetric_memory`` was asked for, and a rank cannot; or a rank is lost or did not answer in time.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        interleave: int,
        exchange: Choice = "auto",
        timeout: timedelta = timedelta(minutes=10),
    ) -> None:
        count("interleave", interleave, 1)
        if timeout <= timedelta():
            raise ValueRangeError("timeout", str(timeout), "more than no time")
        self.group = group
        self.interleave = interleave
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        period(self.world_size, interleave)
        self.exchange = choose(group, exchange)
        self._agreed: set[tuple[int, ...]] = set()
        self._failed: BaseException | None = None
        self._exchanges: dict[LayerShape, Exchange] = {}
        self._device = device_of(group)
        self.has_triton = self.exchange == "symmetric_memory" and have_triton(group, self._device)
        agree = partial(all_agree, group=group, device=self._device) if self.has_triton else None
        self._workspaces = Workspaces(self.rank, allocator(group, self._device), timeout, agree=agree)

    def step(self, q: torch.Tensor, kv_cache: torch.Tensor, block_table: torch.Tensor, seq_lens: torch.Tensor) -> Step:
        """Prepare a decode step: every rank calls it, and all layers use the result.

        Parameters
        ----------
        q : [batch, q_len, num_heads, d_qk]
            Queries of a layer, of which only shape, type and device count.
        kv_cache : [num_pages, page_size, d_qk]
            The rank's pages.
        block_table : int32 [batch, table_width]
            Which of the rank's pages hold the rank's tokens of each request, in order.
        seq_lens : int32 [batch]
            Tokens in the cache of each request, on all ranks together, the new ones included.

        Returns
        -------
        Step

        Raises
        ------
        DTypeError
            ``q`` is not one tensor.
        ShapeError
            No format has its columns, or ranks have different shapes; the message names them.
        DeviceError
            Symmetric memory is on another device than ``q``.
        GroupError
            A rank is lost or did not answer in time, or a layer has raised an error before.
        """
        self._require_no_failure()
        batch, q_len, num_heads, d_qk = _extents(q)
        self._require_agreement((batch, q_len, num_heads, d_qk, _number(q.dtype), self.interleave), q.device)
        _require_served(d_qk)  # now that no rank waits for another
        # The tokens of a step that a query token does not see are on different ranks, which no causal mask can say.
        seen = seq_lens[:, None] + torch.arange(1 - q_len, 1, dtype=torch.int32, device=seq_lens.device)
        token_lengths = self._own(seen.clamp_(min=0)) if q_len > 1 else None
        lengths = self._own(seq_lens)
        plans = []
        for heads in _launches(num_heads * self.world_size):
            tokens = q.new_empty(1).expand(batch, q_len, heads.stop - heads.start, d_qk)
            kernel = decode_kernel(tokens, kv_cache, None, True)
            plans.append(kernel.plan(lengths, num_heads=tokens.shape[2], q_len=q_len))
        shape = self._shape(q)
        return Step(block_table, lengths, token_lengths, tuple(plans), q_len, shape, self._exchange(shape))

    def decode(
        self,
        q: torch.Tensor,
        kv_cache: torch.Tensor,
        step: Step,
        *,
        softmax_scale: float,
        kv_scale: float = 1.0,
        out_dtype: DTypeLike | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend from the rank's heads to the caches of all ranks; every rank calls it for the same layer.

        Parameters
        ----------
        q : [batch, q_len, num_heads, d_qk]
            The absorbed queries of the rank's heads.
        kv_cache : [num_pages, page_size, d_qk]
            The rank's pages.
        step : Step
            From ``step``, for the same batch.
        softmax_scale : float
            Factor of the logits.
        kv_scale : float
            What one unit of an e4m3 element stands for; 1 for other types.
        out_dtype : str or dtype, optional
            By default the type of ``q``. Queries of fp32 may have outputs of 16 bits.

        Returns
        -------
        out : [batch, q_len, num_heads, d_v]
            0 where a token sees no key.
        lse : float32 [batch, num_heads, q_len]
            Natural logarithm of the sum of exponentials; -inf where a token sees no key.

        Raises
        ------
        DTypeError, ShapeError
            ``q`` is not of the step, or partial results of its type are not merged into ``out_dtype``.
        GroupError
            A rank is lost or did not answer in time, and the exchange is by collectives; or a layer has raised an
            error before.
        """
        self._require_no_failure()
        batch, q_len, num_heads, d_qk = _extents(q)
        _require_served(d_qk)
        if (batch, q_len) != (len(step.lengths), step.q_len):
            requests = f"{len(step.lengths)} requests with {step.q_len} tokens each, as the step has"
            raise ShapeError("q", f"shape {list(q.shape)}", requests)
        if self._shape(q) != step.shape:
            raise ShapeError("q", str(self._shape(q)), f"what the step was made for: {step.shape}")
        _require_merged(q.dtype, out_dtype)
        try:
            queries = step.exchange.gather(q.flatten(0, 1).transpose(0, 1).contiguous())
            partials = step.exchange.partials()
            self._attend(queries, kv_cache, step, partials, softmax_scale=softmax_scale, kv_scale=kv_scale)
            out, lse = step.exchange.merge(partials, out_dtype)
        except BaseException as error:
            self._failed = error
            raise
        return out.view(batch, q_len, num_heads, D_V[d_qk]), lse.view(batch, q_len, num_heads).transpose(1, 2)

    @staticmethod
    def _attend(
        queries: torch.Tensor,
        kv_cache: torch.Tensor,
        step: Step,
        to: Records,
        *,
        softmax_scale: float,
        kv_scale: float,
    ) -> None:
        """Attend to the rank's tokens; results are written where they are sent from."""
        for heads, plan in zip(_launches(len(queries)), step.plans, strict=True):
            shape = heads.stop - heads.start, len(step.lengths), step.q_len
            decode(
                queries[heads].view(*shape, queries.shape[2]).permute(1, 2, 0, 3), kv_cache, step.block_table,
                step.lengths, token_seq_lens=step.token_lengths, plan=plan, softmax_scale=softmax_scale,
                kv_scale=kv_scale, out=to.out[heads].view(*shape, to.out.shape[2]).permute(1, 2, 0, 3),
                lse=to.lse[heads].view(shape).transpose(0, 1),
            )  # fmt: skip

    def _require_no_failure(self) -> None:
        """Refuse to go on where other ranks would take what this one sends for that of another layer."""
        if self._failed is not None:
            raise GroupError(
                f"a layer of this rank ended in an error ({self._failed}), and the other ranks have not seen it: mend "
                "its cause, and make a new ContextParallel on every rank"
            ) from self._failed

    def _own(self, seq_lens: torch.Tensor) -> torch.Tensor:
        """How many of each request's tokens this rank has."""
        return local_lengths(seq_lens, rank=self.rank, world_size=self.world_size, interleave=self.interleave)

    def _shape(self, q: torch.Tensor) -> LayerShape:
        batch, q_len, num_heads, d_qk = q.shape
        return LayerShape(self.world_size, num_heads, batch * q_len, d_qk, D_V[d_qk], q.dtype, q.device)

    def _require_agreement(self, shape: tuple[int, ...], device: torch.device) -> None:
        """Compare shapes of all ranks, once for each: later steps of the same shape do not wait for the host."""
        if shape in self._agreed:
            return
        for rank, other in enumerate(gather_integers(shape, self.group, device)):
            if other != shape:
                raise ShapeError("q", _told(shape, other), f"what rank {rank} has: {_told(other, shape)}")
        self._agreed.add(shape)

    def _exchange(self, shape: LayerShape) -> Exchange:
        """The exchange of a shape; all ranks allocate its buffers here when they first have the shape."""
        if shape not in self._exchanges:
            if self.exchange == "collectives":
                self._exchanges[shape] = Collectives(shape, self.group)
            elif shape.device == self._device:
                self._exchanges[shape] = self._workspaces.exchange(shape)
            else:
                accepts = f"{self._device}, the current device when ContextParallel was made"
                raise DeviceError("q", str(shape.device), accepts)
        return self._exchanges[shape]


def _extents(q: torch.Tensor) -> tuple[int, ...]:
    """Batch, ``q_len``, heads and columns; queries are one tensor here."""
    return extents("q", q, "batch", "q_len", "num_heads", "d_qk")


def _require_merged(dtype: torch.dtype, out_dtype: DTypeLike | None) -> None:
    """Refuse outputs of another type than partial results of 16 bits have, whichever exchange would merge them."""
    if out_dtype is not None and dtype.itemsize == 2 and element_name(out_dtype) != element_name(dtype):
        raise DTypeError("out_dtype", str(out_dtype), f"{dtype}, the type of q")


def _require_served(d_qk: int) -> None:
    if d_qk not in D_V:
        raise ShapeError("q", f"{d_qk} columns", " or ".join(map(str, D_V)))


def _number(dtype: torch.dtype) -> int:
    """Return a number of an element type, the same on all ranks."""
    return int.from_bytes(hashlib.sha256(str(dtype).encode()).digest()[:4])


def _told(shape: tuple[int, ...], other: tuple[int, ...]) -> str:
    """Name what of a shape differs from another one."""
    names = "batch", "q_len", "heads", "columns", "dtype", "interleave"
    dtypes = {_number(dtype): str(dtype) for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    differ = [(name, own) for name, own, theirs in zip(names, shape, other, strict=True) if own != theirs]
    return ", ".join(f"{name} {dtypes.get(own, own) if name == 'dtype' else own}" for name, own in differ)


def _launches(heads: int) -> list[slice]:
    """The heads of each launch."""
    return [slice(first, min(first + MOST_HEADS, heads)) for first in range(0, heads, MOST_HEADS)]
