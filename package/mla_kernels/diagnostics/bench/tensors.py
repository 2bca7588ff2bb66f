"""Random tensors of a cell, on any device."""

from __future__ import annotations

import torch

import mla_kernels
from mla_kernels.diagnostics.bench.problems import Problem
from mla_kernels.formats import D_V, format_named, page_bytes

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_WHOLE = 128
"""Tokens whose multiples a block table covers: kernels with tiles of so many ask for it."""
_SEED = 576
_MOST_E4M3 = 448.0


class Tensors:
    """Problems of one cell: queries and tables of each, and one cache with disjoint pages for all, in random order.

    Attributes
    ----------
    cell : Problem
    q : [count, batch, q_len, num_heads, d_qk]
    kv_cache : [num_pages, page_size, row]
    block_table : int32 [count, batch, table_width]
        0 past the pages of a request.
    seq_lens : int32 [batch]
        The same in each problem.
    out : [count, batch, q_len, num_heads, d_v]
    lse : float32 [count, batch, num_heads, q_len]
    """

    def __init__(self, cell: Problem, device: torch.device, count: int = 1) -> None:
        dtype = DTYPES[cell.q_dtype]
        shape = (count, cell.batch, cell.q_len, cell.num_heads)
        self.cell = cell
        generator = seeded(device)
        self.q = torch.randn(*shape, cell.d_qk, dtype=dtype, device=device, generator=generator)
        self.out = torch.empty(*shape, cell.form.d_v, dtype=dtype, device=device)
        per_head = count, cell.batch, cell.num_heads, cell.q_len
        self.lse = torch.empty(per_head, dtype=torch.float32, device=device)
        self.seq_lens = torch.tensor(cell.seq_lens, dtype=torch.int32, device=device)
        self.block_table = _tables(self.seq_lens, cell.page_size, count, generator)
        num_pages = count * int(_pages(self.seq_lens, cell.page_size).sum())
        rows = torch.randn(num_pages * cell.page_size, cell.d_qk, dtype=dtype, device=device, generator=generator)
        if cell.kv_mean:
            rows += cell.kv_mean
        self.kv_cache = stored(rows, cell.kv_dtype, cell.page_size)


def _pages(seq_lens: torch.Tensor, page_size: int) -> torch.Tensor:
    return (seq_lens + page_size - 1) // page_size


def _tables(seq_lens: torch.Tensor, page_size: int, count: int, generator: torch.Generator) -> torch.Tensor:
    pages = _pages(seq_lens, page_size)
    step = max(1, _WHOLE // page_size)
    width = -(-int(pages.max()) // step) * step
    used = torch.arange(width, device=seq_lens.device) < pages[:, None]
    order = torch.randperm(count * int(pages.sum()), dtype=torch.int32, device=seq_lens.device, generator=generator)
    tables = torch.zeros(count, len(seq_lens), width, dtype=torch.int32, device=seq_lens.device)
    tables[:, used] = order.view(count, -1)
    return tables


def seeded(device: torch.device) -> torch.Generator:
    """A generator of its own, with the same seed in each process.

    torch's default generator refuses to go on after another library's launches could not be captured.
    """
    return torch.Generator(device).manual_seed(_SEED)


def stored(rows: torch.Tensor, kv_dtype: str, page_size: int) -> torch.Tensor:
    """The rows [n, d_qk] as a paged cache; those with scales are quantised by ``store_kv``."""
    form = format_named(kv_dtype, rows.shape[1], D_V[rows.shape[1]])
    if kv_dtype in DTYPES:
        return rows.view(-1, page_size, form.d_qk)
    if not form.is_bytes:
        return rows.clamp(-_MOST_E4M3, _MOST_E4M3).to(torch.float8_e4m3fn).view(-1, page_size, form.d_qk)
    page = page_bytes(form, page_size)
    pages = torch.empty((len(rows) // page_size, page), dtype=torch.uint8, device=rows.device)
    cache = pages.as_strided((len(pages), page_size, form.token_bytes), (page, form.token_bytes, 1))
    rope = rows[:, form.latent :] if form.rope else None
    slots = torch.arange(len(rows), device=rows.device)
    mla_kernels.store_kv(rows[:, : form.latent], rope, cache, slots, kv_dtype=kv_dtype)
    return cache
