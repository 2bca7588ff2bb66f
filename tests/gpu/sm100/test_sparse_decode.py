"""Sparse decode of the sm100 payload, but for its tensor-core kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.support.sm100 import SPARSE_DECODE, each
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
], ids=str)  # fmt: skip
def test_sparse(variant: Row, options: dict[str, Any]) -> None:
    case = SparseDecode(variant.name, **options)
    inputs = case.tensors()
    shape = (case.batch, case.q_len, case.num_heads, 512)
    lse = memory.guarded((case.batch, case.num_heads, case.q_len), torch.float32, "cuda", pad=1)
    flat = memory.guarded((shape[0] * shape[1] * shape[2] * 512,), memory.DTYPES[variant.out_dtype], "cuda", pad=64)
    case.launch(inputs, out=flat.view.view(shape), lse=lse.view)
    flat.assert_guards("out")
    lse.assert_guards("lse")
    want = case.expected(inputs)
    for_out, for_lse = tolerances(variant, SPARSE, exact_scales=True, peak=peak_of(want[1]))
    assert_close("lse", lse.view, want[1], for_lse)
    assert_close("out", flat.view.view(shape), want[0], for_out)
