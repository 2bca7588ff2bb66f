"""Random tensors of the cells of sparse attention, on any device."""

from __future__ import annotations

import torch
from mla_kernels.diagnostics.bench.tensors import DTYPES, seeded, stored
from mla_kernels.formats import LATENT

from benchmarks.ops.sparse_problems import SparseDecode, SparsePrefill

_AT_ONCE = 1 << 28
"""Numbers to sort at once."""


class SparseDecodeTensors:
    """Problems of one cell: queries and indices of each, and one cache with a part of its own for every request of all.

    Attributes
    ----------
    cell : SparseDecode
    q : [count, batch, q_len, num_heads, d_qk]
    kv_cache : [num_pages, page_size, row]
    indices : int32 [count, batch, q_len, topk]
        Distinct slots of the request's own pages, which are anywhere in the cache.
    window_cache : [num_pages, page_size, row]
        Empty where the cell has no window.
    window_indices : int32 [count, batch, q_len, window]
        The slots of the request, the same to each of its tokens.
    out : [count, batch, q_len, num_heads, 512]
    lse : float32 [count, batch, num_heads, q_len]
    """

    def __init__(self, cell: SparseDecode, device: torch.device, count: int = 1) -> None:
        dtype, generator = DTYPES[cell.q_dtype], seeded(device)
        queries = (count, cell.batch, cell.q_len)
        self.cell = cell
        self.q = torch.randn(*queries, cell.num_heads, cell.d_qk, dtype=dtype, device=device, generator=generator)
        self.out = torch.empty(*queries, cell.num_heads, LATENT, dtype=dtype, device=device)
        self.lse = torch.empty(count, cell.batch, cell.num_heads, cell.q_len, device=device)
        pages = -(-cell.seq // cell.page_size)
        order = torch.randperm(count * cell.batch * pages, device=device, generator=generator).view(-1, pages)
        positions = chosen(count * cell.batch * cell.q_len, cell.topk, cell.seq, generator).view(len(order), -1)
        slots = order.gather(1, positions // cell.page_size) * cell.page_size + positions % cell.page_size
        self.indices = slots.int().view(*queries, cell.topk)
        rows = torch.randn(order.numel() * cell.page_size, cell.d_qk, dtype=dtype, device=device, generator=generator)
        self.kv_cache = stored(rows, cell.kv_dtype, cell.page_size)
        slots = torch.arange(count * cell.batch * cell.window, dtype=torch.int32, device=device)
        rows = torch.randn(len(slots), cell.d_qk, dtype=dtype, device=device, generator=generator)
        self.window_cache = stored(rows, cell.kv_dtype, cell.page_size)
        each = slots.view(count, cell.batch, 1, cell.window)
        self.window_indices = each.expand(*queries, cell.window).contiguous()


class SparsePrefillTensors:
    """Problems of one cell.

    Attributes
    ----------
    cell : SparsePrefill
    q : [count, q_len, num_heads, d_qk]
    kv : [count, seq, d_qk]
    indices : int32 [count, q_len, topk]
        Distinct rows.
    out : [count, q_len, num_heads, 512]
    max_logits, lse : float32 [count, q_len, num_heads]
    """

    def __init__(self, cell: SparsePrefill, device: torch.device, count: int = 1) -> None:
        dtype, generator = DTYPES[cell.q_dtype], seeded(device)
        queries = (count, cell.q_len, cell.num_heads)
        self.cell = cell
        self.q = torch.randn(*queries, cell.d_qk, dtype=dtype, device=device, generator=generator)
        self.kv = torch.randn(count, cell.seq, cell.d_qk, dtype=dtype, device=device, generator=generator)
        self.indices = chosen(count * cell.q_len, cell.topk, cell.seq, generator).int().view(count, cell.q_len, -1)
        self.out = torch.empty(*queries, LATENT, dtype=dtype, device=device)
        self.max_logits, self.lse = (torch.empty(queries, device=device) for _ in range(2))


def chosen(rows: int, topk: int, out_of: int, generator: torch.Generator) -> torch.Tensor:
    """Distinct numbers below ``out_of`` in random order, int64 [rows, topk].

    The order is that of the random keys. Unsorted, ``topk`` returns numbers in ascending order on a GPU. Then blocks
    that are at the same tile of different query tokens read near rows, which come from the L2 cache.
    """
    step = max(1, _AT_ONCE // out_of)
    parts = [
        torch.rand(min(step, rows - first), out_of, device=generator.device, generator=generator).topk(topk)
        for first in range(0, rows, step)
    ]
    return torch.cat([part.indices for part in parts])
