"""FlashMLA's adapter has its signatures, the reference's results, and refusals in its arguments' names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat import _metadata
from mla_kernels.compat.flash_mla import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata
from mla_kernels.errors import (
    DTypeError,
    InvalidArgumentError,
    ShapeError,
    UnsupportedError,
    ValueRangeError,
    WorkspaceError,
)
from mla_kernels.kernels.ops import DecodeKernel

from tests.support.flash_mla import (
    CONVENTIONS,
    HEADS,
    QUERY_TOKENS,
    FlashMla,
    ahead,
    check_object_serves_layers_and_steps,
    check_plans_are_of_rows,
    lazily,
)
from tests.support.problems import Decode
from tests.support.rows import rows

ALL = [row.name for row in rows("decode") if row.device == "cpu"]
SERVED = [row.name for row in rows("decode") if row.device == "cpu" and row.q_dtype == row.kv_dtype]
BF16 = next(name for name in SERVED if "qbf16" in name)

each = pytest.mark.parametrize("variant", SERVED)


def test_signatures_are_those_of_flash_mla():
    def shown(function: Any) -> str:
        parameters = inspect.signature(function).parameters.values()
        return " ".join(
            each.name if each.default is each.empty else f"{each.name}={each.default}" for each in parameters
        )

    assert shown(flash_mla_with_kvcache) == (
        "q k_cache block_table cache_seqlens head_dim_v tile_scheduler_metadata num_splits=None softmax_scale=None "
        "causal=False is_fp8_kvcache=None indices=None attn_sink=None extra_k_cache=None "
        "extra_indices_in_kvcache=None topk_length=None extra_topk_length=None enable_batch_invariant=False "
        "use_legacy=None kv_format=None descale_q=None descale_k=None"
    )
    assert shown(get_mla_metadata) == (
        "cache_seqlens=None num_q_tokens_per_head_k=None num_heads_k=None num_heads_q=None is_fp8_kvcache=False "
        "topk=None"
    )


@pytest.mark.parametrize("convention", CONVENTIONS.values(), ids=CONVENTIONS)
@pytest.mark.parametrize(("num_heads_q", "num_heads_k"), HEADS)
@pytest.mark.parametrize("s_q", QUERY_TOKENS)
@pytest.mark.parametrize("causal", [False, True])
def test_heads_and_query_tokens(convention, num_heads_q, num_heads_k, s_q, causal):
    FlashMla(BF16, num_heads_q=num_heads_q, num_heads_k=num_heads_k, s_q=s_q, causal=causal).check(convention)


@each
@pytest.mark.parametrize("num_heads_k", [1, 2])
@pytest.mark.parametrize("strided", [False, True])
def test_element_types_and_strides(variant, num_heads_k, strided):
    FlashMla(variant, num_heads_k=num_heads_k, s_q=2, causal=True, strided=strided).check()


@pytest.mark.parametrize("page_size", [1, 61, 64])
def test_page_sizes(page_size):
    FlashMla(BF16, lengths=(140, 0, 61, 1), num_heads_k=2, page_size=page_size).check()


@pytest.mark.parametrize("lengths", [(0,), (0, 0, 0), (1,), (3000, 1), ()])
def test_lengths(lengths):
    FlashMla(BF16, lengths=lengths, s_q=2, causal=True).check()


@pytest.mark.parametrize("softmax_scale", [0.01, 192**-0.5])
def test_softmax_scale(softmax_scale):
    FlashMla(BF16, softmax_scale=softmax_scale).check(ahead)


def test_lse_keeps_what_is_not_a_number():
    problem = FlashMla(BF16, lengths=(20, 0))
    given = problem.given()
    given["q"][0, 0, 3] = torch.nan
    _, lse = flash_mla_with_kvcache(**given, **lazily(problem, given))
    assert lse[0, :, 0].isnan().nonzero().flatten().tolist() == [3]
    assert lse[1].isposinf().all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("convention", [ahead, lazily])
def test_a_dense_cache_of_656_bytes(convention, dtype):
    """The adapter accepts more than FlashMLA, whose dense decode reads no fp8."""
    problem = Decode("cpu_decode_qbf16_kvfp8_ds_mla_obf16_direct_split", q_len=2)
    ours = problem.tensors()
    given = {
        "q": ours["q"],
        "k_cache": ours["kv_cache"][:, :, None].view(dtype),
        "block_table": ours["block_table"],
        "cache_seqlens": ours["seq_lens"],
        "head_dim_v": 512,
        "softmax_scale": problem.softmax_scale,
        "causal": True,
        "is_fp8_kvcache": True,
    }
    out, lse = flash_mla_with_kvcache(**given, **convention(FlashMla(BF16, num_heads_q=16, s_q=2), given))
    want_out, want_lse = problem.expected()
    problem.compare(out, lse, want_out, want_lse.where(want_lse > -torch.inf, torch.inf))


@each
def test_an_object_serves_layers_and_steps(variant):
    check_object_serves_layers_and_steps(variant)


def test_all_variants_plan_alike():
    check_plans_are_of_rows(ALL)


def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record what every launch of decode is given from now on."""
    seen: list[tuple[Any, ...]] = []
    launch = DecodeKernel.launch

    def noted(kernel: DecodeKernel, *args: Any, **more: Any) -> Any:
        seen.append((*args, more))
        return launch(kernel, *args, **more)

    monkeypatch.setattr(DecodeKernel, "launch", noted)
    return seen


