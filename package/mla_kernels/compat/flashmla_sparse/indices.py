"""From an indexer's positions to slots of the cache, and between conventions of the LSE."""

# ruff: noqa: N803 (the names are theirs)

from __future__ import annotations

import math

import torch

import mla_kernels as mla
from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError


def triton_convert_req_index_to_global_index(  # noqa: PLR0917 (the signature is theirs)
    req_id: torch.Tensor,
    block_table: torch.Tensor,
    token_indices: torch.Tensor,
    BLOCK_SIZE: int = 64,
    BLOCK_STRIDE_ROWS: int | None = None,
    NUM_TOPK_TOKENS: int = 2048,
    BLOCK_N: int = 128,
    HAS_PREFILL_WORKSPACE: bool = False,
    prefill_workspace_request_ids: torch.Tensor | None = None,
    prefill_workspace_starts: torch.Tensor | None = None,
    prefill_workspace_rank_stride: int | None = None,
    dcp_size: int = 1,
    dcp_rank: int = 0,
    cp_kv_cache_interleave_size: int = 1,
    return_valid_counts: bool = False,
    out: torch.Tensor | None = None,
    valid_counts_out: torch.Tensor | None = None,
    idx_mapping: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Translate positions within requests to slots; vLLM 0.33's function of this name, by ``to_global_indices``.

    Parameters
    ----------
    req_id : int32 [num_tokens]
        The request of each token.
    block_table : int32 [num_requests, table_width]
    token_indices : int32 [num_tokens, NUM_TOPK_TOKENS]
        Positions within the request; a negative one is absent.
    BLOCK_SIZE : int
        Tokens of a page.
    BLOCK_STRIDE_ROWS : int, optional
        Rows from page to page; ``BLOCK_SIZE`` by default.
    NUM_TOPK_TOKENS : int
    HAS_PREFILL_WORKSPACE : bool
        Whether the positions of tokens of a prefill become rows of a workspace.
    prefill_workspace_request_ids : int32 [num_tokens], optional
        The prefill of each token; negative for a token of a decode, whose positions become slots.
    prefill_workspace_starts : int32 [num_prefills], optional
        The first row of each prefill in the workspace.
    dcp_size : int
        1: positions are not spread over ranks.
    return_valid_counts : bool
        Whether to move what is present to the front of each row, in its order, and to return how many there are.
    out : int32 [num_tokens, NUM_TOPK_TOKENS], optional
    valid_counts_out : int32 [num_tokens], optional
    idx_mapping : int32 [num_requests], optional
        The row of the block table of each request.
    BLOCK_N, prefill_workspace_rank_stride, dcp_rank, cp_kv_cache_interleave_size
        Have no effect.

    Returns
    -------
    out : int32 [num_tokens, NUM_TOPK_TOKENS]
        ``block_table[req, position // BLOCK_SIZE] * BLOCK_STRIDE_ROWS + position % BLOCK_SIZE``, or
        ``prefill_workspace_starts[prefill] + position``; -1 for an absent position and one past the table.
    valid_counts : int32 [num_tokens]
        With ``return_valid_counts`` only.

    Raises
    ------
    InvalidArgumentError
    """
    if token_indices.shape[1:] != (NUM_TOPK_TOKENS,):
        raise ShapeError("token_indices", f"shape {list(token_indices.shape)}", f"[num_tokens, {NUM_TOPK_TOKENS}]")
    if dcp_size != 1:
        raise UnsupportedError("dcp_size", repr(dcp_size), "1: every rank has all tokens")
    rows = req_id if idx_mapping is None else idx_mapping[req_id.long()]
    slots: torch.Tensor = mla.to_global_indices(rows, block_table, token_indices, page_size=BLOCK_SIZE)
    if BLOCK_STRIDE_ROWS not in (None, BLOCK_SIZE):
        slots = _strided(slots, BLOCK_SIZE, BLOCK_STRIDE_ROWS)
    if HAS_PREFILL_WORKSPACE:
        ids = _given("prefill_workspace_request_ids", prefill_workspace_request_ids)
        starts = _given("prefill_workspace_starts", prefill_workspace_starts)
        slots = _in_workspace(slots, token_indices, ids, starts, block_table.shape[1] * BLOCK_SIZE)
    if not return_valid_counts:
        return _into(out, slots)
    slots, counts = _compacted(slots)
    return _into(out, slots), _into(valid_counts_out, counts)


def lse2_to_lse(lse_base2: torch.Tensor) -> torch.Tensor:
    """From a logarithm to base 2 to the natural one, in float32; every LSE of this package is natural already."""
    return lse_base2.to(torch.float32) * math.log(2.0)


def _strided(slots: torch.Tensor, page_size: int, stride: int) -> torch.Tensor:
    """Slots of pages whose rows begin every ``stride`` rows."""
    return (slots // page_size * stride + slots % page_size).where(slots >= 0, -1)


def _in_workspace(
    slots: torch.Tensor, positions: torch.Tensor, ids: torch.Tensor, starts: torch.Tensor, limit: int
) -> torch.Tensor:
    """The slots of tokens of decodes, and for those of prefills the rows of their positions below ``limit``."""
    if not len(starts):
        return slots
    rows = positions + starts[ids.clamp(min=0).long()][:, None]
    rows = rows.where((positions >= 0) & (positions < limit), -1)
    return slots.where(ids[:, None] < 0, rows)


def _compacted(slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's slots that are not negative at its front, -1 behind them, and how many there are."""
    tokens, topk = slots.shape
    present = slots >= 0
    column = (present.cumsum(1) - 1).where(present, topk)  # what is absent goes to a column of its own
    front = slots.new_full((tokens, topk + 1), -1).scatter_(1, column, slots)
    return front[:, :topk].contiguous(), present.sum(1, dtype=torch.int32)


def _given(argument: str, tensor: torch.Tensor | None) -> torch.Tensor:
    if tensor is None:
        raise DTypeError(argument, "NoneType", "an int32 tensor, because HAS_PREFILL_WORKSPACE is True")
    return tensor


def _into(out: torch.Tensor | None, made: torch.Tensor) -> torch.Tensor:
    return made if out is None else out.copy_(made)
