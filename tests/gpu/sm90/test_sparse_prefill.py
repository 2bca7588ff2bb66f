"""Sparse prefill of the sm90 payload: the suite of the op, and prompts that fill a GPU."""

from __future__ import annotations

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference

from tests.gpu.support.sm90 import ARCH, each_sparse_prefill
from tests.kernels.test_exact import test_sparse_prefill_selects_one_key
from tests.kernels.test_sparse_prefill import *  # noqa: F403
from tests.support import memory
from tests.support.compare import PREFILL, assert_close
from tests.support.problems import SCALE, tolerances
from tests.support.rows import Row
from tests.support.sparse import SparsePrefill
from tests.support.variants import range_over

__all__ = ["test_sparse_prefill_selects_one_key"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    range_over(metafunc, lambda row: row.arch == ARCH)


@each_sparse_prefill
@pytest.mark.parametrize("num_heads", [32, 64, 96, 128])
@pytest.mark.parametrize("q_len", [132, 600])
def test_prompts(variant: Row, q_len: int, num_heads: int) -> None:
    heads = variant.heads(num_heads)
    SparsePrefill(variant.name, q_len=q_len, num_heads=heads, kv_len=3000, topk=192, absent=0.0, sink=True).check()


@each_sparse_prefill
def test_seventy_thousand_query_tokens(variant: Row) -> None:
    """The outputs of some of them are compared, at both ends and between."""
    tokens, heads, topk = 70_000, 3, 64
    source = torch.Generator("cuda").manual_seed(1)
    dtype = memory.DTYPES[variant.q_dtype]
    q = torch.randn(tokens, heads, 576, generator=source, device="cuda").to(dtype)
    kv = (torch.randn(5000, 576, generator=source, device="cuda") / 8).to(dtype)
    indices = torch.randint(-5, 5000, (tokens, topk), generator=source, device="cuda").int()
    got = mla.sparse_prefill(q, kv, indices, softmax_scale=SCALE)
    some = torch.cat([torch.arange(3), torch.arange(34_000, 34_003), torch.arange(tokens - 3, tokens)]).cuda()
    want = reference.sparse_prefill(q[some], kv, indices[some], softmax_scale=SCALE, dtype=torch.float64)
    for_out, for_lse = tolerances(variant, PREFILL, exact_scales=True, peak=0.0)
    for name, tolerance, mine, theirs in zip(
        ("out", "max_logits", "lse"), (for_out, for_lse, for_lse), got, want, strict=True
    ):
        assert_close(name, mine[some], theirs, tolerance)
        assert torch.isfinite(mine).all()