def test_heads_are_views_and_share_a_plan(monkeypatch):
    problem = FlashMla(BF16, num_heads_q=6, num_heads_k=3)
    given = problem.given()
    given |= ahead(problem, given)
    seen = launches(monkeypatch)
    out, _ = flash_mla_with_kvcache(**given)
    assert len(seen) == 3
    for head, (q, k_cache, *_, more) in enumerate(seen):
        assert q.data_ptr() == given["q"][:, :, 2 * head].data_ptr()
        assert k_cache.data_ptr() == given["k_cache"][:, :, head].data_ptr()
        assert more["out"].data_ptr() == out[:, :, 2 * head].data_ptr()
        assert more["plan"] is seen[0][-1]["plan"]
        assert more["plan"].buffer.data_ptr() == given["tile_scheduler_metadata"].data_ptr()
        assert type(more["plan"].buffer) is torch.Tensor


@pytest.mark.parametrize("more", [{}, {"num_heads_q": 32}])
def test_tensors_of_metadata_depend_on_the_shape_only(more):
    lengths = torch.tensor([140, 20, 1, 0, 1100], dtype=torch.int32)
    meta, num_splits = get_mla_metadata(lengths, 64, 2, **more)
    assert (meta.dtype, num_splits.dtype) == (torch.int32, torch.int32)
    assert (meta.size(1), num_splits.shape) == (8, (6,))
    other, _ = get_mla_metadata(lengths * 0, 64, 2)
    assert other.shape == meta.shape
    assert not torch.equal(other, meta)


def test_an_arch_without_decode(monkeypatch):
    monkeypatch.setattr(_metadata, "arch_for", lambda *_: "sm90a")
    with pytest.raises(mla.VariantNotFoundError, match="op=decode arch=sm90a"):
        get_mla_metadata(torch.tensor([3], dtype=torch.int32), 16, 1)


