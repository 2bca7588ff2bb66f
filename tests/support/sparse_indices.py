"""Problems of vLLM's index conversion, and what it answers, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from mla_kernels.compat.vllm import triton_convert_req_index_to_global_index as convert

PAGE, WIDTH, REQUESTS = 16, 6, 4


@dataclass(frozen=True)
class Conversion:
    """Positions of which some are absent, past the table, or on a page that the table has not.

    Attributes
    ----------
    prefills : int
        Requests, the last ones, whose positions become rows of a workspace.
    stride : int
        Rows from page to page.
    mapped : bool
        Whether requests have other rows of the table than their own.
    counted, given : bool
        Whether counts are asked for, and whether results go into tensors of the caller.
    """

    device: str
    tokens: int = 9
    topk: int = 40
    prefills: int = 0
    stride: int = PAGE
    mapped: bool = False
    counted: bool = False
    given: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments on the device."""
        source = torch.Generator().manual_seed(self.tokens * self.topk)
        tensors = {
            "req_id": torch.arange(self.tokens) % REQUESTS,
            "block_table": torch.randint(0, 50, (REQUESTS, WIDTH), generator=source),
            "token_indices": torch.randint(-30, (WIDTH + 1) * PAGE, (self.tokens, self.topk), generator=source),
        }
        tensors["block_table"][1, 2] = -1
        if self.tokens:
            tensors["token_indices"][0, ::3] = torch.iinfo(torch.int32).max
        if self.prefills:
            tensors["prefill_workspace_request_ids"] = tensors["req_id"] - (REQUESTS - self.prefills)
            tensors["prefill_workspace_starts"] = torch.arange(self.prefills) * 1000
        if self.mapped:
            tensors["idx_mapping"] = torch.tensor([2, 0, 3, 1])
        if self.given:
            tensors["out"] = torch.full((self.tokens, self.topk), 77)
            tensors |= {"valid_counts_out": torch.full((self.tokens,), 77)} if self.counted else {}
        return {name: tensor.int().to(self.device) for name, tensor in tensors.items()} | {
            "BLOCK_SIZE": PAGE,
            "NUM_TOPK_TOKENS": self.topk,
            "BLOCK_STRIDE_ROWS": self.stride if self.stride != PAGE else None,
            "HAS_PREFILL_WORKSPACE": self.prefills > 0,
            "return_valid_counts": self.counted,
        }

    def expected(self) -> tuple[list[list[int]], list[int]]:
        """Return the slots, at the front where they are counted, and the counts."""
        given = {name: each.tolist() for name, each in self.arguments().items() if isinstance(each, torch.Tensor)}
        rows = []
        for token, request in enumerate(given["req_id"]):
            prefill = request - (REQUESTS - self.prefills)
            table = given["block_table"][given["idx_mapping"][request] if self.mapped else request]
            row = []
            for position in given["token_indices"][token]:
                page = table[position // PAGE] if 0 <= position < WIDTH * PAGE else None
                if page is None or (page < 0 and prefill < 0):
                    row.append(-1)
                elif prefill >= 0 and self.prefills:
                    row.append(prefill * 1000 + position)
                else:
                    row.append(page * self.stride + position % PAGE)
            rows.append(row)
        counts = [sum(slot >= 0 for slot in row) for row in rows]
        if self.counted:
            rows = [sorted(row, key=lambda slot: slot < 0) for row in rows]
        return rows, counts

    def check(self) -> None:
        """Convert, and compare with the loop."""
        given = self.arguments()
        got = convert(**given)
        slots, counts = got if isinstance(got, tuple) else (got, None)
        want_slots, want_counts = self.expected()
        assert slots.shape == (self.tokens, self.topk)
        assert slots.is_contiguous()
        assert slots.tolist() == want_slots
        assert (counts is not None) == self.counted
        assert counts is None or counts.tolist() == want_counts
        assert not self.given or slots is given["out"]
        assert not self.given or counts is given.get("valid_counts_out")
