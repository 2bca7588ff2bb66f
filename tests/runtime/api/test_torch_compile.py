"""Under ``torch.compile`` the ops are nodes of one graph, and give the bits of the eager call."""

from __future__ import annotations

import math
import subprocess
import sys

import mla_kernels as mla
import pytest
import torch
from mla_kernels import tensors
from mla_kernels.api import torch_ops
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tests.runtime.small_decode import SCALE

OPS = torch.ops.mla_kernels


def indices(*shape: int, end: int = 144) -> torch.Tensor:
    """Numbers from -1 to ``end - 1`` that look random; a graph can hold them, unlike a generator."""
    return (torch.arange(math.prod(shape), dtype=torch.int32) * 37 % (end + 1) - 1).reshape(shape)


def decode(q, kv_cache, block_table, seq_lens):
    out, lse = mla.decode(q * 2, kv_cache, block_table, seq_lens, softmax_scale=SCALE)
    return out + 1, lse


def decode_pairs(q, kv_cache, block_table, seq_lens):
    pair, rows = (q[..., :512], q[..., 512:]), (kv_cache[..., :512], kv_cache[..., 512:])
    out, lse = mla.decode(pair, rows, block_table, seq_lens, softmax_scale=SCALE, causal=False, lse=False)
    return out, lse


def decode_by_lengths_of_tokens(q, kv_cache, block_table, seq_lens):
    out, lse = mla.decode(
        q, kv_cache, block_table, seq_lens, token_seq_lens=seq_lens[:, None] // 2, softmax_scale=SCALE
    )
    return out + 1, lse


def decode_of_ragged_queries(q, kv_cache, block_table, seq_lens):
    return mla.decode(
        q.transpose(0, 1),
        kv_cache,
        block_table,
        seq_lens,
        cu_seqlens_q=torch.tensor([0, 0, 1, 3], dtype=torch.int32),
        token_seq_lens=torch.tensor([[17, 48, 5]], dtype=torch.int32),
        max_q_len=2,
        softmax_scale=SCALE,
    )


def sparse_decode(q, kv_cache, block_table, seq_lens):
    lengths = seq_lens.clamp(max=6)
    sink = torch.arange(4.0)
    return mla.sparse_decode(
        q,
        kv_cache,
        indices(3, 1, 6),
        topk_length=lengths,
        attn_sink=sink,
        extra_kv_cache=kv_cache,
        extra_indices=indices(3, 1, 4),
        softmax_scale=SCALE,
        return_max_logits=True,
    )


def sparse_prefill(q, kv_cache, block_table, seq_lens):
    return mla.sparse_prefill(q[:, 0], kv_cache[0], indices(3, 6, end=16), softmax_scale=SCALE)


def merge_states(q, kv_cache, block_table, seq_lens):
    lse = q[..., 0, :2].float().permute(2, 0, 1)
    return mla.merge_states(q.float().permute(1, 0, 2, 3).repeat(2, 1, 1, 1)[:, :, :1], lse, out_dtype="bf16")


def store_kv(q, kv_cache, block_table, seq_lens):
    cache = kv_cache.clone()
    mla.store_kv(q[:, 0, 0, :512], q[:, 0, 0, 512:], cache, torch.tensor([3, -1, 70]))
    return cache, cache + 1


def gather_kv(q, kv_cache, block_table, seq_lens):
    return mla.gather_kv(kv_cache, indices(9)), seq_lens


def to_global_indices(q, kv_cache, block_table, seq_lens):
    return mla.to_global_indices(torch.arange(3).int(), block_table, indices(3, 5, end=60), page_size=16), seq_lens


FUNCTIONS = (
    decode,
    decode_pairs,
    decode_by_lengths_of_tokens,
    decode_of_ragged_queries,
    sparse_decode,
    sparse_prefill,
    merge_states,
    store_kv,
    gather_kv,
    to_global_indices,
)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_compiled_and_eager_are_bit_equal(function, backend, problem):
    arguments = tuple(vars(problem).values())
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for got, expected in zip(compiled(*arguments), function(*arguments), strict=True):
        assert (got is None and expected is None) or torch.equal(got, expected)


