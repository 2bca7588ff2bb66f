"""FlashMLA's adapter for sparse attention on the CPU: results against the reference, conventions, refusals."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from mla_kernels.compat import flash_mla
from mla_kernels.compat.flash_mla import flash_mla_sparse_fwd, flash_mla_with_kvcache, get_mla_metadata
from mla_kernels.errors import DTypeError, InvalidArgumentError, ShapeError, UnsupportedError, ValueRangeError

from tests.support.compare import PREFILL as TOLERANCE
from tests.support.flash_mla_sparse import SparseFwd, WithKvcache, past_the_end, served
from tests.support.rows import Row
from tests.support.sparse import SparseDecode, SparsePrefill

DECODE, PREFILL = served("sparse_decode", "cpu"), served("sparse_prefill", "cpu")
FP8 = "cpu_sparse_decode_qbf16_kvfp8_ds_mla_obf16_direct_split"
BF16 = "cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows"

each = pytest.mark.parametrize("row", DECODE, ids=[row.name for row in DECODE])
each_prefill = pytest.mark.parametrize("row", PREFILL, ids=[row.name for row in PREFILL])


def test_signatures_are_those_of_flash_mla():
    shown = [
        each.name if each.default is each.empty else f"{each.name}={each.default}"
        for each in inspect.signature(flash_mla_sparse_fwd).parameters.values()
    ]
    assert " ".join(shown) == (
        "q kv indices sm_scale d_v=512 attn_sink=None topk_length=None use_legacy=None return_log2_lse=None"
    )
    assert flash_mla.flash_mla_sparse_prefill is flash_mla_sparse_fwd


@each
@pytest.mark.parametrize("options", [{}, {"counts": True, "sink": True, "extra_topk": 11}, {"absent": 1.0}])
def test_decode(row: Row, options: dict[str, Any]) -> None:
    WithKvcache(SparseDecode(row.name, q_len=3, **options)).check()


@pytest.mark.parametrize("num_heads", [1, 9, 64, 128])
def test_heads(num_heads):
    WithKvcache(SparseDecode(FP8, num_heads=num_heads)).check()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
def test_types_that_bytes_come_in(dtype):
    call = WithKvcache(SparseDecode(FP8, extra_topk=5))
    given = call.given()
    given |= {name: given[name].view(dtype) for name in ("k_cache", "extra_k_cache")}
    call.compare(*flash_mla_with_kvcache(**given, **call.lazily(given)))


def test_a_length_of_each_request():
    problem = SparseDecode(FP8, counts=True)
    given = WithKvcache(problem).given()
    given["topk_length"] = given["topk_length"][:, 0]
    WithKvcache(problem).compare(*flash_mla_with_kvcache(**given, **WithKvcache(problem).lazily(given)))


@each
def test_indices_past_the_cache_select_nothing(row: Row) -> None:
    call = WithKvcache(SparseDecode(row.name, extra_topk=30))
    given = call.given()
    given["indices"] = past_the_end(given["indices"], 9 * 64)
    given["extra_indices_in_kvcache"] = past_the_end(given["extra_indices_in_kvcache"], 5 * 3)
    call.compare(*flash_mla_with_kvcache(**given, **call.ahead(given)))


def test_tables_and_lengths_are_ignored_beside_indices():
    call = WithKvcache(SparseDecode(FP8))
    given = call.given() | {"block_table": torch.empty(1, 1).int(), "cache_seqlens": torch.ones(1).int()}
    call.compare(*flash_mla_with_kvcache(**given, **call.lazily(given)))


def test_metadata_is_one_row_for_any_step():
    """Callers copy metadata into a buffer of a CUDA graph, where FlashMLA's has a row for every two multiprocessors."""
    for tokens, batch in ((1, 1), (7000, 1), (2, 64)):
        lengths = torch.full((batch,), 2048, dtype=torch.int32)
        meta, num_splits = get_mla_metadata(lengths, tokens * 128, 1, 128, True, 2048)
        assert (meta.shape, num_splits.shape) == ((1, 8), (batch + 1,))
        assert not meta.any()


