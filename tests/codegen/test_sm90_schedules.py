"""Which schedule of Hopper's decode a lookup finds: ``swap_ab`` where its few query rows are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry

GENERATED = Path(__file__).parents[2] / "generated"
REGISTRY = GENERATED / "sm90" / "registry.json"
SPARSE = ("sparse_decode", "sparse_prefill")


@pytest.fixture(scope="module")
def index() -> Index:
    return index_of("decode")


@pytest.fixture(scope="module")
def sparse() -> Index:
    return index_of("sparse_decode")


def index_of(op: str) -> Index:
    variants = Registry.parse(json.loads(REGISTRY.read_text())).variants
    return Index(variant for variant in variants if variant.op == op)


@pytest.mark.parametrize("kv_dtype", ["bf16", "e4m3"])
@pytest.mark.parametrize(
    ("numbers", "schedule"),
    [
        ({"num_heads": 1, "q_len": 1}, "swap_ab"),
        ({"num_heads": 16, "q_len": 1}, "swap_ab"),
        ({"num_heads": 16, "q_len": 3}, "rows_m64"),
        ({"num_heads": 17, "q_len": 1}, "rows_m64"),
        ({"num_heads": 128, "q_len": 1}, "rows_m64"),
        ({"num_heads": 16}, "rows_m64"),
        ({"q_len": 1}, "rows_m64"),
        ({}, "rows_m64"),
    ],
    ids=str,
)
def test_a_lookup_finds_the_schedule_for_its_query_rows(index, kv_dtype, numbers, schedule):
    config = {"arch": "sm90a", "q_dtype": "bf16", "kv_dtype": kv_dtype, "page_size": 64, **numbers}
    assert index.best(config).baked["schedule"] == schedule
    assert index.best(config | {"schedule": "rows_m64"}).baked["schedule"] == "rows_m64"


@pytest.mark.parametrize(("kv_dtype", "schedule"), [("bf16", "rows_m64"), ("e4m3", "swap_ab")])
def test_two_tokens_of_a_16_bit_cache_are_too_many_for_swap_ab(index, kv_dtype, schedule):
    config = {"arch": "sm90a", "q_dtype": "bf16", "kv_dtype": kv_dtype, "page_size": 64, "num_heads": 16, "q_len": 2}
    assert index.best(config).baked["schedule"] == schedule


@pytest.mark.parametrize(
    ("page_size", "load", "schedule"),
    [(128, "tma", "swap_ab"), (64, "tma", "swap_ab"), (16, "tma", "rows_m64"), (1, "gather", "rows_m64")],
)
def test_smaller_pages_of_a_16_bit_cache_are_for_rows_m64(index, page_size, load, schedule):
    config = {"arch": "sm90a", "q_dtype": "bf16", "kv_dtype": "bf16", "num_heads": 16, "q_len": 1}
    found = index.best({**config, "page_size": page_size, "kv_layout": "paged"})
    assert (found.baked["load"], found.baked["schedule"]) == (load, schedule)


@pytest.mark.parametrize(
    ("op", "q_dtype", "kv_dtype", "d_qk", "most"),
    [
        ("sparse_decode", "bf16", "fp8_ds_mla", 576, 32),
        ("sparse_decode", "bf16", "fp8_ds_mla", 512, 16),
        ("sparse_decode", "bf16", "fp8_ds_v4", 512, 16),
        *((op, dtype, dtype, d_qk, 16) for op in SPARSE for dtype in ("bf16", "fp16") for d_qk in (576, 512)),
    ],
)
def test_few_heads_of_sparse_attention_are_for_swap_ab(op, q_dtype, kv_dtype, d_qk, most):
    variants = index_of(op)
    config = {"arch": "sm90a", "q_dtype": q_dtype, "kv_dtype": kv_dtype, "d_qk": d_qk, "topk": 2048}
    for heads in (1, 8, most):
        assert variants.best(config | {"num_heads": heads, "q_len": 4}).baked["schedule"] == "swap_ab"
    for numbers in ({"num_heads": most + 1}, {"num_heads": 128}, {}):
        assert variants.best(config | numbers).baked["schedule"] == "rows_m64"


@pytest.mark.parametrize(("kv_dtype", "extra_kv_dtype"), [("fp8_ds_v41", "same"), ("fp8_ds_v41", "fp4_ds_v41")])
def test_other_caches_of_sparse_decode_have_one_schedule(sparse, kv_dtype, extra_kv_dtype):
    config = {"arch": "sm90a", "q_dtype": "bf16", "kv_dtype": kv_dtype, "d_qk": 512, "num_heads": 8}
    assert sparse.best(config | {"extra_kv_dtype": extra_kv_dtype}).baked["schedule"] == "rows_m64"


def test_a_unit_declares_what_another_schedule_compiles():
    """Or the kernels of ``swap_ab`` would be compiled into every unit whose variants launch them."""
    unit = (GENERATED / "sm90" / "sparse_decode_qbf16_gather_rows_m64.cu").read_text()
    declared = [line for line in unit.splitlines() if line.startswith("extern template struct")]
    assert len(declared) == 2
    assert all(line.endswith("mla::Schedule::swap_ab>;") for line in declared)
    assert "extern" not in (GENERATED / "sm100" / "decode_qbf16_tma_individual.cu").read_text()
