"""From an indexer's positions to slots of the cache, and between conventions of the LSE."""

# ruff: noqa: N803 (the names are theirs)

from __future__ import annotations

import math

import torch

import mla_kernels as mla
from mla_kernels.errors import ShapeError


def triton_convert_req_index_to_global_index(  # noqa: PLR0917 (the signature is theirs)
    req_id: torch.Tensor,
    block_table: torch.Tensor,
    token_indices: torch.Tensor,
    BLOCK_SIZE: int = 64,
    NUM_TOPK_TOKENS: int = 2048,
    BLOCK_N: int = 128,
) -> torch.Tensor:
    """Translate positions within requests to slots; vLLM's function of this name, by ``to_global_indices``.

    Parameters
    ----------
    req_id : int32 [num_tokens]
        The request of each token.
    block_table : int32 [num_requests, table_width]
    token_indices : int32 [num_tokens, NUM_TOPK_TOKENS]
        Positions within the request; a negative one is absent.
    BLOCK_SIZE : int
        Tokens of a page.
    NUM_TOPK_TOKENS : int
    BLOCK_N : int
        Has no effect: it is the width of a tile of the Triton kernel.

    Returns
    -------
    int32 [num_tokens, NUM_TOPK_TOKENS]
        ``block_table[req, position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE``; -1 for an absent position and
        one past the table.

    Raises
    ------
    InvalidArgumentError
    """
    if token_indices.shape[1:] != (NUM_TOPK_TOKENS,):
        raise ShapeError("token_indices", f"shape {list(token_indices.shape)}", f"[num_tokens, {NUM_TOPK_TOKENS}]")
    slots: torch.Tensor = mla.to_global_indices(req_id, block_table, token_indices, page_size=BLOCK_SIZE)
    return slots


def lse2_to_lse(lse_base2: torch.Tensor) -> torch.Tensor:
    """From a logarithm to base 2 to the natural one, in float32; every LSE of this package is natural already."""
    return lse_base2.to(torch.float32) * math.log(2.0)