def test_an_object_serves_layers():
    call = WithKvcache(SparseDecode(FP8))
    meta, _ = get_mla_metadata()
    for seed in range(2):
        layer = WithKvcache(replace(call.problem, seed=seed))
        layer.compare(*flash_mla_with_kvcache(**layer.given(), tile_scheduler_metadata=meta))
    assert meta.have_initialized
    assert str(meta.config) == (
        "b = 3, s_q = 1, h_q = 16, page_block_size = 64, h_k = 1, causal = False, is_fp8_kvcache = True, topk = 64"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topk": 65}, "topk = 65"),
        ({"extra_topk": 4}, "extra_page_block_size = 3, extra_topk = 4"),
        ({"q_len": 2}, "s_q"),
    ],
)
def test_an_object_of_another_configuration(change, text):
    filled = WithKvcache(SparseDecode(FP8, **change))
    given = filled.given()
    meta = filled.lazily(given)
    flash_mla_with_kvcache(**given, **meta)
    with pytest.raises(ValueRangeError, match=f"tile_scheduler_metadata: got a FlashMLASchedMeta for .*{text}"):
        flash_mla_with_kvcache(**WithKvcache(SparseDecode(FP8)).given(), **meta)


def test_an_object_of_dense_decode():
    call = WithKvcache(SparseDecode("cpu_sparse_decode_qbf16_kvbf16_obf16_direct_split", absent=0.0))
    given = call.given()
    dense = {"block_table": torch.zeros(3, 1).int(), "cache_seqlens": torch.zeros(3).int(), "indices": None}
    meta = call.lazily(given)
    flash_mla_with_kvcache(**given | dense, **meta)
    with pytest.raises(ValueRangeError, match="topk = 64: each configuration needs its own"):
        flash_mla_with_kvcache(**given, **meta)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("q", torch.zeros(3, 1, 16, 320).bfloat16(), ShapeError, "accepts .*576 or 512"),
        (
            "q",
            torch.zeros(3, 1, 16, 512).bfloat16(),
            ShapeError,
            "k_cache: got rows of 656 bytes; accepts .*584 .fp8_ds_v4.",
        ),
        ("k_cache", torch.zeros(9, 64, 1, 656), DTypeError, "got float32; accepts uint8, int8 or float8_e4m3fn, beca"),
        ("k_cache", torch.zeros(9, 64, 1, 584).byte(), ShapeError, "got rows of 584 bytes; accepts rows of 656"),
        (
            "k_cache",
            torch.zeros(9, 64, 1, 576).byte(),
            ShapeError,
            "accepts rows of 656 .fp8_ds_mla., 352 .nvfp4_ds_mla. bytes, because q has",
        ),
        ("k_cache", torch.zeros(9, 64, 2, 656).byte(), ShapeError, "got 2 heads; accepts 1 head, because indices are"),
        ("k_cache", None, DTypeError, "got NoneType; accepts a torch tensor"),
        ("is_fp8_kvcache", False, InvalidArgumentError, r"k_cache: got shape \[9, 64, 1, 656\]"),
        ("causal", True, UnsupportedError, "got True; accepts False, because indices say what a token sees"),
        ("head_dim_v", 576, UnsupportedError, "got 576; accepts 512"),
        ("indices", torch.zeros(3, 64).int(), ShapeError, r"accepts \[3, 1, topk\]"),
        ("indices", torch.zeros(3, 2, 64).int(), ShapeError, r"accepts \[3, 1, topk\]"),
        ("indices", torch.zeros(3, 1, 64).long(), DTypeError, "got int64; accepts int32"),
        ("indices", None, UnsupportedError, "topk_length: got a tensor; accepts None, because indices is None"),
        ("topk_length", torch.full((3,), 65).int(), ValueRangeError, "got 65; accepts 0 to 64"),
        ("topk_length", torch.ones(2).int(), ShapeError, "got"),
        ("attn_sink", torch.zeros(15), ShapeError, "got"),
        ("extra_k_cache", torch.zeros(5, 3, 1, 656).byte(), DTypeError, "extra_indices_in_kvcache: got NoneType"),
        (
            "extra_indices_in_kvcache",
            torch.zeros(3, 1, 4).int(),
            UnsupportedError,
            "extra_k_cache: got None; accepts a",
        ),
        (
            "extra_topk_length",
            torch.zeros(3).int(),
            UnsupportedError,
            "got a tensor; accepts None, because extra_indices_",
        ),
        ("softmax_scale", float("nan"), InvalidArgumentError, "got nan"),
    ],
)
def test_refusals_name_the_argument(name, value, error, text):
    call = WithKvcache(SparseDecode(FP8, counts=True))
    given = call.given()
    given |= call.lazily(given) | {name: value}
    if name == "extra_indices_in_kvcache":
        given["topk_length"] = None
    with pytest.raises(error, match=text) as caught:
        flash_mla_with_kvcache(**given)
    assert "kv_cache" not in f"{caught.value.argument} {caught.value.accepts}".replace("_kvcache", "")


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("tile_scheduler_metadata", None, DTypeError, "got NoneType; accepts what get_mla_metadata gives"),
        (
            "tile_scheduler_metadata",
            torch.zeros(2, 8).int(),
            ShapeError,
            r"accepts \[1, 8\], as get_mla_metadata gives",
        ),
        ("num_splits", torch.zeros(3).int(), ShapeError, r"got shape \[3\]; accepts \[4\]"),
    ],
)
def test_tensors_that_are_no_metadata_of_the_call(name, value, error, text):
    call = WithKvcache(SparseDecode(FP8))
    given = call.given()
    with pytest.raises(error, match=text) as caught:
        flash_mla_with_kvcache(**given | call.ahead(given) | {name: value})
    assert caught.value.argument == name


