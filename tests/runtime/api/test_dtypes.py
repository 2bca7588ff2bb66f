"""Element types are accepted by every name that torch, NumPy and ml_dtypes have for them, wherever a dtype is."""

from __future__ import annotations

import re
import subprocess
import sys

import mla_kernels as mla
import numpy as np
import pytest
import torch
from mla_kernels.errors import ValueRangeError
from mla_kernels.tensors import element_name

NAMES = {
    "fp32": ["fp32", "float32", "torch.float32", torch.float32, torch.float, np.float32, np.dtype("float32")],
    "fp16": ["fp16", "float16", "torch.float16", torch.float16, torch.half, np.float16, np.dtype("float16")],
    "bf16": ["bf16", "bfloat16", "torch.bfloat16", torch.bfloat16],
    "e4m3": ["e4m3", "float8_e4m3fn", torch.float8_e4m3fn],
    "fp8_ds_mla": ["fp8_ds_mla"],
}
CASES = [(dtype, name) for name, dtypes in NAMES.items() for dtype in dtypes]


@pytest.mark.parametrize(("dtype", "name"), CASES, ids=str)
def test_every_spelling(dtype, name):
    assert element_name(dtype) == name
    query = "bf16" if name in ("e4m3", "fp8_ds_mla") else name
    kernel = mla.lookup(op="decode", arch="cpu", q_dtype=query, kv_dtype=dtype)
    assert kernel.config["kv_dtype"] == name
    assert mla.explain(op="decode", arch="cpu", q_dtype=query, kv_dtype=dtype).chosen == kernel.variant
    assert kernel.variant in mla.variants(op="decode", kv_dtype=dtype)


def test_every_field_of_a_dtype():
    stated = {"q_dtype": torch.bfloat16, "kv_dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
    assert mla.lookup(op="decode", arch="cpu", **stated).variant.name == "cpu_decode_qbf16_kve4m3_obf16_direct_split"
    merge = mla.lookup(op="merge_states", arch="cpu", in_dtype=np.float32, out_dtype=torch.float16)
    assert (merge.config["in_dtype"], merge.config["out_dtype"]) == ("fp32", "fp16")


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype, name in ((ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e4m3fn, "e4m3")):
        assert element_name(dtype) == element_name(np.dtype(dtype)) == name


@pytest.mark.parametrize("dtype", [torch.float64, np.int32, "float8_e5m2", torch.uint8, float, 3])
def test_other_types_are_refused_by_name(dtype):
    with pytest.raises(ValueRangeError, match=r"q_dtype: got .*; accepts fp32, fp16, bf16, e4m3"):
        mla.lookup(op="decode", arch="cpu", q_dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, "float32", np.float32])
def test_options_of_the_ops(dtype, problem):
    rows = mla.gather_kv(
        problem.kv_cache.to(torch.float8_e4m3fn), torch.tensor([0], dtype=torch.int32), out_dtype=dtype
    )
    assert rows.dtype == torch.float32
    states, lse = torch.ones(2, 3, 4, 8), torch.zeros(2, 3, 4)
    assert mla.merge_states(states, lse, out_dtype=dtype)[0].dtype == torch.float32


def test_options_of_the_compiled_ops():
    def merge(states, lse):
        return mla.merge_states(states, lse, out_dtype=torch.bfloat16)[0]

    states, lse = torch.ones(2, 3, 4, 8), torch.zeros(2, 3, 4)
    compiled = torch.compile(merge, backend="eager", fullgraph=True)
    assert torch.equal(compiled(states, lse), merge(states, lse))


def test_names_import_no_framework():
    code = (
        "import sys, mla_kernels as mla; mla.lookup(op='decode', arch='cpu', q_dtype='bfloat16'); "
        "print(*({'torch', 'numpy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


@pytest.mark.parametrize("dtype", [1.5, (), "fp99"])
def test_a_wrong_format_of_a_second_cache_is_named(dtype):
    """Also where its rows are of two formats, so that a name must tell them apart."""
    indices = torch.zeros(1, 1, 1, dtype=torch.int32)
    cache, second = (torch.zeros(1, 2, width, dtype=torch.uint8) for width in (584, 528))
    named = {"extra_kv_cache": second, "extra_indices": indices, "extra_kv_dtype": dtype}
    with pytest.raises(ValueRangeError, match=f"^extra_kv_dtype: got {re.escape(repr(dtype))}; accepts"):
        mla.sparse_decode(torch.zeros(1, 1, 2, 512), cache, indices, softmax_scale=1.0, **named)