def pages(**changes: Any) -> torch.Tensor:
    return torch.zeros(changes.pop("shape", (2, 4)), **{"dtype": torch.int32} | changes)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        (
            "q",
            torch.zeros(2, 16, 576),
            ShapeError,
            r"got shape \[2, 16, 576\]; accepts \[batch, s_q, num_",
        ),
        ("q", torch.zeros(2, 1, 16, 320), ShapeError, r"accepts \[batch, s_q, num_heads_q, 576 or 512\]"),
        ("q", torch.zeros(2, 1, 16, 576).numpy(), DTypeError, "got ndarray; accepts a dense torch tensor"),
        ("q", torch.zeros(2, 1, 16, 1152).bfloat16()[..., ::2], InvalidArgumentError, "got stride 2"),
        ("k_cache", torch.zeros(4, 128, 576), ShapeError, r"accepts \[num_pages, page_size, num_heads_k, 576\]"),
        ("k_cache", torch.zeros(4, 128, 2, 512), ShapeError, r"accepts \[num_pages, page_size, num_heads_k, 576\]"),
        ("k_cache", torch.zeros(4, 128, 2, 576), DTypeError, "got fp32; accepts bf16, as q has"),
        ("k_cache", torch.zeros(4, 128, 2, 576).to(torch.float8_e4m3fn), DTypeError, "got e4m3; accepts bf16, as q"),
        ("k_cache", torch.zeros(4, 128, 0, 576).bfloat16(), ShapeError, "got 0 heads; accepts a divisor of 16"),
        ("k_cache", torch.zeros(4, 128, 3, 576).bfloat16(), ShapeError, "got 3 heads; accepts a divisor of 16"),
        ("block_table", None, UnsupportedError, r"got None; accepts an int32 tensor \[batch, table_width\]"),
        ("block_table", pages(dtype=torch.int64), DTypeError, "got int64"),
        ("block_table", pages(shape=(3, 4)), ShapeError, "got batch = 3; accepts 2, as q has"),
        ("block_table", pages() - 1, ValueRangeError, r"block_table\[0, 0\]: got -1"),
        ("cache_seqlens", None, DTypeError, "got NoneType; accepts a tensor"),
        ("cache_seqlens", torch.tensor([40, 17]), DTypeError, "got int64; accepts int32"),
        ("cache_seqlens", torch.tensor([40], dtype=torch.int32), ShapeError, r"got shape \[1\]; accepts \[2\]"),
        ("cache_seqlens", torch.tensor([40, -1], dtype=torch.int32), ValueRangeError, r"cache_seqlens\[1\]: got -1"),
        ("head_dim_v", 576, UnsupportedError, "got 576; accepts 512"),
        ("softmax_scale", "big", InvalidArgumentError, "got"),
        ("softmax_scale", float("nan"), InvalidArgumentError, "got nan"),
        ("causal", "yes", InvalidArgumentError, "got"),
        ("attn_sink", torch.zeros(16), UnsupportedError, "got a tensor; accepts None, because indices is None"),
        ("extra_k_cache", torch.zeros(4, 128, 2, 576), UnsupportedError, "got a tensor; accepts None"),
        ("extra_indices_in_kvcache", pages(), UnsupportedError, "got a tensor; accepts None"),
        ("topk_length", pages(), UnsupportedError, "got a tensor; accepts None"),
        ("extra_topk_length", pages(), UnsupportedError, "got a tensor; accepts None"),
    ],
)
@pytest.mark.parametrize("convention", [lazily, ahead])
def test_refusals_name_the_argument(convention, name, value, error, text):
    problem = FlashMla(BF16, lengths=(40, 17), num_heads_k=2)
    given = problem.given()
    with pytest.raises(error, match=text) as caught:
        flash_mla_with_kvcache(**given | convention(problem, given) | {name: value})
    assert caught.value.argument.startswith(name)
    assert not re.search(r"\b(kv_cache|seq_lens)\b", f"{caught.value.got} {caught.value.accepts}")


META = get_mla_metadata(torch.tensor([40, 17], dtype=torch.int32), 8, 2)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("tile_scheduler_metadata", None, DTypeError, "got NoneType; accepts what get_mla_metadata gives"),
        ("tile_scheduler_metadata", META[0].long(), DTypeError, "got int64; accepts int32"),
        ("tile_scheduler_metadata", META[0].to("meta"), mla.errors.DeviceError, "got meta; accepts cpu, as q has"),
        ("tile_scheduler_metadata", META[0][1:], ShapeError, r"accepts \[2, 8\], as get_mla_metadata gives for 2 req"),
        ("tile_scheduler_metadata", META[0].repeat(2, 1), ShapeError, r"got shape \[4, 8\]; accepts \[2, 8\]"),
        ("tile_scheduler_metadata", META[0].flatten(), ShapeError, r"got shape \[16\]; accepts \[2, 8\]"),
        ("tile_scheduler_metadata", META[0].repeat(1, 2)[:, ::2], WorkspaceError, "got"),
        ("tile_scheduler_metadata", META[0] * 0, WorkspaceError, "got memory without a plan; accepts what plan wrote"),
        ("num_splits", META[1].float(), DTypeError, "got float32; accepts int32"),
        ("num_splits", META[1].to("meta"), mla.errors.DeviceError, "got meta; accepts cpu, as q has"),
        ("num_splits", META[1][1:], ShapeError, r"got shape \[2\]; accepts \[3\], as get_mla_metadata gives for 2 req"),
    ],
)
def test_tensors_that_are_no_metadata_of_the_call(name, value, error, text):
    problem = FlashMla(BF16, lengths=(40, 17), num_heads_k=2)
    given = {**problem.given(), "tile_scheduler_metadata": META[0], "num_splits": META[1]}
    problem.compare(*flash_mla_with_kvcache(**given))
    with pytest.raises(error, match=text) as caught:
        flash_mla_with_kvcache(**given | {name: value})
    assert caught.value.argument == name