@each_prefill
@pytest.mark.parametrize("rope", [True, False])
@pytest.mark.parametrize("options", [{}, {"counts": True, "sink": True}, {"absent": 1.0}, {"topk": 130, "lead": 70}])
def test_prefill(row: Row, rope: bool, options: dict[str, Any]) -> None:
    SparseFwd(SparsePrefill(row.name, **options), rope=rope).check()


def test_prefill_skips_indices_past_the_end():
    call = SparseFwd(SparsePrefill(BF16))
    given = call.given()
    want = call.expected(given)
    got = flash_mla_sparse_fwd(**given | {"indices": past_the_end(given["indices"], 300)})
    names = ("out", "max_logits", "lse")
    call.problem.compare(dict(zip(names, got, strict=True)), dict(zip(names, want, strict=True)), TOLERANCE)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("q", torch.zeros(5, 16, 128).bfloat16(), ShapeError, r"accepts \[s_q, num_heads_q, 576 or 512\]"),
        ("kv", torch.zeros(300, 576).bfloat16(), ShapeError, r"accepts \[s_kv, num_heads_k, 576\]"),
        ("kv", torch.zeros(300, 1, 512).bfloat16(), ShapeError, r"accepts \[s_kv, num_heads_k, 576\]"),
        ("kv", torch.zeros(300, 2, 576).bfloat16(), ShapeError, "got 2 heads; accepts 1 head"),
        ("kv", torch.zeros(300, 1, 576), DTypeError, "got fp32; accepts bf16, as q has"),
        ("indices", torch.zeros(5, 64).int(), ShapeError, r"accepts \[5, 1, topk\]"),
        ("d_v", 576, UnsupportedError, "got 576; accepts 512"),
        ("sm_scale", float("inf"), InvalidArgumentError, "sm_scale: got inf"),
        ("topk_length", torch.ones(4).int(), ShapeError, "got"),
    ],
)
def test_refusals_of_prefill(name, value, error, text):
    with pytest.raises(error, match=text) as caught:
        flash_mla_sparse_fwd(**SparseFwd(SparsePrefill(BF16)).given() | {name: value})
    assert caught.value.argument.startswith(name)


def test_refusals_of_metadata():
    lengths = torch.ones(1).int()
    with pytest.raises(ValueRangeError, match="topk: got 0; accepts 1 to"):
        get_mla_metadata(lengths, 128, 1, 128, True, 0)
    with pytest.raises(ValueRangeError, match="num_heads_q: got 96"):
        get_mla_metadata(lengths, 128, 1, 96, True, 64)
