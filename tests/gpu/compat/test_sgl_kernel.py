"""sgl_kernel's adapter on a GPU: the workspace that it sizes is enough for every number of heads."""

from __future__ import annotations

import itertools

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.compat.sgl_kernel import cutlass_mla_decode, cutlass_mla_get_workspace_size

from tests.support.compare import DENSE, assert_close
from tests.support.problems import random

SPLITS = [-1, 1, 2, 7, 64]


@pytest.mark.parametrize("num_kv_splits", SPLITS)
@pytest.mark.parametrize("batch", [1, 2, 33, 200])
def test_workspace_size_is_enough_for_any_number_of_heads(arch: str, num_kv_splits: int, batch: int) -> None:
    size = cutlass_mla_get_workspace_size(4096, batch, num_kv_splits=num_kv_splits)
    served = [row for row in mla.variants(op="decode", arch=arch) if row.baked["q_dtype"] == row.baked["kv_dtype"]]
    assert served
    for row, num_heads in itertools.product(served, range(1, 129)):
        if num_heads in row.accepts["num_heads"]:
            kernel = mla.lookup(op="decode", arch=arch, kv_layout="paged", **row.baked)
            splits = max(num_kv_splits, 0)
            needed = kernel.workspace_size(
                batch=batch, q_len=1, num_heads=num_heads, max_splits=splits, page_size=128, table_width=32
            )
            assert needed <= size, (row.name, num_heads)


@pytest.mark.parametrize("num_kv_splits", SPLITS)
@pytest.mark.parametrize("num_heads", [1, 16, 20, 32, 64, 96, 128])
@pytest.mark.parametrize("page_size", [16, 64, 128])
def test_decode(arch: str, num_kv_splits: int, num_heads: int, page_size: int) -> None:
    source, lengths = torch.Generator().manual_seed(0), (0, 1, 300, 4096)
    width = 4096 // page_size
    table = torch.randperm(4 * width, generator=source).int().view(4, width)
    cache = random(source, 4 * width, page_size, 576, deviation=0.1).bfloat16()
    q = random(source, 4, num_heads, 576, deviation=5.0).bfloat16()
    size = cutlass_mla_get_workspace_size(4096, 4, num_kv_splits=num_kv_splits)
    out = cutlass_mla_decode(
        q[..., :512].cuda(), q[..., 512:].cuda(), cache.cuda(), torch.tensor(lengths).int().cuda(), table.cuda(),
        torch.empty(size, dtype=torch.uint8, device="cuda"), 192**-0.5, num_kv_splits,
    )  # fmt: skip
    seen = torch.tensor(lengths, dtype=torch.int32)
    want, _ = reference.decode(q[:, None], cache, table, seen, softmax_scale=192**-0.5)
    assert_close("out", out.cpu(), want[:, 0], DENSE)
