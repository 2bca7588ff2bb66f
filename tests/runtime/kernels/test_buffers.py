"""Plan and workspace are made only where the payload asks for them."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import mla_kernels as mla
import pytest
import torch
from mla_kernels.api import selection
from mla_kernels.errors import DTypeError, ShapeError, WorkspaceError
from mla_kernels.kernels import base
from mla_kernels.kernels import ops as kernels_of_ops
from mla_kernels.kernels.ops import DecodeKernel, StoreKvKernel
from mla_kernels.payloads.registry import Variant

from codegen import abi
from tests.support.native.noop import DTYPES, Noop


def bound(noop: Noop, kernel_type: type[base.Kernel], op: str) -> base.Kernel:
    name = next(name for name in noop.payload.names if name.startswith(f"cpu_{op}_"))
    variant = Variant(name, op, "cpu", "noop", 0, {"out_dtype": "bf16"}, {})
    return kernel_type(variant, {}, partial(noop.payload.kernel, name, DTYPES | {"in_dtype": "bf16"}, device="cpu"), {})


@pytest.fixture
def decode(noop) -> DecodeKernel:
    return bound(noop, DecodeKernel, "decode")


@pytest.fixture
def outputs() -> dict[str, torch.Tensor]:
    return {"out": torch.zeros(3, 1, 4, 512, dtype=torch.bfloat16), "lse": torch.zeros(3, 4, 1)}


def allocates(*_: object) -> None:
    raise AssertionError("a launch that lacks nothing allocates nothing")


def test_a_decode_that_needs_neither_gets_neither(noop, decode, problem, outputs):
    with (
        patch.object(kernels_of_ops, "empty", allocates),
        patch.object(decode, "_native", None),  # the kernel is asked neither for a size nor for a plan
    ):
        out, lse = decode(**problem.arguments(), **outputs)
    assert out is outputs["out"]
    assert lse is outputs["lse"]
    record = noop.record
    assert record.variant == 0
    assert (record.plan, record.plan_bytes, record.workspace, record.workspace_bytes) == (None, 0, None, 0)
    fields = noop.fields("decode")
    assert (fields["batch"], fields["max_splits"], fields["batch_invariant"]) == (3, 0, 0)


def test_outputs_of_a_decode_without_a_plan(decode, problem):
    out, lse = decode(**problem.arguments())
    assert (out.shape, out.dtype) == ((3, 1, 4, 512), torch.bfloat16)
    assert (lse.shape, lse.dtype) == ((3, 4, 1), torch.float32)
    assert decode(**problem.arguments(), lse=False)[1] is None
    assert decode(**problem.arguments(), check=True)[0].shape == out.shape


@pytest.mark.parametrize("asked", [(32, 0), (0, 128), (32, 128)])
def test_what_the_payload_asks_for_is_made(noop, decode, problem, outputs, asked):
    noop.expect(*asked)
    decode(**problem.arguments(), **outputs)
    record = noop.record
    assert (record.plan_bytes, record.workspace_bytes) == asked
    assert (record.plan is not None, record.workspace is not None) == (asked[0] > 0, asked[1] > 0)


def test_a_given_plan_stays(noop, decode, problem, outputs):
    noop.expect(plan=32, workspace=128)
    plan = decode.plan(problem.seq_lens, num_heads=4, q_len=1, max_splits=5, batch_invariant=True)
    decode(**problem.arguments(), **outputs, plan=plan)
    assert (noop.record.plan, noop.record.workspace_bytes) == (plan.buffer.data_ptr(), 128)
    assert noop.fields("decode")["max_splits"] == 5
    assert noop.fields("decode")["batch_invariant"] == 1


@pytest.mark.parametrize("name", [scalar.name for scalar in abi.OP["decode"].scalars if scalar.planned])
def test_a_plan_is_made_for_each_of_its_scalars(noop, decode, problem, name):
    plan = decode.plan(problem.seq_lens, num_heads=4, q_len=1, **{name: 1})
    assert noop.fields("decode")[name] == 1
    noop.record.variant = -1
    decode.plan(problem.seq_lens, out=plan)
    assert (noop.record.variant, noop.fields("decode")[name]) == (0, 1)


def test_options_of_the_one_call_reach_a_decode_without_a_plan(noop, decode, problem, outputs):
    with patch.object(selection, "decode_kernel", lambda *_: decode):
        mla.decode(**problem.arguments(), **outputs, max_splits=7, batch_invariant=True)
    assert noop.fields("decode")["max_splits"] == 7
    assert noop.fields("decode")["batch_invariant"] == 1


@pytest.mark.parametrize("asked", [0, 32])
def test_checks_hold_without_a_plan(noop, decode, problem, outputs, asked):
    noop.expect(plan=asked)
    refused = [
        ({"seq_lens": problem.seq_lens[:2]}, ShapeError, "seq_lens: got batch = 2; accepts 3, as q has"),
        ({"seq_lens": None}, DTypeError, "seq_lens: got None"),
        ({"q": problem.q.float()}, DTypeError, "q: got float32"),
        ({"plan": outputs["lse"]}, DTypeError, "plan: got Tensor"),
        ({"workspace": torch.zeros(8)[::2]}, WorkspaceError, "workspace: got a tensor with gaps"),
    ]
    for changes, error, message in refused:
        with pytest.raises(error, match=message):
            decode(**problem.arguments(**changes), **outputs)
    assert noop.record.variant == -1


def test_other_ops_get_a_workspace_and_never_a_plan(noop):
    store = bound(noop, StoreKvKernel, "store_kv")
    latent, rope = torch.zeros(2, 512).bfloat16(), torch.zeros(2, 64).bfloat16()
    arguments = (latent, rope, torch.zeros(1, 4, 576).bfloat16(), torch.arange(2))
    noop.expect(workspace=96)
    store(*arguments)
    assert (noop.record.plan, noop.record.workspace_bytes) == (None, 96)
    noop.expect(plan=32)
    with pytest.raises(WorkspaceError, match="plan: got None; accepts 32 bytes"):
        store(*arguments)


def test_a_real_decode_plans_and_allocates(problem):
    found = mla.lookup(op="decode", q_dtype="bf16")
    plan = found.plan(problem.seq_lens, num_heads=4, q_len=1)
    size = found.workspace_size(q=problem.q, kv_cache=problem.kv_cache, block_table=problem.block_table)
    workspace = torch.empty(size, dtype=torch.uint8)
    given = found(**problem.arguments(), plan=plan, workspace=workspace)
    assert all(torch.equal(one, other) for one, other in zip(found(**problem.arguments()), given, strict=True))
