"""A call of a kernel: what may be given, what is allocated, and the same bits for every way of asking."""

from __future__ import annotations

import dataclasses
import inspect

import mla_kernels as mla
import numpy as np
import pytest
import torch
from mla_kernels.errors import DTypeError, InvalidArgumentError, ValueRangeError
from mla_kernels.kernels.ops import KERNELS

from codegen import abi
from tests.runtime.small_decode import SCALE, Decode


def same(one, other) -> bool:
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True))


def test_one_call_and_kernel_agree(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16", kv_layout="paged", page_size=16, num_heads=4, q_len=1)
    plan = kernel.plan(problem.seq_lens)
    assert (plan.batch, plan.q_len, plan.num_heads, plan.max_splits, plan.batch_invariant) == (3, 1, 4, 0, False)
    out, lse = problem.call()
    assert (out.shape, out.dtype) == ((3, 1, 4, 512), torch.bfloat16)
    assert (lse.shape, lse.dtype) == ((3, 4, 1), torch.float32)
    assert (out[0] == 0).all()
    assert (lse[0] == float("-inf")).all()
    assert same((out, lse), kernel(**problem.arguments(), plan=plan))
    assert same((out, lse), kernel(**problem.arguments()))
    assert same((out, lse), problem.call(plan=plan, check=True))


def test_given_buffers_are_written_and_returned(problem):
    expected = problem.call()
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    plan = kernel.plan(problem.seq_lens, num_heads=4, q_len=1)
    out, lse = torch.empty_like(expected[0]), torch.empty_like(expected[1])
    size = kernel.workspace_size(q=problem.q, kv_cache=problem.kv_cache, block_table=problem.block_table)
    workspace = torch.empty(size, dtype=torch.uint8)
    returned = kernel(**problem.arguments(), plan=plan, out=out, lse=lse, workspace=workspace)
    assert returned[0] is out
    assert returned[1] is lse
    assert same(returned, expected)


def test_lse_false_leaves_it_out(problem):
    out, lse = problem.call(lse=False)
    assert lse is None
    assert torch.equal(out, problem.call()[0])


def test_lse_true_allocates_it(problem):
    for one, two in zip(problem.call(lse=True), problem.call(), strict=True):
        assert torch.equal(one, two)
    states, lse = torch.ones(2, 3, 4, 8), torch.zeros(2, 3, 4)
    assert torch.equal(mla.merge_states(states, lse, out_lse=True)[1], mla.merge_states(states, lse)[1])
    compiled = torch.compile(lambda: problem.call(lse=True), backend="eager", fullgraph=True)
    assert torch.equal(compiled()[1], problem.call()[1])


def test_workspace_size_depends_on_shapes_only(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    sizes = {
        kernel.workspace_size(q=problem.q, kv_cache=problem.kv_cache, block_table=problem.block_table),
        kernel.workspace_size(
            batch=3, q_len=1, num_heads=4, num_pages=9, page_size=16, block_table=problem.block_table
        ),
    }
    assert len(sizes) == 1


def test_plan_size_is_that_of_a_plan(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    size = len(kernel.plan(problem.seq_lens, num_heads=4, q_len=1).buffer)
    assert kernel.plan_size(seq_lens=problem.seq_lens, num_heads=4, q_len=1) == size > 0
    assert kernel.plan_size(batch=3, num_heads=4, q_len=1) == size
    assert kernel.plan_size(batch=4, num_heads=4, q_len=1) > size
    assert mla.lookup(op="store_kv", in_dtype="bf16").plan_size() == 0


def test_sizes_take_the_numbers_that_the_kernel_has():
    whole = mla.lookup(op="decode", arch="cpu", q_dtype="bf16")
    fixed = mla.lookup(op="decode", arch="cpu", q_dtype="bf16", num_heads=16, q_len=1)
    for asks in ("workspace_size", "plan_size"):
        size = getattr(whole, asks)(batch=8, q_len=1, num_heads=16)
        assert getattr(fixed, asks)(batch=8) == size > 0


@pytest.mark.parametrize("asks", ["workspace_size", "plan_size"])
@pytest.mark.parametrize("missing", ["batch", "q_len", "num_heads"])
def test_sizes_without_a_number_are_refused(asks, missing):
    kernel = mla.lookup(op="decode", arch="cpu", q_dtype="bf16")
    numbers = {name: 2 for name in ("batch", "q_len", "num_heads") if name != missing}
    with pytest.raises(ValueRangeError, match=f"{missing}: got None; accepts an integer, .*; pass {missing} here"):
        getattr(kernel, asks)(**numbers)
    sparse = mla.lookup(op="sparse_decode", arch="cpu", q_dtype="bf16")
    with pytest.raises(ValueRangeError, match="topk: got None; accepts an integer"):
        sparse.workspace_size(batch=1, q_len=1, num_heads=2)


def test_what_can_run_is_true(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    assert kernel.can_run(**problem.arguments()) is True


def test_a_device_is_an_ordinal():
    with pytest.raises(DTypeError, match="device: got 'cpu'; accepts the ordinal of a CUDA device, such as 0"):
        mla.lookup(op="decode", arch="cpu", q_dtype="bf16").prepare("cpu")


@pytest.mark.parametrize("given", [{"max_splits": 1}, {"batch_invariant": True}, {"max_q_len": 7}])
def test_numbers_beside_a_plan_are_those_of_the_plan(problem, given):
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    plan = kernel.plan(problem.seq_lens, num_heads=4, q_len=1)
    (name,) = given
    with pytest.raises(ValueRangeError, match=f"{name}: got .*; accepts .*, as the plan has; or pass {name} to kernel"):
        problem.call(plan=plan, **given)
    if name != "max_q_len":
        same_plan = kernel.plan(problem.seq_lens, num_heads=4, q_len=1, **given)
        assert same(problem.call(plan=same_plan, **given), problem.call(plan=same_plan))


def test_plan_is_refreshed_in_place(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16", num_heads=4, q_len=1)
    plan = kernel.plan(problem.seq_lens, max_splits=2, batch_invariant=True)
    at = plan.buffer.data_ptr()
    lengths = torch.tensor([48, 1, 0], dtype=torch.int32)
    assert kernel.plan(lengths, out=plan) is plan
    assert plan.buffer.data_ptr() == at
    fresh = kernel.plan(lengths, max_splits=2, batch_invariant=True)
    assert torch.equal(plan.buffer, fresh.buffer)
    call = {**problem.arguments(), "seq_lens": lengths}
    assert same(kernel(**call, plan=plan), kernel(**call, plan=fresh))


def test_plan_options_of_the_one_call(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16", num_heads=4, q_len=1)
    plan = kernel.plan(problem.seq_lens, max_splits=3, batch_invariant=True)
    assert same(problem.call(max_splits=3, batch_invariant=True), kernel(**problem.arguments(), plan=plan))


def test_a_plan_serves_layers_of_other_layouts_in_turn(problem):
    expected = problem.call()
    given = {"plan": mla.lookup(op="decode", q_dtype="bf16").plan(problem.seq_lens, num_heads=4, q_len=1)}
    given |= {"out": torch.empty_like(expected[0]), "lse": torch.empty_like(expected[1])}
    rows = problem.kv_cache[problem.block_table.long()].reshape(3, 48, 576)
    layers = [
        {},
        {"kv_cache": problem.kv_cache.split([512, 64], -1)},
        {"kv_cache": problem.kv_cache.view(18, 8, 576),
         "block_table": (problem.block_table[:, :, None] * 2 + torch.arange(2)).reshape(3, 6).int()},
        {"kv_cache": rows, "block_table": None},
        {"kv_cache": rows, "block_table": torch.arange(3, dtype=torch.int32)[:, None]},
    ]  # fmt: skip
    for layer in layers * 2:
        given["out"].fill_(7)
        given["lse"].fill_(7)
        assert same(problem.call(**given, **layer), expected)


def test_what_a_plan_refuses_leaves_the_next_call_alone(problem):
    expected = problem.call()
    given = {"plan": mla.lookup(op="decode", q_dtype="bf16").plan(problem.seq_lens, num_heads=4, q_len=1)}
    given |= {"out": torch.empty_like(expected[0]), "lse": torch.empty_like(expected[1])}
    refused = [
        {"q": problem.q.half(), "kv_cache": problem.kv_cache.half(), "out": given["out"].half()},
        {"q": problem.q.half()},
        {"kv_cache": problem.kv_cache.half()},
        {"kv_cache": problem.kv_cache[0]},
        {"kv_cache": None},
        {"out": given["out"].half()},
        {"q": problem.q.repeat(1, 1, 2, 1)},
        {"q": problem.q.repeat(1, 2, 1, 1)},
        {"plan": given["lse"]},
    ]
    for _ in range(2):
        for changes in refused:
            with pytest.raises(InvalidArgumentError):
                problem.call(**given | changes)
            assert same(problem.call(**given), expected)


def test_pairs_of_latent_and_rope(problem):
    def split(rows):
        return rows[..., :512].clone(), rows[..., 512:].clone()

    assert same(problem.call(), problem.call(q=split(problem.q), kv_cache=split(problem.kv_cache)))


def test_contiguous_cache(problem):
    cache = problem.kv_cache[problem.block_table.long()].reshape(3, 48, 576)
    out, lse = problem.call(kv_cache=cache, block_table=None)
    paged_out, paged_lse = problem.call()
    torch.testing.assert_close(out, paged_out)
    torch.testing.assert_close(lse, paged_lse)


def test_bytes_are_e4m3_or_fp8_ds_mla_by_their_rows(problem):
    pool = torch.zeros(9, 16, 576, dtype=torch.uint8)
    latent, rope = problem.kv_cache.reshape(-1, 576).split([512, 64], dim=1)
    slots = torch.arange(144)
    mla.store_kv(latent, rope, pool, slots, scale=torch.ones(1))
    assert same(problem.call(kv_cache=pool), problem.call(kv_cache=pool.view(torch.float8_e4m3fn)))
    whole = torch.zeros(9, 16, 656, dtype=torch.uint8)
    mla.store_kv(latent, rope, whole, slots)
    assert mla.gather_kv(whole, slots.int()).dtype == torch.bfloat16
    torch.testing.assert_close(mla.gather_kv(whole, slots.int())[:, 512:], rope)
    torch.testing.assert_close(problem.call(kv_cache=whole)[1], problem.call()[1], atol=0.1, rtol=0.1)


def test_numpy_in_numpy_out():
    problem = Decode(torch.float32)
    expected = problem.call()
    arrays = {name: tensor.numpy() for name, tensor in vars(problem).items()}
    out, lse = mla.decode(**arrays, softmax_scale=SCALE)
    assert isinstance(out, np.ndarray)
    assert (out.dtype, lse.dtype) == (np.float32, np.float32)
    assert same((out, lse), expected)


def test_sparse_decode_outputs(problem):
    indices = torch.arange(24, dtype=torch.int32).reshape(3, 1, 8)
    rows = {"q": problem.q, "kv_cache": problem.kv_cache, "indices": indices, "softmax_scale": SCALE}
    assert len(mla.sparse_decode(**rows)) == 2
    out, lse, max_logits = mla.sparse_decode(**rows, return_max_logits=True)
    assert out.shape == (3, 1, 4, 512)
    assert lse.shape == max_logits.shape == (3, 4, 1)
    assert (max_logits <= lse).all()
    given = torch.empty(3, 4, 1)
    assert mla.sparse_decode(**rows, max_logits=given)[2] is given
    assert torch.equal(given, max_logits)
    assert mla.sparse_decode(**rows, lse=False)[1] is None


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_lengths_of_requests_hold_for_their_tokens(framework):
    q = torch.randn(2, 3, 4, 576)
    cache = torch.randn(4, 8, 576)
    indices = torch.randint(0, 32, (2, 3, 8), dtype=torch.int32)
    lengths = torch.tensor([3, 8], dtype=torch.int32)
    expected = mla.sparse_decode(q, cache, indices, topk_length=lengths[:, None].repeat(1, 3), softmax_scale=SCALE)
    arguments = [q, cache, indices]
    if framework == "numpy":
        arguments, lengths = [tensor.numpy() for tensor in arguments], lengths.numpy()
    assert same(mla.sparse_decode(*arguments, topk_length=lengths, softmax_scale=SCALE), expected)


def test_sparse_prefill_outputs():
    q, kv = torch.randn(5, 4, 576).half(), torch.randn(7, 576).half()
    indices = torch.randint(-1, 7, (5, 6), dtype=torch.int32)
    out, max_logits, lse = mla.sparse_prefill(q, kv, indices, softmax_scale=SCALE)
    assert (out.shape, out.dtype) == ((5, 4, 512), torch.float16)
    assert max_logits.shape == lse.shape == (5, 4)


def test_merge_states_outputs():
    o, lse = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 4)
    out, merged = mla.merge_states(o, lse)
    weight = torch.softmax(lse, 0)[..., None]
    torch.testing.assert_close(out, (weight * o).sum(0))
    torch.testing.assert_close(merged, torch.logsumexp(lse, 0))
    assert mla.merge_states(o, lse, out_dtype="bf16")[0].dtype == torch.bfloat16
    assert mla.merge_states(o, lse, out=torch.empty(3, 4, 16).half())[0].dtype == torch.float16
    assert mla.merge_states(o, lse, out_lse=False)[1] is None


def test_gather_kv_outputs():
    cache = torch.randn(2, 4, 576)
    rows = mla.gather_kv(cache, torch.tensor([5, -1, 0], dtype=torch.int32))
    assert torch.equal(rows[0], cache[1, 1])
    assert (rows[1] == 0).all()
    latent, rope = torch.empty(1, 512), torch.empty(1, 64)
    mla.gather_kv(cache, torch.tensor([7], dtype=torch.int32), out=(latent, rope))
    assert torch.equal(torch.cat([latent, rope], 1)[0], cache[1, 3])


def test_to_global_indices_outputs():
    table = torch.tensor([[4, 2], [1, -1]], dtype=torch.int32)
    tokens = torch.tensor([[0, 5, -1], [3, 4, 8]], dtype=torch.int32)
    out = mla.to_global_indices(torch.tensor([0, 1], dtype=torch.int32), table, tokens, page_size=4)
    assert out.tolist() == [[16, 9, -1], [7, -1, -1]]


@pytest.mark.parametrize("op", [op for op in abi.OPS if op.plans], ids=lambda op: op.name)
def test_a_plan_has_the_scalars_of_its_op(op):
    planned = {scalar.name for scalar in op.scalars if scalar.planned}
    fields = {field.name for field in dataclasses.fields(mla.Plan)}
    assert planned <= fields, "add them to Plan in mla_kernels/kernels/base.py"
    parameters = inspect.signature(KERNELS[op.name].plan).parameters
    assert planned <= parameters.keys(), "add them to PlannedKernel.plan in mla_kernels/kernels/planned.py"


def test_sizes_take_the_arguments_of_the_call():
    """Lengths without their second dimension, and results that a bool leaves out."""
    kernel = mla.lookup(op="sparse_decode", arch="cpu", q_dtype="fp32")
    q, kv_cache = torch.ones(3, 2, 1, 576), torch.ones(1, 4, 576)
    indices, lengths = torch.zeros(3, 2, 5, dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    given = {"q": q, "kv_cache": kv_cache, "indices": indices, "topk_length": lengths}
    for lse in (True, False, None):
        kernel(**given, lse=lse, softmax_scale=1.0)
        kernel.can_run(**given, lse=lse, softmax_scale=1.0)
        assert kernel.workspace_size(**given, lse=lse) == kernel.workspace_size(q=q, kv_cache=kv_cache, indices=indices)
        assert kernel.plan_size(**given, lse=lse) == 0
    merge = mla.lookup(op="merge_states", arch="cpu", in_dtype="fp32", out_dtype="fp32")
    assert merge.workspace_size(o=torch.ones(1, 1, 1, 8), out_lse=False) == 0