def test_graph_holds_the_op(problem):
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    torch.compile(decode, fullgraph=True, backend=keep)(*vars(problem).values())
    targets = [node.target for node in graphs[0].graph.nodes]
    assert targets.count(OPS.decode) == 1


def test_plan_made_outside_the_graph(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    plan = kernel.plan(problem.seq_lens, num_heads=4, q_len=1, max_splits=2)

    def planned(q, kv_cache, block_table, seq_lens):
        return mla.decode(q, kv_cache, block_table, seq_lens, plan=plan, softmax_scale=SCALE)

    torch._dynamo.reset()
    arguments = tuple(vars(problem).values())
    for got, expected in zip(torch.compile(planned, fullgraph=True)(*arguments), planned(*arguments), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("number", [{"max_splits": 2}, {"batch_invariant": True}])
def test_a_number_beside_the_plan_that_has_it(problem, number):
    kernel = mla.lookup(op="decode", q_dtype="bf16", num_heads=4, q_len=1)
    plan = kernel.plan(problem.seq_lens, num_heads=4, q_len=1, **number)

    def planned(q, kv_cache, block_table, seq_lens):
        return mla.decode(q, kv_cache, block_table, seq_lens, plan=plan, softmax_scale=SCALE, **number)[0]

    arguments = problem.q, problem.kv_cache, problem.block_table, problem.seq_lens
    torch._dynamo.reset()
    assert torch.equal(torch.compile(planned, fullgraph=True)(*arguments), planned(*arguments))


def test_dynamic_shapes(problem):
    torch._dynamo.reset()
    compiled = torch.compile(decode, fullgraph=True, dynamic=True)
    q, kv_cache, block_table, seq_lens = vars(problem).values()
    for batch in (3, 2):
        arguments = q[:batch], kv_cache, block_table[:batch], seq_lens[:batch]
        assert torch.equal(compiled(*arguments)[0], decode(*arguments)[0])


@pytest.mark.parametrize("with_plan", [False, True])
def test_one_graph_serves_all_batch_sizes(with_plan, problem):
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    def planned(q, kv_cache, block_table, seq_lens, plan):
        return mla.decode(q, kv_cache, block_table, seq_lens, plan=plan, softmax_scale=SCALE)[0]

    torch._dynamo.reset()
    compiled = torch.compile(planned, fullgraph=True, dynamic=True, backend=keep)
    kernel = mla.lookup(op="decode", q_dtype="bf16", num_heads=4, q_len=1)
    requests = [torch.cat([given, given]) for given in (problem.q, problem.block_table, problem.seq_lens)]
    for batch in (2, 3, 4):
        q, block_table, seq_lens = (given[:batch] for given in requests)
        plan = kernel.plan(seq_lens) if with_plan else None
        arguments = q, problem.kv_cache, block_table, seq_lens, plan
        assert torch.equal(compiled(*arguments), planned(*arguments))
    assert len(graphs) == 1


def test_arguments_that_a_graph_cannot_take_are_refused(problem):
    out = problem.call()[0]
    torch._dynamo.reset()
    with pytest.raises(Exception, match="UnsupportedError"):
        torch.compile(problem.call, fullgraph=True)(out=out)
    with pytest.raises(mla.errors.UnsupportedError, match="out: got Tensor; accepts None under"):
        torch_ops.require_defaults(workspace=None, out=out)


def test_a_gradient_is_refused_only_while_gradients_are_recorded(problem):
    learned = torch.nn.Parameter(problem.q)
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: problem.call(q=q), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="UnsupportedError"):
        compiled(learned)
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            assert torch.equal(compiled(learned)[0], problem.call()[0])


def test_a_negative_bit_is_resolved_by_torch(problem):
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: problem.call(q=q), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch._neg_view(problem.q))[0], problem.call(q=-problem.q)[0])


