"""Greedy tokens of a small engine on the CPU, against a model in plain torch."""

from __future__ import annotations

import pytest

from tests.support.engine import check_tokens


@pytest.mark.parametrize("seed", [0, 22])
@pytest.mark.parametrize("cache_dtype", ["auto", "fp8_ds_mla"])
def test_tokens_are_those_of_a_plain_model(seed, cache_dtype):
    check_tokens("cpu", seed, cache_dtype)
