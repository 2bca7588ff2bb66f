"""Each check of the helpers can fail, and says where."""

from __future__ import annotations

import pytest
import torch
from mla_kernels.formats import LATENT

from . import memory
from .compare import DENSE, LSE, SINGLE, assert_close, assert_same_bytes
from .problems import Decode, generator, random, unchanged
from .rows import Row, rows
from .sparse import ABSENT, INT_MAX, SparseDecode


def test_the_worst_element_is_named() -> None:
    want = random(generator(0), 3, 4, 5)
    got = want.clone()
    got[1, 2, 3] += 0.5
    got[0, 0, 0] += 0.1
    with pytest.raises(AssertionError, match=r"out\[1, 2, 3\]: got .* want .*; 2 of 60 elements\nhere"):
        assert_close("out", got, want, SINGLE, "here")


@pytest.mark.parametrize(("got", "want"), [
    (torch.nan, 1.0), (1.0, torch.nan), (torch.inf, 1.0), (torch.inf, -torch.inf), (-torch.inf, 0.0), (0.0, torch.nan),
])  # fmt: skip
def test_special_values_must_match(got: float, want: float) -> None:
    with pytest.raises(AssertionError, match=r"lse\[1\]"):
        assert_close("lse", torch.tensor([1.0, got]), torch.tensor([1.0, want]), LSE)


def test_many_small_errors_of_one_sign_fail_by_the_cosine() -> None:
    want = random(generator(1), 4096)
    assert_close("out", want * (1 + 2**-9), want, DENSE)
    with pytest.raises(AssertionError, match="cosine"):
        assert_close("out", want * (1 + 2**-7), want, DENSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_memory_is_nan_and_guards_notice(dtype: torch.dtype) -> None:
    guarded = memory.guarded((2, 3, 8), dtype)
    assert torch.isnan(guarded.buffer.float()).all()
    guarded.view.copy_(torch.zeros(2, 3, 8))
    guarded.assert_guards("out")
    guarded.buffer[0, 0, 0] = 0.0
    with pytest.raises(AssertionError, match="guard zone of out"):
        guarded.assert_guards("out")


def test_changed_inputs_are_noticed() -> None:
    a, b = torch.zeros(3), torch.zeros(3)
    with pytest.raises(AssertionError, match="an input"), unchanged((a, b), None):
        b[1] = -0.0


def test_bytes_tell_zeros_apart() -> None:
    with pytest.raises(AssertionError, match="byte 0x80, want 0x0; 1 differ"):
        assert_same_bytes("x", torch.tensor([-0.0]), torch.tensor([0.0]))


@pytest.mark.parametrize("row", [row for row in rows("decode") if row.device == "cpu"], ids=lambda row: row.name)
def test_only_used_rows_are_numbers(row: Row) -> None:
    problem = Decode(row.name, lengths=(70, 0, 3), page_size=16)
    inputs = problem.tensors()
    assert (inputs["block_table"] == memory.UNUSED_PAGE).any()
    pool = inputs["kv_cache"]
    values = pool[..., :LATENT].view(torch.float8_e4m3fn) if pool.dtype == torch.uint8 else pool
    numbers = ~torch.isnan(values.float()).all(-1)
    assert int(numbers.sum()) == 73
    assert torch.equal(numbers.flatten().nonzero()[:, 0], torch.cat(problem.slots).sort().values)


def test_indices_hold_every_kind_of_absence() -> None:
    name = rows("sparse_decode")[0].name
    indices = SparseDecode(name, topk=200, counts=True, lead=9, q_len=4).tensors()["indices"]
    for code in (*ABSENT, INT_MAX):
        assert (indices == code).any()
