"""How many tokens of a request each rank holds."""

from __future__ import annotations

import torch

from mla_kernels.errors import ValueRangeError

__all__ = ["local_lengths"]


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
        0 for a request of no tokens, or of fewer.

    Raises
    ------
    ValueRangeError
        As many ranks times ``interleave`` are not an int32.
    """
    of_all = period(world_size, interleave)
    rest = seq_lens % of_all - rank * interleave
    return (seq_lens // of_all * interleave + rest.clamp(0, interleave)).clamp(min=0).to(torch.int32)


def period(world_size: int, interleave: int) -> int:
    """Neighbouring tokens of which every rank holds ``interleave``."""
    if (tokens := world_size * interleave) > torch.iinfo(torch.int32).max:
        raise ValueRangeError("interleave", str(interleave), f"less than 2**31 on all {world_size} ranks together")
    return tokens
