"""sgl_kernel's adapter has its signature, the reference's results, and refusals in its arguments' names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.compat.sgl_kernel import cutlass_mla_decode, cutlass_mla_get_workspace_size
from mla_kernels.devices import driver, machine
from mla_kernels.errors import DTypeError, InvalidArgumentError, ShapeError, ValueRangeError, WorkspaceError
from mla_kernels.payloads.registry import Range

from tests.support.compare import DENSE, assert_close
from tests.support.problems import random

SCALE = 192**-0.5


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch) -> Iterator[None]:
    """Make the host the current device, whose workspace the size is for."""
    monkeypatch.setattr(driver, "LIBRARY", "no library")
    machine.forget()
    yield
    monkeypatch.undo()
    machine.forget()


def problem(
    lengths: tuple[int, ...], num_heads: int, page_size: int = 16, dtype: torch.dtype = torch.bfloat16
) -> dict[str, Any]:
    """Arguments of a decode by name: permuted pages, a table of whole 128-token tiles, and NaN in what is not used.

    Deviations are those that ``DENSE`` is made for: kernels may round the weights to 16 bits.
    """
    generator = torch.Generator().manual_seed(0)
    batch = len(lengths)
    width = -(-max(lengths) // 128) * 128 // page_size
    pages = torch.randperm(batch * width, generator=generator)
    cache = random(generator, batch * width, page_size, 576, deviation=0.1).to(dtype)
    table = pages.int().reshape(batch, width)
    for request, length in enumerate(lengths):
        for place in range(length, width * page_size):
            cache[table[request, place // page_size], place % page_size] = torch.nan
    size = cutlass_mla_get_workspace_size(width * page_size, batch, num_kv_splits=-1)
    return {
        "q_nope": random(generator, batch, num_heads, 512, deviation=5.0).to(dtype),
        "q_pe": random(generator, batch, num_heads, 64, deviation=5.0).to(dtype),
        "kv_c_and_k_pe_cache": cache,
        "seq_lens": torch.tensor(lengths, dtype=torch.int32),
        "page_table": table,
        "workspace": torch.empty(size, dtype=torch.uint8),
        "sm_scale": SCALE,
    }


def expected(given: dict[str, Any]) -> torch.Tensor:
    q = torch.cat([given["q_nope"], given["q_pe"]], -1)[:, None]
    cache, table, lens = given["kv_c_and_k_pe_cache"], given["page_table"], given["seq_lens"]
    return reference.decode(q, cache, table, lens, softmax_scale=given["sm_scale"])[0][:, 0]


def test_signatures_are_those_of_sgl_kernel():
    def shown(function: Any) -> list[str]:
        parameters = inspect.signature(function).parameters.values()
        return [each.name if each.default is each.empty else f"{each.name}={each.default}" for each in parameters]

    assert " ".join(shown(cutlass_mla_decode)) == (
        "q_nope q_pe kv_c_and_k_pe_cache seq_lens page_table workspace sm_scale num_kv_splits=1"
    )
    assert " ".join(shown(cutlass_mla_get_workspace_size)) == "max_seq_len num_batches sm_count=0 num_kv_splits=1"


@pytest.mark.parametrize("num_kv_splits", [-1, 0, 1, 4])
@pytest.mark.parametrize("num_heads", [128, 16, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_decode(num_kv_splits, num_heads, dtype):
    given = problem((0, 1, 300, 140), num_heads, dtype=dtype)
    out = cutlass_mla_decode(*given.values(), num_kv_splits)
    assert (out.dtype, out.shape, out.is_contiguous()) == (dtype, (4, num_heads, 512), True)
    assert_close("out", out, expected(given), DENSE)


@pytest.mark.parametrize("page_size", [1, 64, 128])
def test_page_sizes(page_size):
    given = problem((200, 65), 8, page_size)
    assert_close("out", cutlass_mla_decode(**given), expected(given), DENSE)


def test_queries_and_cache_are_read_where_they_lie(monkeypatch):
    given = problem((40, 17), 8)
    packed = torch.full((2, 8, 600), torch.nan, dtype=torch.bfloat16)
    packed[..., :512], packed[..., 512:576] = given["q_nope"], given["q_pe"]
    views = {"q_nope": packed[..., :512], "q_pe": packed[..., 512:576]}
    seen: list[Any] = []
    decode = mla.decode
    monkeypatch.setattr(mla, "decode", lambda *args, **more: (seen.extend(args), decode(*args, **more))[1])
    assert_close("out", cutlass_mla_decode(**given | views), expected(given), DENSE)
    (q_nope, q_pe), cache, *_ = seen
    assert q_nope.data_ptr() == packed.data_ptr()
    assert q_pe.data_ptr() == packed.data_ptr() + 512 * packed.element_size()
    assert cache is given["kv_c_and_k_pe_cache"]


@pytest.mark.parametrize("num_kv_splits", [-1, 1, 2, 7, 64])
@pytest.mark.parametrize("batch", [1, 2, 33])
def test_workspace_size_is_enough_for_any_number_of_heads(num_kv_splits, batch):
    size = cutlass_mla_get_workspace_size(4096, batch, num_kv_splits=num_kv_splits)
    assert isinstance(size, int)
    splits = max(num_kv_splits, 0)
    for dtype in ("bf16", "fp16"):
        kernel = mla.lookup(op="decode", arch="cpu", q_dtype=dtype)
        for num_heads in range(1, 129):
            assert size >= kernel.workspace_size(batch=batch, q_len=1, num_heads=num_heads, max_splits=splits)
    assert size == cutlass_mla_get_workspace_size(4096, batch, 132, num_kv_splits)


class Sized(NamedTuple):
    """A variant that asks for so many bytes a request, by its number of heads."""

    baked: dict[str, str]
    accepts: dict[str, Range]
    arch: str
    need: dict[int, int]

    @property
    def variant(self) -> Sized:
        return self

    def workspace_size(self, *, num_heads: int, batch: int, **_: int) -> int:
        return batch * self.need[-(-num_heads // 16) * 16]


def test_fewer_heads_may_need_more(monkeypatch):
    """Hopper halves the rows of a cluster at 64 heads and doubles the parts, and one of its kernels takes no more."""
    low, high = Range(1, 64), Range(1, 128)
    needs = {64: (low, {16: 5, 32: 6, 48: 7, 64: 9}), 128: (high, dict.fromkeys(range(16, 129, 16), 4) | {64: 8})}
    found = [
        Sized(
            {"q_dtype": "bf16", "kv_dtype": "bf16", "schedule": str(most)},
            {"num_heads": heads, "page_size": high},
            "a",
            need,
        )
        for most, (heads, need) in needs.items()
    ]

    def variants(num_heads: int = 1, **_: object) -> list[Sized]:
        return [each for each in found if num_heads in each.accepts["num_heads"]]

    def lookup(schedule: str = "128", **_: object) -> Sized:
        return next(each for each in found if each.baked["schedule"] == schedule)

    monkeypatch.setattr(mla, "variants", variants)
    monkeypatch.setattr(mla, "lookup", lookup)
    assert cutlass_mla_get_workspace_size(4096, 3) == 3 * 9


def test_workspace_that_is_too_small():
    size = cutlass_mla_get_workspace_size(4096, 2, num_kv_splits=4)
    assert size > 0
    given = problem((4096, 4096), 128) | {"workspace": torch.empty(size - 1, dtype=torch.uint8), "num_kv_splits": 4}
    with pytest.raises(WorkspaceError, match=f"workspace: got {size - 1} bytes; accepts at least {size} bytes"):
        cutlass_mla_decode(**given)
    given["workspace"] = torch.empty(size, dtype=torch.uint8)
    assert_close("out", cutlass_mla_decode(**given), expected(given), DENSE)


def pages(**changes: Any) -> torch.Tensor:
    return torch.zeros(changes.pop("shape", (2, 8)), **{"dtype": torch.int32} | changes)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("q_nope", torch.zeros(2, 8, 1, 512), ShapeError, r"q_nope: got shape \[2, 8, 1, 512\]; accepts \[batch, num"),
        ("q_nope", torch.zeros(2, 8, 576), ShapeError, r"accepts \[batch, num_heads, 512\]"),
        ("q_nope", [1.0], DTypeError, "q_nope: got list; accepts a tensor"),
        ("q_nope", torch.zeros(2, 8, 512, dtype=torch.int32), DTypeError, "q_nope: got int32; accepts"),
        ("q_pe", torch.zeros(2, 7, 64), ShapeError, r"q_pe: got shape \[2, 7, 64\]; accepts \[2, 8, 64\], as q_nope"),
        ("q_pe", torch.zeros(2, 8, 64), DTypeError, "q_pe: got fp32; accepts bf16, as q_nope has"),
        ("q_pe", torch.zeros(2, 8, 128).bfloat16()[..., ::2], InvalidArgumentError, "q_pe: got stride 2"),
        ("kv_c_and_k_pe_cache", torch.zeros(4, 16, 512), ShapeError, r"accepts \[num_pages, page_size, 576\]"),
        ("kv_c_and_k_pe_cache", torch.zeros(4, 16, 576), DTypeError, "got fp32; accepts bf16, as q_nope has"),
        ("seq_lens", torch.tensor([40, 17]), DTypeError, "seq_lens: got int64"),
        ("seq_lens", torch.tensor([40, 1000], dtype=torch.int32), ValueRangeError, "seq_lens"),
        ("page_table", pages(dtype=torch.int64), DTypeError, "page_table: got int64"),
        ("page_table", pages(shape=(3, 8)), ShapeError, "page_table: got batch = 3; accepts 2, as q_nope has"),
        ("page_table", pages() - 1, ValueRangeError, "page_table"),
        ("sm_scale", "big", InvalidArgumentError, "sm_scale: got"),
        ("sm_scale", float("nan"), InvalidArgumentError, "sm_scale: got nan"),
        ("num_kv_splits", 1.5, ValueRangeError, "num_kv_splits: got 1.5; accepts an integer"),
        ("workspace", "much", InvalidArgumentError, "workspace: got"),
    ],
)
def test_refusals_name_the_argument(name, value, error, text):
    given = problem((40, 17), 8) | {name: value}
    with pytest.raises(error, match=text) as caught:
        cutlass_mla_decode(**given)
    assert caught.value.argument.startswith(name)
    words = f"{caught.value.got} {caught.value.accepts}"
    assert not any(own in words for own in ("q[", "block_table", "softmax_scale", "max_splits"))


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("max_seq_len", 0, ValueRangeError, "got 0; accepts 1 to"),
        ("num_batches", -1, ValueRangeError, "got -1; accepts 1 to"),
        ("num_batches", 1.5, DTypeError, "got float; accepts a Python int of at least 1"),
    ],
)
def test_workspace_of_no_size(name, value, error, text):
    with pytest.raises(error, match=f"{name}: {text}"):
        cutlass_mla_get_workspace_size(**{"max_seq_len": 128, "num_batches": 1, name: value})
