"""A matrix of any size, to show that the time to expand, validate and render grows with the number of variants."""

from __future__ import annotations

import time
from dataclasses import replace

from codegen.model import Allow, Arch, Box, Matrix, Range, Row, Values
from codegen.models.peers import Peers
from codegen.render import render
from codegen.validate import checked

VARIANTS_PER_ROW = 10
SIZES = (1_000, 3_000, 10_000)


def synthetic(count: int, pattern: Matrix) -> Matrix:
    """A matrix of ``count`` variants (a multiple of ten) of decode, in rows of ten, under ``pattern``'s rules."""
    rows = count // VARIANTS_PER_ROW
    domains = {
        **pattern.domains,
        "arch": ("synthetic",),
        "schedule": tuple(f"s{number}" for number in range(rows)),
        "page_size": Range(1, rows),
    }
    traits = {**pattern.traits, "schedule": replace(pattern.traits["schedule"], enum=None)}
    fields: dict[str, Values] = {
        **pattern.unnamed("decode"),
        "q_dtype": ("fp16", "bf16"),
        "kv_dtype": ("fp32", "fp16", "bf16", "e4m3", "fp8_ds_mla"),
        "out_dtype": ("bf16",),
        "load": ("direct",),
        "kv_layout": ("paged",),
    }
    kernels = tuple(
        Row(
            f"synthetic row {number}",
            "decode",
            ("synthetic",),
            {**fields, "schedule": (f"s{number}",), "page_size": (number + 1,)},
            number,
        )
        for number in range(rows)
    )
    arch = Arch("synthetic", "cpu", "cpu")
    box = Box("synthetic", {name: domains[name] for name in pattern.fields("decode")}, "cpu", {})
    allow = Allow("synthetic", "decode", "synthetic", "cpu", (box,))
    return replace(
        pattern,
        domains=domains,
        traits=traits,
        archs={"synthetic": arch},
        rows=kernels,
        allows=(allow,),
        peers=Peers(),
    )


def seconds(count: int, pattern: Matrix) -> float:
    """Wall time to expand, validate and render ``count`` variants."""
    matrix = synthetic(count, pattern)
    start = time.perf_counter()
    render(matrix, checked(matrix))
    return time.perf_counter() - start
