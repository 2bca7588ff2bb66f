"""Calls as sgl-flash-mla 1.0.0 takes them, with ``use_legacy`` and ``kv_format``, on the CPU."""

from __future__ import annotations

import inspect
import math
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat.flash_mla import (
    FlashMLASchedMeta,
    flash_mla_sparse_fwd,
    flash_mla_with_kvcache,
    get_mla_decoding_metadata,
    get_mla_metadata,
)
from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError, ValueRangeError

from tests.support.compare import assert_same_bytes
from tests.support.flash_mla_sparse import SparseFwd, WithKvcache
from tests.support.problems import SCALE
from tests.support.sparse import SparseDecode, SparsePrefill

FORMATS = {
    "V32": "fp8_ds_mla_obf16_direct_split",
    "V32_NO_ROPE": "fp8_ds_mla_obf16_direct_split_d512",
    "V4": "fp8_ds_v4_obf16_direct_split_d512",
    "V41": "fp8_ds_v41_obf16_direct_split_d512",
    "V41_FP4": "fp4_ds_v41_obf16_direct_split_d512",
}
"""What sgl-flash-mla calls the formats of bytes, and variants that read them."""


def sparse(kv_format: str, **options: Any) -> dict[str, Any]:
    """The arguments of a sparse call over a cache of a format, without metadata."""
    problem = SparseDecode(f"cpu_sparse_decode_qbf16_kv{FORMATS[kv_format]}", **options)
    return WithKvcache(problem).given() | {"tile_scheduler_metadata": FlashMLASchedMeta()}


def own(given: dict[str, Any], kv_dtype: str, **options: Any) -> torch.Tensor:
    """What our own function gives for such arguments."""
    out, _ = mla.sparse_decode(
        given["q"], given["k_cache"][:, :, 0].view(torch.uint8), given["indices"], softmax_scale=SCALE,
        kv_dtype=kv_dtype, **options,
    )  # fmt: skip
    return out


def test_signatures_end_with_their_arguments() -> None:
    def last(function: Any, n: int) -> str:
        return " ".join(list(inspect.signature(function).parameters)[-n:])

    assert last(flash_mla_with_kvcache, 5) == "enable_batch_invariant use_legacy kv_format descale_q descale_k"
    assert last(flash_mla_sparse_fwd, 2) == "use_legacy return_log2_lse"
    assert last(get_mla_decoding_metadata, 7) == (
        "seqlens_k num_q_tokens_per_head_k h_k h_q is_fp8_kvcache topk use_legacy"
    )


@pytest.mark.parametrize("kv_format", FORMATS)
def test_formats_by_name(kv_format: str) -> None:
    given = sparse(kv_format)
    out, _ = flash_mla_with_kvcache(**given, use_legacy=True, kv_format=kv_format)
    assert_same_bytes("out", out, own(given, FORMATS[kv_format].partition("_obf16")[0]))


@pytest.mark.parametrize(
    ("use_legacy", "kv_dtype"), [(None, "fp8_ds_mla"), (True, "fp8_ds_mla"), (False, "fp8_ds_v41")]
)
def test_rows_of_528_bytes_are_what_their_kernels_read(use_legacy: bool | None, kv_dtype: str) -> None:
    kv_format = "V41" if use_legacy is False else "V32_NO_ROPE"
    given = sparse(kv_format)
    out, _ = flash_mla_with_kvcache(**given, use_legacy=use_legacy)
    assert_same_bytes("out", out, own(given, kv_dtype))


@pytest.mark.parametrize("named", [{"use_legacy": False}, {"kv_format": "V41"}])
def test_a_second_cache_of_four_bits(named: dict[str, Any]) -> None:
    """DeepSeek V4.1: 528 bytes in the first cache, and 288 in the second."""
    variant = "cpu_sparse_decode_qbf16_kvfp8_ds_v41_obf16_direct_split_d512_extrafp4_ds_v41"
    call = WithKvcache(SparseDecode(variant, extra_topk=30, counts=True, sink=True))
    given = call.given() | {"tile_scheduler_metadata": FlashMLASchedMeta()}
    call.compare(*flash_mla_with_kvcache(**given, **named))


def test_bytes_need_not_be_announced() -> None:
    given = sparse("V4")
    want, _ = flash_mla_with_kvcache(**given)
    del given["is_fp8_kvcache"]
    got, _ = flash_mla_with_kvcache(**given, use_legacy=True)
    assert_same_bytes("out", got, want)


def test_batch_invariance_takes_one_split() -> None:
    given = sparse("V32", topk=600)
    out, _ = flash_mla_with_kvcache(**given, enable_batch_invariant=True)
    assert_same_bytes("out", out, own(given, "fp8_ds_mla", max_splits=1))


def test_decoding_metadata() -> None:
    lengths = torch.tensor([70, 3], dtype=torch.int32)
    given = get_mla_decoding_metadata(lengths, 16, 1, use_legacy=True)
    for got, want in zip(given, get_mla_metadata(lengths, 16, 1), strict=True):
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(want))
    with pytest.raises(ValueRangeError, match="h_q: got 3"):
        get_mla_decoding_metadata(lengths, 16, 2, 3, use_legacy=True)


def test_statistics_in_base_2_or_none() -> None:
    given = SparseFwd(SparsePrefill("cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows", sink=True)).given()
    out, *natural = flash_mla_sparse_fwd(**given, use_legacy=True)
    same, *base_2 = flash_mla_sparse_fwd(**given, use_legacy=True, return_log2_lse=True)
    assert_same_bytes("out", same, out)
    for got, want in zip(base_2, natural, strict=True):
        assert got is not None
        assert want is not None
        torch.testing.assert_close(got * math.log(2), want)
    assert flash_mla_sparse_fwd(**given, return_log2_lse=False)[1:] == (None, None)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            {"kv_format": "V5"},
            UnsupportedError,
            "kv_format: got 'V5'; accepts None, V32, V32_NO_ROPE, V4, V41, V41_FP4",
        ),
        (
            {"kv_format": "V4"},
            ShapeError,
            "k_cache: got rows of 656 bytes.*rows of 584 bytes and queries of 512 columns",
        ),
        (
            {"descale_q": torch.ones(1)},
            UnsupportedError,
            "descale_q: got a tensor; accepts None, because q is not e4m3",
        ),
        ({"descale_k": torch.ones(1)}, UnsupportedError, "descale_k"),
        ({"indices": None, "kv_format": "V32"}, UnsupportedError, "kv_format: got 'V32'; .* indices is None"),
        ({"indices": None, "enable_batch_invariant": True}, UnsupportedError, "enable_batch_invariant"),
        ({"use_legacy": "yes"}, DTypeError, "use_legacy: got str"),
    ],
)
def test_refusals(change: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        flash_mla_with_kvcache(**sparse("V32") | change)
