"""Sparse prefill: one cache without pages, thousands of tokens, max_logits beside the log-sum-exp."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mla_kernels import reference

from tests.support.compare import PREFILL, assert_same_bytes
from tests.support.rows import Row
from tests.support.sparse import SparsePrefill

pytestmark = pytest.mark.op("sparse_prefill")


@pytest.mark.parametrize("num_heads", [1, 3, 9, 16, 63, 64, 126, 128])
def test_heads(variant: Row, num_heads: int) -> None:
    SparsePrefill(variant.name, num_heads=variant.heads(num_heads), seed=num_heads).check()


@pytest.mark.parametrize("q_len", [1, 2, 4, 67, 100, 128])
def test_query_tokens(variant: Row, q_len: int) -> None:
    SparsePrefill(variant.name, q_len=q_len, num_heads=3, kv_len=150).check()


@pytest.mark.parametrize("topk", [0, 1, 63, 64, 65, 513])
def test_topk(variant: Row, topk: int) -> None:
    SparsePrefill(variant.name, topk=topk, kv_len=600).check()


@pytest.mark.parametrize("absent", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("lead", [0, 130])
def test_absent(variant: Row, absent: float, lead: int) -> None:
    SparsePrefill(variant.name, topk=256, absent=absent, lead=lead, q_deviation=20.0).check()


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("options", [{}, {"counts": True}, {"sink": True, "extra_topk": 9}])
def test_options(variant: Row, options: dict[str, Any], split: bool, strided: bool) -> None:
    SparsePrefill(variant.name, strided=strided, split_q=split, split_kv=split, **options).check()


@pytest.mark.parametrize("num_heads", [16, 128])
@pytest.mark.parametrize("dim", [0, 1])
def test_broadcast_queries(variant: Row, dim: int, num_heads: int) -> None:
    """Tokens or heads share one query, by a stride of 0."""
    SparsePrefill(variant.name, num_heads=variant.heads(num_heads), broadcast_q=dim).check()


def test_repeated_selection_counts_twice(variant: Row) -> None:
    SparsePrefill(variant.name, kv_len=7, topk=40).check()


def without_rope(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the latents alone, and the rows that they stand for, whose rope part is zero."""
    names = [name for name in inputs if name in ("q", "kv", "extra_kv")]
    latents = {name: inputs[name][..., :512] for name in names}
    whole = {name: torch.nn.functional.pad(latents[name], (0, 64)) for name in names}
    return inputs | latents, inputs | whole


NAMES = ("out", "max_logits", "lse")
of_usual_widths = pytest.mark.op("sparse_prefill", where=lambda row: row.has_usual_widths)


@of_usual_widths
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("options", [{}, {"counts": True, "sink": True, "extra_topk": 9}])
def test_rows_without_rope(variant: Row, options: dict[str, Any], strided: bool) -> None:
    """The one-call op has a kernel for them, or gives a kernel of wider rows a rope part of zeros."""
    import mla_kernels as mla

    problem = SparsePrefill(variant.name, strided=strided, **options)
    latents, whole = without_rope(problem.tensors())
    got = mla.sparse_prefill(**latents, **problem.scalars())
    want = reference.sparse_prefill(**whole, **problem.scalars(), dtype=torch.float64)
    problem.compare(dict(zip(NAMES, got, strict=True)), dict(zip(NAMES, want, strict=True)), PREFILL)


@of_usual_widths
@pytest.mark.parametrize("strided", [False, True])
def test_a_kernel_of_wider_rows_gives_them_zeros(variant: Row, strided: bool) -> None:
    import mla_kernels as mla

    problem = SparsePrefill(variant.name, strided=strided, counts=True)
    latents, whole = without_rope(problem.tensors())
    kernel = mla.lookup(**problem.config())
    got, want = (kernel(**inputs, **problem.scalars()) for inputs in (latents, whole))
    for one, other in zip(got, want, strict=True):
        assert_same_bytes("a result", one, other, problem.reproduce())


@of_usual_widths
def test_rows_that_are_half_without_rope(variant: Row) -> None:
    import mla_kernels as mla

    problem = SparsePrefill(variant.name, sink=True)
    latents, whole = without_rope(problem.tensors())
    got = mla.sparse_prefill(**latents | {"q": whole["q"]}, **problem.scalars())
    for one, want in zip(got, mla.sparse_prefill(**whole, **problem.scalars()), strict=True):
        assert_same_bytes("a result", one, want, problem.reproduce())


@pytest.mark.slow
def test_model_shape(variant: Row) -> None:
    SparsePrefill(variant.name, q_len=12, num_heads=variant.heads(128), kv_len=3000, topk=2048).check()


def test_outputs_have_the_promised_types(variant: Row) -> None:
    import mla_kernels as mla

    inputs = SparsePrefill(variant.name).tensors()
    out, max_logits, lse = mla.sparse_prefill(**inputs, softmax_scale=1.0)
    assert (tuple(out.shape), out.dtype) == ((5, 16, variant.form.d_v), inputs["q"].dtype)
    for tensor in (max_logits, lse):
        assert (tuple(tensor.shape), tensor.dtype) == ((5, 16), torch.float32)
    assert (lse >= max_logits - 1e-5).all()  # each is rounded
