"""Decode context parallelism over ``torch.distributed``: each rank holds a part of every request's cache.

A rank has some heads of the queries. It gathers the queries of all ranks, attends from all heads to its part of the
cache, and sends each rank the partial results of that rank's heads: one all-gather and one all-to-all a layer.
``merge_states`` combines what arrives. vLLM distributes caches in the same way (``decode_context_parallel_size``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from mla_kernels.api.ops import decode, merge_states
from mla_kernels.api.selection import decode_kernel
from mla_kernels.errors import GroupError, ShapeError, ValueRangeError
from mla_kernels.formats import D_V
from mla_kernels.kernels.base import Plan
from mla_kernels.tensors import DTypeLike

__all__ = ["ContextParallel", "Step", "local_lengths"]

MOST_HEADS = 128
"""Heads of one launch; more take several."""
_ALIGNMENT = 16
_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""torch 2.13 has renamed it."""
_LSE_BYTES = 4


def local_lengths(seq_lens: torch.Tensor, *, rank: int, world_size: int, interleave: int) -> torch.Tensor:
    """Return how many of each request's tokens a rank holds.

    Token ``i`` of a request is on rank ``i // interleave % world_size``.

    Parameters
    ----------
    seq_lens : int32 [...]
        Tokens in the cache of each request, on all ranks together.
    rank, world_size : int
    interleave : int
        Neighbouring tokens that one rank holds: a multiple or a divisor of the page size, or 1.

    Returns
    -------
    int32 [...]
    """
    period = world_size * interleave
    rest = seq_lens % period - rank * interleave
    return (seq_lens // period * interleave + rest.clamp(0, interleave)).to(torch.int32)


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of a decode step share on one rank; ``ContextParallel.step`` makes it.

    Attributes
    ----------
    block_table : int32 [batch * q_len, table_width]
    lengths : int32 [batch * q_len]
        Tokens of the rank that each query token sees.
    plans : tuple of Plan
        Of each launch, which has up to 128 of the heads.
    q_len : int
    """

    block_table: torch.Tensor
    lengths: torch.Tensor
    plans: tuple[Plan, ...]
    q_len: int


class ContextParallel:
    """The ranks of a group that share the caches of all requests.

    Each query token is a request of the kernel, since the tokens of a step that it may not see lie on different ranks.
    Launches can be captured in a CUDA graph once the same shapes have run without one. A rank that is lost, or does not
    answer, ends a call with an error when the time-out of the group is over (``dist.new_group(timeout=...)``).

    Parameters
    ----------
    group : ProcessGroup, optional
        By default the group of all processes.
    interleave : int
        Neighbouring tokens that one rank holds.

    Raises
    ------
    ValueRangeError
        ``interleave`` is not positive.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, *, interleave: int) -> None:
        if interleave < 1:
            raise ValueRangeError("interleave", str(interleave), "integers from 1")
        self.group = group
        self.interleave = interleave
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self._agreed: set[tuple[int, ...]] = set()

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
        ShapeError
            Ranks have different shapes; the message names them.
        GroupError
            A rank is lost or did not answer in time.
        """
        batch, q_len, num_heads, d_qk = q.shape
        self._require_agreement((batch, q_len, num_heads, d_qk, q.element_size(), self.interleave), q.device)
        seen = seq_lens[:, None] + torch.arange(1 - q_len, 1, dtype=torch.int32, device=seq_lens.device)
        lengths = local_lengths(
            seen.clamp_(min=0).flatten(), rank=self.rank, world_size=self.world_size, interleave=self.interleave
        )
        table = block_table if q_len == 1 else block_table.repeat_interleave(q_len, 0)
        plans = []
        for heads in _launches(num_heads * self.world_size):
            tokens = q.new_empty(1).expand(batch * q_len, 1, heads.stop - heads.start, d_qk)
            kernel = decode_kernel(tokens, kv_cache, None, True)
            plans.append(kernel.plan(lengths, num_heads=tokens.shape[2], q_len=1))
        return Step(table, lengths, tuple(plans), q_len)

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
            By default the type of ``q``.

        Returns
        -------
        out : [batch, q_len, num_heads, d_v]
            0 where a token sees no key.
        lse : float32 [batch, num_heads, q_len]
            Natural logarithm of the sum of exponentials; -inf where a token sees no key.

        Raises
        ------
        ShapeError
            ``q`` is not of the step.
        GroupError
            A rank is lost or did not answer in time.
        """
        batch, q_len, num_heads, d_qk = q.shape
        tokens, d_v = batch * q_len, D_V[d_qk]
        if (q_len, tokens) != (step.q_len, len(step.lengths)):
            raise ShapeError("q", f"shape {list(q.shape)}", f"{len(step.lengths)} tokens, {step.q_len} of each request")
        sent = _Records(self.world_size * num_heads, tokens, d_v, q)
        self._attend(self._gather(q), kv_cache, step, sent, softmax_scale=softmax_scale, kv_scale=kv_scale)
        received = _Records(self.world_size * num_heads, tokens, d_v, q)
        with _of_group():
            dist.all_to_all_single(received.bytes, sent.bytes, group=self.group)
        states = (self.world_size, num_heads, tokens)
        out, lse = merge_states(
            received.out.view(*states, d_v).transpose(1, 2),
            received.lse.view(states).transpose(1, 2),
            out_dtype=out_dtype,
        )
        return out.view(batch, q_len, num_heads, d_v), lse.view(batch, q_len, num_heads).transpose(1, 2)

    def _gather(self, q: torch.Tensor) -> torch.Tensor:
        """Queries of all ranks [heads, tokens, d_qk]; those of a rank are copied only where tokens are many."""
        own = q.flatten(0, 1).transpose(0, 1).contiguous()
        queries = own.new_empty(self.world_size * own.shape[0], *own.shape[1:])
        with _of_group():
            _gather_single(queries, own, group=self.group)
        return queries

    @staticmethod
    def _attend(
        queries: torch.Tensor,
        kv_cache: torch.Tensor,
        step: Step,
        to: _Records,
        *,
        softmax_scale: float,
        kv_scale: float,
    ) -> None:
        """Attend to the rank's tokens; results are written where they are sent from."""
        for heads, plan in zip(_launches(len(queries)), step.plans, strict=True):
            decode(
                queries[heads].transpose(0, 1)[:, None], kv_cache, step.block_table, step.lengths, plan=plan,
                softmax_scale=softmax_scale, kv_scale=kv_scale, out=to.out[heads].transpose(0, 1)[:, None],
                lse=to.lse[heads].transpose(0, 1)[:, :, None],
            )  # fmt: skip

    def _require_agreement(self, shape: tuple[int, ...], device: torch.device) -> None:
        """Compare shapes of all ranks, once for each: later steps of the same shape do not wait for the host."""
        if shape in self._agreed:
            return
        own = torch.tensor(shape, dtype=torch.int64, device=device)
        every = own.new_empty(self.world_size * len(shape))
        with _of_group():
            _gather_single(every, own, group=self.group)
            shapes = [tuple(row) for row in every.view(self.world_size, -1).tolist()]
        for rank, other in enumerate(shapes):
            if other != shape:
                names = "batch, q_len, heads, columns, bytes of an element, interleave"
                raise ShapeError("q", f"{shape} ({names})", f"what rank {rank} has: {other}")
        self._agreed.add(shape)


