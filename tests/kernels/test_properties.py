"""Small random problems of every shape; the smallest failing one prints its own reproduction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.problems import Decode
from tests.support.rows import Row
from tests.support.sparse import SparseDecode, SparsePrefill

FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
few = settings(max_examples=25, suppress_health_check=FIXTURES)
seeds = st.integers(0, 2**31 - 1)
page_sizes = st.sampled_from([1, 2, 3, 16, 48, 61, 64, 128])


def layouts(data: st.DataObject, variant: Row) -> dict[str, Any]:
    """Draw how tensors lie in memory; a row of bytes cannot be split into latent and rope."""
    return {
        "strided": data.draw(st.booleans()),
        "split_q": data.draw(st.booleans()),
        "split_kv": not variant.form.is_bytes and variant.form.rope > 0 and data.draw(st.booleans()),
        "seed": data.draw(seeds),
    }


def selections(data: st.DataObject) -> dict[str, Any]:
    """Draw what the tokens of a sparse problem select."""
    return {
        "topk": data.draw(st.integers(0, 150)),
        "lead": data.draw(st.sampled_from([0, 1, 64, 65])),
        "absent": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "counts": data.draw(st.booleans()),
        "sink": data.draw(st.booleans()),
    }


@pytest.mark.op("decode")
@few
@given(data=st.data())
def test_decode(variant: Row, data: st.DataObject) -> None:
    Decode(
        variant.name,
        lengths=tuple(data.draw(st.lists(st.integers(0, 150), min_size=1, max_size=5))),
        num_heads=data.draw(st.integers(1, 40)),
        q_len=data.draw(st.integers(1, 6)),
        page_size=data.draw(page_sizes),
        paged=data.draw(st.booleans()),
        causal=data.draw(st.booleans()),
        max_splits=data.draw(st.none() | st.integers(1, 9)),
        batch_invariant=data.draw(st.booleans()),
        q_deviation=data.draw(st.sampled_from([0.1, 2.0, 30.0])),
        spare=data.draw(st.integers(0, 3)),
        **layouts(data, variant),
    ).check()


@pytest.mark.op("sparse_decode")
@few
@given(data=st.data())
def test_sparse_decode(variant: Row, data: st.DataObject) -> None:
    SparseDecode(
        variant.name,
        batch=data.draw(st.integers(1, 4)),
        q_len=data.draw(st.integers(1, 4)),
        num_heads=data.draw(st.integers(1, 40)),
        num_pages=data.draw(st.integers(1, 9)),
        page_size=data.draw(page_sizes),
        extra_topk=data.draw(st.integers(0, 20)),
        max_splits=data.draw(st.integers(0, 9)),
        **selections(data),
        **layouts(data, variant),
    ).check()


@pytest.mark.op("sparse_prefill")
@few
@given(data=st.data())
def test_sparse_prefill(variant: Row, data: st.DataObject) -> None:
    SparsePrefill(
        variant.name,
        q_len=data.draw(st.integers(1, 8)),
        num_heads=data.draw(st.integers(1, 40)),
        kv_len=data.draw(st.integers(1, 300)),
        **selections(data),
        **layouts(data, variant),
    ).check()
