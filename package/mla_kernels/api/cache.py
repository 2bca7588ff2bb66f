"""The ops around the KV cache in one call."""

from __future__ import annotations

from mla_kernels.api import selection
from mla_kernels.api.selection import select
from mla_kernels.tensors import Packed, Tensor, compiling


def store_kv(
    latent: Tensor,
    rope: Tensor,
    kv_cache: Packed,
    slot_mapping: Tensor,
    *,
    scale: Tensor | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> None:
    """Write new tokens into a KV cache, quantising where the cache is e4m3 or fp8_ds_mla.

    Parameters
    ----------
    latent : [num_tokens, 512], fp32 fp16 bf16
    rope : [num_tokens, 64], the type of ``latent``
    kv_cache : [num_pages, page_size, 576], the type of ``latent`` or e4m3; [..., 656] for fp8_ds_mla
    slot_mapping : int64 [num_tokens]
        Where each token goes, ``page * page_size + offset``; a token with a negative slot is skipped.
    scale : float32 [1], optional
        What one unit of an e4m3 element stands for; needed for e4m3, refused otherwise.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        torch_ops.require_defaults(workspace=workspace, stream=stream, check=check)
        torch_ops.store_kv(latent, rope, kv_cache, slot_mapping, scale)
        return
    kernel = select(selection.store_kv, (latent, kv_cache))
    kernel.launch(latent, rope, kv_cache, slot_mapping, scale=scale, workspace=workspace, stream=stream, check=check)


def gather_kv(
    kv_cache: Packed,
    indices: Tensor,
    *,
    kv_dtype: str | None = None,
    out_dtype: str | None = None,
    kv_scale: float = 1.0,
    out: Packed | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> Tensor:
    """Read selected rows of a KV cache, dequantised.

    Parameters
    ----------
    kv_cache : [num_pages, page_size, 576]; [..., 656] for fp8_ds_mla
    indices : int32 [num_rows]
        Global slots; a negative one gives a row of zeros.
    kv_dtype : str, optional
        By default what the cache's element type and row width say.
    out_dtype : str, optional
        By default the type of ``out``, otherwise of the cache; ``bf16`` for a quantised one.
    kv_scale : float
        What one unit of an e4m3 element stands for; 1 for other types.
    out : [num_rows, 576], optional

    Returns
    -------
    out : [num_rows, 576]
        A tuple of latent and rope where ``out`` was one.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        torch_ops.require_defaults(out=out, workspace=workspace, stream=stream, check=check)
        return torch_ops.gather_kv(kv_cache, indices, kv_dtype, out_dtype, kv_scale)
    kernel = select(selection.gather_kv, (kv_cache, out), kv_dtype, out_dtype)
    return kernel.launch(kv_cache, indices, kv_scale=kv_scale, out=out, workspace=workspace, stream=stream, check=check)


def to_global_indices(
    req_id: Tensor,
    block_table: Tensor,
    token_indices: Tensor,
    *,
    page_size: int,
    out: Tensor | None = None,
    workspace: Tensor | None = None,
    stream: int | None = None,
    check: bool = False,
) -> Tensor:
    """Translate positions within a request to global slots of a paged cache.

    Parameters
    ----------
    req_id : int32 [num_tokens]
        The request of each token: its row of the block table.
    block_table : int32 [num_requests, table_width]
    token_indices : int32 [num_tokens, topk]
        Positions within the request; a negative one is absent.
    page_size : int
    out : int32 [num_tokens, topk], optional

    Returns
    -------
    out : int32 [num_tokens, topk]
        ``block_table[req, position // page_size] * page_size + position % page_size``; -1 for an absent position, one
        past the table, or a page that is negative.
    """
    if compiling():
        from mla_kernels.api import torch_ops

        torch_ops.require_defaults(out=out, workspace=workspace, stream=stream, check=check)
        return torch_ops.to_global_indices(req_id, block_table, token_indices, page_size)
    kernel = select(selection.to_global_indices, (token_indices,), page_size)
    return kernel.launch(
        req_id,
        block_table,
        token_indices,
        page_size=page_size,
        out=out,
        workspace=workspace,
        stream=stream,
        check=check,
    )
