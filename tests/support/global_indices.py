"""Problems of to_global_indices, and the formula that serving engines use."""

from __future__ import annotations

import torch
from torch import Tensor

from .problems import generator


def formula(req_id: Tensor, block_table: Tensor, token_indices: Tensor, *, page_size: int) -> Tensor:
    """table[req, token // page] * page + token % page; -1 for a negative token or a page beyond the table."""
    block = token_indices // page_size
    valid = (token_indices >= 0) & (block < block_table.shape[1])
    page = block_table[req_id.long()].gather(1, torch.where(valid, block, 0).long())
    return torch.where(valid, page * page_size + token_indices % page_size, -1).int()


def problem(
    seed: int, *, tokens: int, topk: int, requests: int, width: int, page_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Requests, their block table, and positions of which some lie outside it."""
    source = generator(seed)
    req_id = torch.randint(requests, (tokens,), generator=source).int()
    block_table = torch.randint(1000, (requests, width), generator=source).int()
    reach = width * page_size + page_size
    token_indices = torch.randint(-page_size, reach, (tokens, topk), generator=source).int()
    return req_id, block_table, token_indices
