"""Names that the matrix knows, for type checkers, and the fields of a config. Generated from the matrix."""

from __future__ import annotations

from typing import Literal

ABI_HASH = "37a74483f1e08d68"
FIELDS = (
    "op",
    "arch",
    "q_dtype",
    "kv_dtype",
    "out_dtype",
    "in_dtype",
    "load",
    "schedule",
    "d_qk",
    "d_v",
    "extra_kv_dtype",
    "compute_dtype",
    "kv_layout",
    "page_size",
    "num_heads",
    "q_len",
    "topk",
    "head_dim",
)
DTYPES = (
    "fp32",
    "fp16",
    "bf16",
    "e4m3",
    "fp8_ds_mla",
    "fp8_ds_v4",
    "fp8_ds_v41",
    "fp4_ds_v41",
    "mxfp4_ds_v4",
    "nvfp4_ds_mla",
    "e8m0",
    "e2m1",
)
KV_LAYOUTS = (
    "contiguous",
    "paged",
)
INSTEAD = {
    "out_dtype": {
        "e4m3": "bf16",
    },
}
"""The type that a field has where it would follow the input's, but takes no such type."""

OpName = Literal[
    "decode",
    "sparse_decode",
    "sparse_prefill",
    "merge_states",
    "store_kv",
    "gather_kv",
    "to_global_indices",
]

Arch = Literal[
    "cpu",
    "sm100f",
    "sm90a",
]

KvLayout = Literal[
    "contiguous",
    "paged",
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
    "fp8_ds_v4",
    "fp8_ds_v41",
    "fp4_ds_v41",
    "mxfp4_ds_v4",
    "nvfp4_ds_mla",
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
    "tma",
    "cpasync",
    "gather",
]

Schedule = Literal[
    "split",
    "rows",
    "individual",
    "persistent",
    "reduction",
    "rows_m64",
    "swap_ab",
]

ExtraKvDType = Literal[
    "same",
    "fp4_ds_v41",
]

ComputeDType = Literal[
    "exact",
    "e4m3",
]
