"""Names that the matrix knows, for type checkers. Generated from the matrix."""

from __future__ import annotations

from typing import Literal

ABI_HASH = "3996fef91e26952c"
STATUSES = (
    "ok",
    "dtype",
    "device",
    "shape",
    "stride",
    "alignment",
    "range",
    "workspace",
    "unsupported",
    "internal",
)

Arch = Literal[
    "cpu",
]

OpName = Literal[
    "decode",
    "sparse_decode",
    "sparse_prefill",
    "merge_states",
    "store_kv",
    "gather_kv",
    "to_global_indices",
]

QDType = Literal[
    "fp32",
    "fp16",
    "bf16",
    "e4m3",
]

KvDType = Literal[
    "fp32",
    "fp16",
    "bf16",
    "e4m3",
    "fp8_ds_mla",
]

OutDType = Literal[
    "fp32",
    "fp16",
    "bf16",
]

InDType = Literal[
    "fp32",
    "fp16",
    "bf16",
]

Load = Literal[
    "direct",
]

Schedule = Literal[
    "split",
    "rows",
]

KvLayout = Literal[
    "contiguous",
    "paged",
]
