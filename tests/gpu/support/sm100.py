"""The attention variants of the sm100 payload, and problems that they serve."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.support.tensors import poisoned_workspace
from tests.support import memory
from tests.support.problems import Decode
from tests.support.rows import Row, rows

ARCH = "sm100f"
DENSE = [row for row in rows("decode") if row.arch == ARCH]
SPARSE_DECODE = [row for row in rows("sparse_decode") if row.arch == ARCH]
TMA = [row for row in DENSE if row.load == "tma"]
CPASYNC = [row for row in DENSE if row.load == "cpasync"]
GATHERING = [row for row in SPARSE_DECODE if row.load == "gather"]
SPLITTING = [row for row in DENSE if row.schedule == "individual"]


def each(variants: list[Row]) -> pytest.MarkDecorator:
    """Every one of the variants."""
    return pytest.mark.parametrize("variant", variants, ids=[row.name for row in variants])


def page_of(variant: Row) -> int:
    """A page size that the variant's load serves."""
    return 128 if variant.load == "tma" else 64


def problem(variant: Row, **options: Any) -> Decode:
    """A problem whose unused memory is finite, as these kernels require."""
    return Decode(variant.name, **{"page_size": page_of(variant), "finite": True, **options})


def check_in_place(case: Decode) -> None:
    """Run and compare; the output of 128 heads is contiguous, between guards, and the kernel writes it in place."""
    if case.num_heads != 128:
        case.check()
        return
    inputs, (batch, tokens), d_v = case.tensors(), case.queries, case.row.form.d_v
    rows_of_out = memory.guarded((batch * tokens * 128 * d_v,), memory.DTYPES[case.row.out_dtype], "cuda", pad=64)
    out = rows_of_out.view.view(batch, tokens, 128, d_v)
    lse = memory.guarded((batch, 128, tokens), torch.float32, "cuda", pad=1)
    workspace = poisoned_workspace()
    case.launch(inputs, out=out, lse=lse.view, workspace=workspace)
    rows_of_out.assert_guards("out")
    lse.assert_guards("lse")
    case.compare(out, lse.view, *case.expected())
