"""A decode small enough to read."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import torch

SCALE = 192**-0.5


class Decode:
    """A ragged decode over permuted pages of 16 tokens; ``arguments`` and ``call`` take replacements by name."""

    batch, q_len, num_heads, page_size, width = 3, 1, 4, 16, 3

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        generator = torch.Generator().manual_seed(0)
        num_pages = self.batch * self.width
        self.q = torch.randn(self.batch, self.q_len, self.num_heads, 576, generator=generator).to(dtype)
        self.kv_cache = torch.randn(num_pages, self.page_size, 576, generator=generator).to(dtype)
        self.block_table = torch.randperm(num_pages, generator=generator).int().reshape(self.batch, self.width)
        self.seq_lens = torch.tensor([0, 17, 48], dtype=torch.int32)

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {**vars(self), "softmax_scale": SCALE, **changes}

    def call(self, **changes: Any) -> Any:
        return mla.decode(**self.arguments(**changes))
