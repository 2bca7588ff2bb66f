"""The results of a sparse problem: buffers of the caller's own, and their comparison with the reference."""

from __future__ import annotations

import torch
from mla_kernels.formats import LATENT
from torch import Tensor

from tests.support import memory
from tests.support.compare import SPARSE
from tests.support.sparse import SparseDecode

RESULTS = ("out", "lse", "max_logits")


def empty_results(problem: SparseDecode) -> dict[str, Tensor]:
    """``out``, ``lse`` and ``max_logits`` for a launch to write into."""
    batch, q_len, heads = problem.batch, problem.q_len, problem.num_heads
    out = torch.empty(batch, q_len, heads, LATENT, dtype=memory.DTYPES[problem.row.out_dtype], device="cuda")
    lse, max_logits = (torch.empty(batch, heads, q_len, device="cuda") for _ in range(2))
    return {"out": out, "lse": lse, "max_logits": max_logits}


def compare_results(problem: SparseDecode, results: dict[str, Tensor], inputs: dict[str, Tensor] | None = None) -> None:
    """Compare results with the reference, over the problem's own inputs or over others."""
    want = problem.expected() if inputs is None else problem.expected(inputs)
    problem.compare(results, dict(zip(RESULTS, want, strict=True)), SPARSE)
