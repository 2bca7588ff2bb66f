"""NumPy arrays give NumPy arrays, with the bytes of torch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.problems import SCALE, Decode
from tests.support.rows import Row
from tests.support.sparse import SparseDecode, SparsePrefill

NATIVE = {"where": lambda row: row.arch == "cpu" and row.q_dtype != "bf16" and row.kv_dtype != "e4m3"}


def arrays(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def assert_equal(got: Any, want: torch.Tensor) -> None:
    assert isinstance(got, np.ndarray)
    assert got.dtype == want.numpy().dtype
    assert got.tobytes() == want.contiguous().numpy().tobytes()


@pytest.mark.op("decode", **NATIVE)
@pytest.mark.parametrize("strided", [False, True])
def test_decode(variant: Row, strided: bool) -> None:
    import mla_kernels as mla

    problem = Decode(variant.name, strided=strided, q_len=2)
    inputs = problem.tensors()
    want = mla.decode(**inputs, **problem.scalars(), **problem.options)
    for got_part, want_part in zip(
        mla.decode(**arrays(inputs), **problem.scalars(), **problem.options), want, strict=True
    ):
        assert_equal(got_part, want_part)


@pytest.mark.op("decode", where=lambda row: row.arch == "cpu" and row.q_dtype != "bf16" and row.kv_dtype == "e4m3")
def test_decode_from_codes(variant: Row) -> None:
    import mla_kernels as mla

    problem = Decode(variant.name, uint8=True)
    inputs = problem.tensors()
    want = mla.decode(**inputs, **problem.scalars(), **problem.options)
    for got_part, want_part in zip(
        mla.decode(**arrays(inputs), **problem.scalars(), **problem.options), want, strict=True
    ):
        assert_equal(got_part, want_part)


@pytest.mark.op("decode", **NATIVE)
def test_outputs_and_read_only_inputs(variant: Row) -> None:
    import mla_kernels as mla

    problem = Decode(variant.name)
    inputs = arrays(problem.tensors())
    for array in inputs.values():
        array.flags.writeable = False
    out = np.full((4, 1, 16, variant.form.d_v), np.nan, dtype=inputs["q"].dtype)
    lse = np.full((4, 16, 1), np.nan, dtype=np.float32)
    mla.decode(**inputs, **problem.scalars(), **problem.options, out=out, lse=lse)
    problem.compare(torch.from_numpy(out), torch.from_numpy(lse), *problem.expected())


@pytest.mark.op("sparse_decode", **NATIVE)
def test_sparse_decode(variant: Row) -> None:
    import mla_kernels as mla

    problem = SparseDecode(variant.name, counts=True, sink=True, extra_topk=5)
    inputs = problem.tensors()
    scalars = problem.scalars() | {"kv_dtype": variant.kv_dtype}
    want = mla.sparse_decode(**inputs, **scalars)
    for got_part, want_part in zip(mla.sparse_decode(**arrays(inputs), **scalars), want, strict=True):
        assert_equal(got_part, want_part)


@pytest.mark.op("sparse_prefill", **NATIVE)
@pytest.mark.parametrize("has_rope", [True, False])
def test_sparse_prefill(variant: Row, has_rope: bool) -> None:
    import mla_kernels as mla

    inputs = SparsePrefill(variant.name).tensors()
    if not has_rope and variant.has_usual_widths:
        inputs |= {name: inputs[name][..., : variant.form.latent] for name in ("q", "kv")}
    want = mla.sparse_prefill(**inputs, softmax_scale=SCALE)
    for got_part, want_part in zip(mla.sparse_prefill(**arrays(inputs), softmax_scale=SCALE), want, strict=True):
        assert_equal(got_part, want_part)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_caches_and_merge(dtype: str) -> None:
    import mla_kernels as mla

    source = np.random.default_rng(1)
    latent, rope = (source.standard_normal((6, n)).astype(dtype) for n in (512, 64))
    cache, slots = np.zeros((2, 4, 576), dtype), np.array([7, 0, -1, 3, 1, 5])
    mla.store_kv(latent, rope, cache, slots)
    name = {"float32": "fp32", "float16": "fp16"}[dtype]
    rows = mla.gather_kv(cache, slots.astype(np.int32), out_dtype=name)
    kept = slots >= 0
    assert rows[kept].tobytes() == np.concatenate([latent, rope], -1)[kept].tobytes()
    assert not rows[~kept].any()
    o, lse = source.standard_normal((1, 3, 2, 8)).astype(dtype), source.standard_normal((1, 3, 2)).astype("float32")
    out, merged = mla.merge_states(o, lse)
    assert isinstance(out, np.ndarray)
    assert (out == o[0]).all()
    assert (merged == lse[0]).all()
    table, tokens = np.array([[3, 1]], np.int32), np.array([[0, 5, 8, -1]], np.int32)
    got = mla.to_global_indices(np.zeros(1, np.int32), table, tokens, page_size=4)
    assert got.tolist() == [[12, 5, -1, -1]]
