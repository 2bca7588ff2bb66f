"""How many tokens of a rank each query token sees, under decode context parallelism; this imports nothing of vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from mla_kernels.distributed import local_lengths

__all__ = ["TokenLengths"]


@dataclass(frozen=True)
class TokenLengths:
    """Makes the ``token_seq_lens`` of a step, on the device that holds its lengths and without waiting for it.

    The new tokens of a request lie on several ranks, so that of one token to the next a rank has one key more or none.
    A CUDA graph reads the buffer that it was captured with: each shape of a step has one for good, of
    ``4 * batch * q_len`` bytes.

    Parameters
    ----------
    rank, world_size : int
    interleave : int
        Neighbouring tokens that one rank holds; vLLM's ``cp_kv_cache_interleave_size``.
    """

    rank: int
    world_size: int
    interleave: int
    _buffers: dict[tuple[int, int, bool], torch.Tensor] = field(default_factory=dict)

    def of_batch(self, seq_lens: torch.Tensor, q_len: int) -> torch.Tensor:
        """``int32 [batch, q_len]``: those of requests that have ``q_len`` new tokens each.

        Parameters
        ----------
        seq_lens : int32 [batch]
            Tokens of each request on all ranks together, the new ones included; 0 where a request pads a graph.
        q_len : int
        """
        ahead = torch.arange(1 - q_len, 1, dtype=torch.int32, device=seq_lens.device)
        shape = (len(seq_lens), q_len, False)
        return self._stored(shape, (seq_lens[:, None] + ahead).flatten()).view(shape[:2])

    def of_ragged(self, seq_lens: torch.Tensor, bounds: torch.Tensor, tokens: int, q_len: int) -> torch.Tensor:
        """``int32 [1, tokens]``: those of requests that have up to ``q_len`` new tokens.

        Parameters
        ----------
        seq_lens : int32 [batch]
            As in ``of_batch``.
        bounds : int32 [batch + 1]
            Where the new tokens of each request begin; those from the last one on belong to no request.
        tokens, q_len : int
        """
        ends = bounds[1:]
        token = torch.arange(tokens, dtype=torch.int32, device=seq_lens.device)
        request = torch.searchsorted(ends, token, right=True).clamp_(max=len(ends) - 1)
        seen = (seq_lens - ends)[request] + token + 1
        return self._stored((len(seq_lens), q_len, True), seen)[None]

    def _stored(self, shape: tuple[int, int, bool], seen: torch.Tensor) -> torch.Tensor:
        """The rank's part of what tokens see on all ranks, in the buffer of the shape."""
        batch, q_len, _ = shape
        if shape not in self._buffers:
            self._buffers[shape] = seen.new_empty(batch * q_len)
        own = local_lengths(seen.clamp_(min=0), rank=self.rank, world_size=self.world_size, interleave=self.interleave)
        return self._buffers[shape][: len(own)].copy_(own)