def _launches(heads: int) -> list[slice]:
    """The heads of each launch."""
    return [slice(first, min(first + MOST_HEADS, heads)) for first in range(0, heads, MOST_HEADS)]


class _Records:
    """Partial results of heads, each with the LSEs behind the outputs, so that one all-to-all moves both.

    Attributes
    ----------
    bytes : uint8 [heads * bytes of a record]
    out : [heads, tokens, d_v]
    lse : float32 [heads, tokens]
    """

    def __init__(self, heads: int, tokens: int, d_v: int, like: torch.Tensor) -> None:
        size = like.element_size()
        of_out = -(-tokens * d_v * size // _ALIGNMENT) * _ALIGNMENT
        record = of_out + -(-tokens * _LSE_BYTES // _ALIGNMENT) * _ALIGNMENT
        self.bytes = torch.empty(heads * record, dtype=torch.uint8, device=like.device)
        elements = self.bytes.view(like.dtype)
        self.out = elements.as_strided((heads, tokens, d_v), (record // size, d_v, 1))
        floats = self.bytes.view(torch.float32)
        self.lse = floats.as_strided((heads, tokens), (record // _LSE_BYTES, 1), of_out // _LSE_BYTES)


@contextmanager
def _of_group() -> Iterator[None]:
    """Say of what a group's backend raises that a rank is the reason, and what to do."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise GroupError(
            f"the ranks did not exchange their tensors ({error}); a rank may be lost, late, or have another shape: "
            "end all ranks, and see the first one's message"
        ) from error
