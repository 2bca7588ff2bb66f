"""A matrix of any size, to show that the time to expand, validate and render grows with the number of variants."""

from __future__ import annotations

import time
from dataclasses import replace

from codegen.model import Arch, Matrix, Range, Row
from codegen.render import render
from codegen.validate import checked

VARIANTS_PER_ROW = 10
SIZES = (1_000, 3_000, 10_000)


def synthetic(count: int, pattern: Matrix) -> Matrix:
    """A matrix of ``count`` variants (a multiple of ten) of decode, in rows of ten, under ``pattern``'s rules."""
    rows = count // VARIANTS_PER_ROW
    domains = {
        **pattern.domains,
        "arch": ("cpu", "synthetic"),
        "schedule": tuple(f"s{number}" for number in range(rows)),
        "page_size": Range(1, rows),
    }
    fields = {
        "op": "decode",
        "arch": "synthetic",
        "q_dtype": ["fp16", "bf16"],
        "kv_dtype": ["fp32", "fp16", "bf16", "e4m3", "fp8_ds_mla"],
        "out_dtype": "bf16",
        "load": "direct",
        "kv_layout": {"accepts": ["paged"]},
        "num_heads": {"accepts": {"min": 1}},
        "q_len": {"accepts": {"min": 1}},
    }
    kernels = tuple(
        Row(
            f"synthetic row {number}",
            {**fields, "schedule": f"s{number}", "page_size": {"accepts": [number + 1]}, "priority": number},
        )
        for number in range(rows)
    )
    arch = Arch("synthetic", "cpu", "cpu")
    return replace(pattern, domains=domains, archs={"synthetic": arch}, rows=kernels, excludes=())


def seconds(count: int, pattern: Matrix) -> float:
    """Wall time to expand, validate and render ``count`` variants."""
    matrix = synthetic(count, pattern)
    start = time.perf_counter()
    render(matrix, checked(matrix))
    return time.perf_counter() - start