def test_eager_calls_do_not_go_through_torch_library(problem):
    assert not tensors.compiling()
    code = """
import sys, torch, mla_kernels as mla
mla.decode(torch.ones(1, 1, 1, 576), torch.ones(1, 4, 576), None, torch.ones(1, dtype=torch.int32), softmax_scale=1.0)
assert "mla_kernels.api.torch_ops" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


SCALES = (SCALE, 1.0, 1.0, 1.0)


def samples(problem) -> dict:
    q, kv_cache, block_table, seq_lens = vars(problem).values()
    plan = mla.lookup(op="decode", q_dtype="bf16").plan(seq_lens, num_heads=4, q_len=1)
    pair = (q[..., :512], q[..., 512:])
    absent = (None,) * 6
    no_plan = (None, "", [0, 0, 0])
    return {
        "decode": (
            q,
            None,
            kv_cache,
            None,
            block_table,
            seq_lens,
            None,
            None,
            *no_plan,
            None,
            *SCALES,
            True,
            0,
            False,
            0,
        ),
        "decode planned": (
            *(*pair, kv_cache, None, block_table, seq_lens, None, None),
            *(plan.buffer, plan.variant, [3, 1, 4], None, *SCALES, True, 0, False, 0),
        ),
        "decode ragged": (
            *(q.transpose(0, 1), None, kv_cache, None, block_table, seq_lens, torch.arange(4, dtype=torch.int32)),
            *(seq_lens[None], *no_plan, None, *SCALES, True, 0, False, 1),
        ),
        "decode by lengths of tokens": (
            *(q, None, kv_cache, None, block_table, seq_lens, None, seq_lens[:, None]),
            *(*no_plan, None, *SCALES, True, 0, False, 0),
        ),
        "sparse_decode": (q, None, kv_cache, None, indices(3, 1, 6), *absent, None, None, *SCALES, 0),
        "sparse_prefill": (q[:, 0], None, kv_cache[0], None, indices(3, 6, end=16), *absent, *SCALES),
        "merge_states": (torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4), None, "bf16"),
        "store_kv": (
            q[:, 0, 0, :512],
            q[:, 0, 0, 512:],
            kv_cache.clone(),
            None,
            torch.tensor([3, -1, 70]),
            None,
            None,
            False,
        ),
        "gather_kv": (kv_cache, None, indices(9), None, None, 1.0),
        "to_global_indices": (torch.arange(3).int(), block_table, indices(3, 5, end=60), 16),
    }


def test_what_make_fx_records_is_the_op(problem):
    """Not the memory of its outputs, which nothing would write in the graph."""
    q, kv_cache, block_table, seq_lens = vars(problem).values()
    graph = make_fx(lambda q: mla.decode(q, kv_cache, block_table, seq_lens, softmax_scale=SCALE)[0])(q)
    assert "mla_kernels.decode" in graph.code
    assert torch.equal(graph(q), mla.decode(q, kv_cache, block_table, seq_lens, softmax_scale=SCALE)[0])


def test_the_output_of_e4m3_queries_is_known_before_a_launch(problem):
    given = samples(problem)["decode"]
    with FakeTensorMode() as mode:
        arguments = [mode.from_tensor(each) if torch.is_tensor(each) else each for each in given]
        arguments[0], arguments[2] = (arguments[at].to(torch.float8_e4m3fn) for at in (0, 2))
        assert OPS.decode(*arguments)[0].dtype == torch.bfloat16


def test_a_type_without_a_kernel_is_left_to_the_launch():
    with FakeTensorMode():
        out, _ = OPS.merge_states(torch.ones(2, 3, 4, 8, dtype=torch.float64), torch.ones(2, 3, 4), None, None)
        assert out.dtype == torch.float64


@pytest.mark.parametrize(
    "sample",
    [
        "decode",
        "decode planned",
        "decode ragged",
        "decode by lengths of tokens",
        "sparse_decode",
        "sparse_prefill",
        "merge_states",
        "store_kv",
        "gather_kv",
        "to_global_indices",
    ],
)
def test_opcheck(sample, problem):
    torch.library.opcheck(getattr(OPS, sample.split()[0]).default, samples(problem)[sample])
