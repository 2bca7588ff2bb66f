"""Which kernel a call chooses: ``mla.decode`` by a plan, call after call, and what is said where there is none."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import ShapeError, ValueRangeError
from mla_kernels.kernels.base import Plan

from tests.runtime.small_decode import Decode


@pytest.fixture
def outputs() -> dict[str, torch.Tensor]:
    return {"out": torch.zeros(3, 1, 4, 512, dtype=torch.bfloat16), "lse": torch.zeros(3, 4, 1)}


@pytest.fixture
def plan(problem: Decode) -> Plan:
    return mla.lookup(op="decode", q_dtype="bf16").plan(problem.seq_lens, num_heads=4, q_len=1)


def one_page_a_request(problem: Decode) -> dict[str, Any]:
    """The same cache in pages of 48 tokens."""
    kv_cache = problem.kv_cache[problem.block_table.flatten()].reshape(3, 48, 576)
    return problem.arguments(kv_cache=kv_cache, block_table=torch.arange(3, dtype=torch.int32)[:, None])


def test_a_plan_serves_caches_of_several_page_sizes(problem, plan, outputs):
    small, large = problem.arguments(), one_page_a_request(problem)
    expected = [mla.decode(**arguments) for arguments in (small, large)]
    for _ in range(3):
        for arguments, results in zip((small, large), expected, strict=True):
            for got, want in zip(mla.decode(**arguments, plan=plan, **outputs), results, strict=True):
                assert torch.equal(got, want)


def test_refusals_do_not_depend_on_the_call_before(problem, plan, outputs):
    arguments = problem.arguments()
    refused = (
        ({"plan": mla.Plan(plan.buffer, "another", 3, 1, 4)}, ValueRangeError, "plan: got a plan of another"),
        ({"q": problem.q[:2]}, ShapeError, "plan: got a plan of batch 3; accepts a plan of batch 2, as q has"),
        ({"seq_lens": problem.seq_lens[:2]}, ShapeError, "seq_lens: got batch = 2; accepts 3, as q has"),
        ({"kv_cache": problem.kv_cache[..., :575]}, ShapeError, "kv_cache: got shape"),
    )
    for _ in range(2):
        for changes, error, message in refused:
            with pytest.raises(error, match=message):
                mla.decode(**{**arguments, "plan": plan, **outputs, **changes})
        mla.decode(**arguments, plan=plan, **outputs)


def test_a_width_that_no_format_has_is_not_said_to_be_the_type_of_out():
    """The second cache and ``kv_dtype`` are those of DeepSeek V4.1, and the first cache is of floats."""
    q, out, indices = torch.zeros(1, 1, 2, 512).half(), torch.zeros(1, 1, 2, 512).half(), torch.zeros(1, 1, 3).int()
    extra = {"extra_kv_cache": torch.zeros(2, 8, 288).byte(), "extra_indices": indices}
    given = {"kv_dtype": "fp8_ds_v41", "softmax_scale": 1.0, **extra}
    with pytest.raises(mla.errors.DTypeError, match="kv_cache: got float32; accepts uint8"):
        mla.sparse_decode(q, torch.zeros(2, 8, 528), indices, out=out, **given)
