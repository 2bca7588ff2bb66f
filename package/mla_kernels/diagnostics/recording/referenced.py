"""The part of a cache that a call refers to: a pool of pages may fill a GPU, and a call reads a few of them.

What refers to the pool is numbered anew, so that the kept pages alone are a pool for the same call. What is out of
range stays out of range. Entries that do not count become -1: those of a block table past the length, and indices past
``topk_length`` that are out of range; an index there that is in range keeps its row, because a kernel that reads it
wrongly should do so again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Reference(NamedTuple):
    """Which argument refers to a cache, and by what: the number of a page, or a slot of the whole pool."""

    cache: str
    by: str
    lengths: str
    unit: str


REFERENCES: dict[str, tuple[Reference, ...]] = {
    "decode": (Reference("kv_cache", "block_table", "seq_lens", "page"),),
    "sparse_decode": (
        Reference("kv_cache", "indices", "topk_length", "slot"),
        Reference("extra_kv_cache", "extra_indices", "extra_topk_length", "slot"),
    ),
    "sparse_prefill": (
        Reference("kv", "indices", "topk_length", "slot"),
        Reference("extra_kv", "extra_indices", "extra_topk_length", "slot"),
    ),
    "merge_states": (),
    "store_kv": (Reference("kv_cache", "slot_mapping", "", "slot"),),
    "gather_kv": (Reference("kv_cache", "indices", "", "slot"),),
    "to_global_indices": (),
}
"""By op; a cache that nothing refers to is kept whole."""

_CHUNK = 64 << 20
"""Bytes of a pool that are gathered at once: a device whose memory is full has room for no more."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of as many bytes: torch gathers them, whatever their bits mean."""


def kept_pages(reference: Reference, pool: Tensor, by: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The numbers of the pages to keep, and what refers to them in place of ``by``; all on the host.

    Parameters
    ----------
    reference : Reference
    pool : [num_pages, page_size, row], or [kv_len, row], whose pages have one row each
    by : integers, any shape
    lengths : integers, optional
        How many leading entries of a row of ``by`` count, tokens where it has pages; all without lengths.
    """
    count = pool.shape[0]
    size = pool.shape[1] if pool.dim() == 3 else 1
    table = by.cpu().long()
    unit = 1 if reference.unit == "page" else size
    page = torch.div(table, unit, rounding_mode="floor")
    present = (table >= 0) & (page < count)
    counted = _counted(table, lengths, size if reference.unit == "page" else 1)
    wanted = present & counted if reference.unit == "page" else present
    kept = torch.unique(page[wanted])
    if not len(kept):
        kept = torch.arange(min(count, 1), device="cpu")
    moved = torch.searchsorted(kept, page.clamp(min=0)) * unit + table % unit
    beyond = table + (len(kept) - count) * unit
    result = torch.where(wanted, moved, torch.where(counted & ~present & (table >= 0), beyond, table.clamp(max=-1)))
    return kept, result.to(by.dtype)


def gathered(pool: Tensor, pages: Tensor | None) -> Tensor:
    """Pages of a pool, or all of it, as a contiguous tensor of the host that shares no memory with it."""
    if pages is None:
        return pool.detach().to("cpu", copy=True).contiguous()
    bits = pool.detach().view(_BITS[pool.element_size()])
    step = max(1, _CHUNK // max(1, bits[:1].numel() * bits.element_size()))
    result = torch.empty((len(pages), *pool.shape[1:]), dtype=bits.dtype, device="cpu")
    for start in range(0, len(pages), step):
        chunk = pages[start : start + step]
        result[start : start + step] = bits[chunk.to(bits.device)].cpu()
    return result.view(pool.dtype)


def _counted(table: Tensor, lengths: Tensor | None, per_entry: int) -> Tensor:
    """Which entries of a row count."""
    if lengths is None:
        return torch.ones_like(table, dtype=torch.bool)
    limit = lengths.cpu().long()
    while limit.dim() < table.dim():
        limit = limit[..., None]
    position = torch.arange(table.shape[-1], device="cpu")
    return (position * per_entry < limit).expand(table.shape)