@pytest.mark.parametrize("other", [{"lengths": (40,)}, {"lengths": (40, 17, 3, 9)}, {"s_q": 2}, {"num_heads_q": 12}])
def test_metadata_of_another_shape(monkeypatch, other):
    """The sizes of the tensors show another batch, and the payload, which reads the plan first, other rows."""
    problem = FlashMla(BF16, lengths=(40, 17), num_heads_q=16)
    foreign = FlashMla(BF16, **{"lengths": problem.lengths, "num_heads_q": 16} | other)
    given = problem.given()
    given |= ahead(foreign, foreign.given())
    seen = launches(monkeypatch)
    with pytest.raises(InvalidArgumentError, match=r"(tile_scheduler_metadata|num_splits): got .* 2 requests of 16"):
        flash_mla_with_kvcache(**given)
    assert len(seen) == ("lengths" not in other)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"lengths": (40,)}, "b = 1, s_q = 1, h_q = 16, page_block_size = 128, h_k = 1, causal = False"),
        ({"s_q": 2}, "s_q = 2"),
        ({"num_heads_q": 8}, "h_q = 8"),
        ({"page_size": 64}, "page_block_size = 64"),
        ({"num_heads_k": 2}, "h_k = 2"),
        ({"causal": True}, "causal = True"),
    ],
)
def test_an_object_of_another_configuration(monkeypatch, other, text):
    problem = FlashMla(BF16, **{"lengths": (40, 17)} | other)
    given = problem.given()
    given |= lazily(problem, given)
    flash_mla_with_kvcache(**given)
    meta = given["tile_scheduler_metadata"]
    call = FlashMla(BF16, lengths=(40, 17)).given() | {"tile_scheduler_metadata": meta}
    seen = launches(monkeypatch)
    with pytest.raises(ValueRangeError, match=f"tile_scheduler_metadata: got a FlashMLASchedMeta for .*{text}.*; acc"):
        flash_mla_with_kvcache(**call)
    assert not seen
    meta.have_initialized = False
    FlashMla(BF16, lengths=(40, 17)).compare(*flash_mla_with_kvcache(**call))


def test_an_object_stays_empty_where_the_call_is_refused():
    problem = FlashMla(BF16)
    meta, _ = get_mla_metadata()
    with pytest.raises(DTypeError, match="cache_seqlens: got int64"):
        flash_mla_with_kvcache(
            **problem.given() | {"cache_seqlens": torch.ones(5).long()}, tile_scheduler_metadata=meta
        )
    assert meta == FlashMLASchedMeta()


def test_an_object_comes_alone():
    problem = FlashMla(BF16, lengths=(40, 17))
    given = problem.given() | {"tile_scheduler_metadata": FlashMLASchedMeta(), "num_splits": META[1]}
    with pytest.raises(UnsupportedError, match="num_splits: got a tensor; accepts None"):
        flash_mla_with_kvcache(**given)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"cache_seqlens": None}, DTypeError, "cache_seqlens: got NoneType; accepts a tensor"),
        ({"cache_seqlens": torch.ones(2)}, DTypeError, "cache_seqlens: got float32; accepts int32"),
        (
            {"cache_seqlens": torch.ones(2, 1).int()},
            ShapeError,
            r"cache_seqlens: got shape \[2, 1\]; accepts \[bat",
        ),
        ({"cache_seqlens": -torch.ones(2).int()}, ValueRangeError, r"cache_seqlens\[0\]: got -1"),
        ({"num_q_tokens_per_head_k": 0}, ValueRangeError, "num_q_tokens_per_head_k: got 0; accepts 1 to"),
        ({"num_q_tokens_per_head_k": 1 << 62}, ShapeError, "num_q_tokens_per_head_k: got"),
        ({"num_heads_k": None}, ValueRangeError, "num_heads_k: got None; accepts an integer from 1"),
        ({"num_heads_q": 1.5}, ValueRangeError, "num_heads_q: got 1.5; accepts an integer from 1"),
        (
            {"num_heads_q": 12},
            ValueRangeError,
            r"num_heads_q: got 12; accepts one whose .* is 16, with",
        ),
        ({"num_heads_q": 15}, ValueRangeError, "num_heads_q: got 15; accepts"),
        ({"topk": 0}, ValueRangeError, "topk: got 0; accepts 1 to"),
    ],
)
def test_refusals_of_metadata(change, error, text):
    given = {"cache_seqlens": torch.ones(2).int(), "num_q_tokens_per_head_k": 16, "num_heads_k": 2}
    get_mla_metadata(**given)
    with pytest.raises(error, match=text):
        get_mla_metadata(**given | change)
