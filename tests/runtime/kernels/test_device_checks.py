"""What ``check=True`` reads on a GPU, here of tensors on the host: it refuses what the host's payload refuses."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import ValueRangeError
from mla_kernels.kernels.device_checks import verify

from tests.runtime.small_decode import SCALE

LENGTHS = torch.tensor([3, 16, 7], dtype=torch.int32)
BOUNDS = torch.tensor([0, 2, 2, 5], dtype=torch.int32)


def batch(stated: list[list[int]]) -> dict[str, Any]:
    """Three requests of two tokens."""
    return {"q": torch.zeros(3, 2, 4, 576), "token_seq_lens": torch.tensor(stated, dtype=torch.int32)}


def ragged(stated: list[int]) -> dict[str, Any]:
    """The same requests with two, none and three tokens, and a token of no request."""
    given = {"cu_seqlens_q": BOUNDS, "max_q_len": 3}
    return {"q": torch.zeros(1, 6, 4, 576), "token_seq_lens": torch.tensor([stated], dtype=torch.int32), **given}


def problem(given: dict[str, Any]) -> dict[str, Any]:
    return {"kv_cache": torch.zeros(3, 16, 576), "block_table": None, "seq_lens": LENGTHS, **given}


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        (batch([[3, 4], [0, 0], [0, 0]]), "token_seq_lens[0, 1]"),
        (batch([[3, 0], [-1, 0], [8, 0]]), "token_seq_lens[1, 0]"),
        (ragged([3, 4, 0, 0, 0, 0]), "token_seq_lens[0, 1]"),
        (ragged([0, 0, 7, 7, 8, 0]), "token_seq_lens[0, 4]"),
        (ragged([0, -(2**31), 7, 7, 7, 0]), "token_seq_lens[0, 1]"),
    ],
    ids=str,
)
def test_a_token_that_sees_too_much_is_refused_as_by_a_launch(given: dict[str, Any], argument: str) -> None:
    with pytest.raises(ValueRangeError) as checked:
        verify("decode", problem(given))
    with pytest.raises(ValueRangeError) as launched:
        mla.decode(**problem(given), softmax_scale=SCALE)
    assert checked.value.argument == argument
    assert str(checked.value) == str(launched.value)


@pytest.mark.parametrize("given", [batch([[3, 0], [16, 1], [7, 7]]), ragged([3, 0, 0, 7, 1, 2**31 - 1])], ids=str)
def test_lengths_of_tokens_that_are_right_are_accepted(given: dict[str, Any]) -> None:
    """Tokens of no request may say anything."""
    verify("decode", problem(given))
    mla.decode(**problem(given), softmax_scale=SCALE)


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("decode", problem({"q": torch.zeros(3, 1, 4, 576), "seq_lens": None})),
        ("decode", problem({"q": None})),
        ("sparse_decode", {"kv_cache": torch.zeros(3, 16, 576), "indices": None}),
        ("merge_states", {"o": None, "counts": torch.ones(1, dtype=torch.int32)}),
        ("store_kv", {"kv_cache": torch.zeros(3, 16, 576), "slot_mapping": None}),
        ("gather_kv", {"kv_cache": None, "indices": torch.zeros(1, dtype=torch.int32)}),
        ("to_global_indices", {"block_table": None, "req_id": torch.zeros(1, dtype=torch.int32)}),
    ],
)
def test_what_is_missing_is_left_to_the_launch(op: str, given: dict[str, Any]) -> None:
    """The launch refuses it by name."""
    verify(op, given)
