"""Sparse decode of the sm100 payload, but for its tensor-core kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.support.sm100 import GATHERING, SPARSE_DECODE, each
from tests.support import memory
from tests.support.compare import SPARSE, assert_close
from tests.support.problems import peak_of, tolerances
from tests.support.rows import Row
from tests.support.sparse import SparseDecode


@each(SPARSE_DECODE)
@pytest.mark.parametrize("options", [
    {},
    {"num_heads": 128, "topk": 256},
    {"q_len": 5, "num_heads": 3, "counts": True},
    {"lead": 40, "absent": 0.5},
    {"page_size": 1, "num_pages": 300},
    {"page_size": 48, "strided": True},
    {"topk": 512, "max_splits": 3},
    {"topk": 1},
    {"broadcast_q": 0, "num_heads": 128},
    {"broadcast_q": 0},
    {"sink": True, "q_len": 2},
    {"sink": True, "q_len": 2, "num_heads": 130},
    {"sink": True, "num_heads": 128, "topk": 300, "max_splits": 2},
], ids=str)  # fmt: skip
def test_sparse(variant: Row, options: dict[str, Any]) -> None:
    check(SparseDecode(variant.name, **options))


@each(GATHERING)
@pytest.mark.parametrize("options", [
    {"extra_topk": 9},
    {"extra_topk": 9, "sink": True, "counts": True, "q_len": 3},
    {"extra_topk": 14, "topk": 128, "num_heads": 128, "absent": 0.5},
    {"extra_topk": 8, "topk": 500, "max_splits": 3, "lead": 40, "strided": True},
    {"extra_topk": 7, "lead": 64},
], ids=str)  # fmt: skip
def test_two_caches(variant: Row, options: dict[str, Any]) -> None:
    """The last has nothing of the first cache."""
    check(SparseDecode(variant.name, **options))


def check(case: SparseDecode) -> None:
    """Run and compare; ``out`` and ``lse`` lie between guards."""
    variant = case.row
    inputs = case.tensors()
    shape = (case.batch, case.q_len, case.num_heads, case.row.form.d_v)
    lse = memory.guarded((case.batch, case.num_heads, case.q_len), torch.float32, "cuda", pad=1)
    flat = memory.guarded(
        (shape[0] * shape[1] * shape[2] * shape[3],), memory.DTYPES[variant.out_dtype], "cuda", pad=64
    )
    case.launch(inputs, out=flat.view.view(shape), lse=lse.view)
    flat.assert_guards("out")
    lse.assert_guards("lse")
    want = case.expected(inputs)
    for_out, for_lse = tolerances(variant, SPARSE, exact_scales=True, peak=peak_of(want[1]))
    assert_close("lse", lse.view, want[1], for_lse)
    assert_close("out", flat.view.view(shape), want[0], for_out)
