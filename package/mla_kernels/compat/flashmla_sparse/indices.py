"""From an indexer's positions to slots of the cache, and between conventions of the LSE."""

# ruff: noqa: N803 (the names are theirs)

from __future__ import annotations

import math

import torch

import mla_kernels as mla
from mla_kernels.compat._arguments import require_torch, shape_of
from mla_kernels.errors import DTypeError, UnsupportedError, ValueRangeError
from mla_kernels.scalars import count, flag


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
    require_torch(
        req_id=req_id, block_table=block_table, token_indices=token_indices, idx_mapping=idx_mapping,
        prefill_workspace_request_ids=prefill_workspace_request_ids, prefill_workspace_starts=prefill_workspace_starts,
    )  # fmt: skip
    page_size, topk = count("BLOCK_SIZE", BLOCK_SIZE, 1), count("NUM_TOPK_TOKENS", NUM_TOPK_TOKENS)
    stride = page_size if BLOCK_STRIDE_ROWS is None else count("BLOCK_STRIDE_ROWS", BLOCK_STRIDE_ROWS)
    tokens, _ = shape_of("token_indices", token_indices, "num_tokens", topk)
    shape_of("req_id", req_id, tokens)
    _require_results(tokens, topk, out, valid_counts_out)
    if (ranks := count("dcp_size", dcp_size)) != 1:
        raise UnsupportedError("dcp_size", str(ranks), "1: every rank has all tokens")
    rows = req_id if idx_mapping is None else _mapped(idx_mapping, req_id)
    slots: torch.Tensor = mla.to_global_indices(rows, block_table, token_indices, page_size=page_size)
    if stride != page_size:
        slots = _strided(slots, page_size, stride)
    if flag("HAS_PREFILL_WORKSPACE", HAS_PREFILL_WORKSPACE):
        ids = _given("prefill_workspace_request_ids", prefill_workspace_request_ids, tokens)
        starts = _given("prefill_workspace_starts", prefill_workspace_starts, "num_prefills")
        slots = _in_workspace(slots, token_indices, ids, starts, block_table.shape[1] * page_size)
    if not flag("return_valid_counts", return_valid_counts):
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


def _require_results(tokens: int, topk: int, out: object, counts: object) -> None:
    """Refuse results that are not int32 tensors of their shapes."""
    require_torch(out=out, valid_counts_out=counts)
    for name, tensor, shape in (("out", out, (tokens, topk)), ("valid_counts_out", counts, (tokens,))):
        if isinstance(tensor, torch.Tensor):
            shape_of(name, tensor, *shape)
            _require_int32(name, tensor)


def _mapped(rows: torch.Tensor, requests: torch.Tensor) -> torch.Tensor:
    """The row of the block table of each request; a CPU refuses requests that have none."""
    (number,) = shape_of("idx_mapping", rows, "num_requests")
    _require_int32("req_id", requests)
    if requests.is_cpu and ((requests < 0) | (requests >= number)).any():
        raise ValueRangeError("req_id", f"{requests.min()} to {requests.max()}", f"0 to {number - 1}")
    return rows[requests.long()]


def _given(argument: str, tensor: torch.Tensor | None, extent: int | str) -> torch.Tensor:
    if tensor is None:
        raise DTypeError(argument, "NoneType", "an int32 tensor, because HAS_PREFILL_WORKSPACE is True")
    shape_of(argument, tensor, extent)
    _require_int32(argument, tensor)
    return tensor


def _require_int32(argument: str, tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.int32:
        raise DTypeError(argument, str(tensor.dtype).removeprefix("torch."), "int32")


def _into(out: torch.Tensor | None, made: torch.Tensor) -> torch.Tensor:
    return made if out is None else out.copy_(made)
