"""Dense decode of the sm90 payload again and again: in graphs, on streams, in threads, in memory used before."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.gpu.support.launches import captured, check_at_once
from tests.gpu.support.sm90 import MIXED, each, each_with
from tests.gpu.support.tensors import set_all_bits
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row

RAGGED = tuple(900 + 37 * (i % 5) for i in range(150))
"""Most of these requests have one split or two."""


@each
def test_a_graph_is_replayed_after_the_lengths_change(variant: Row) -> None:
    """Plan and launch are captured; lengths, tables and queries change between replays."""
    problems = [
        Decode(variant.name, lengths=lengths, num_heads=16, seed=i)
        for i, lengths in enumerate([(3000, 500, 64), (1, 3050, 700), (0, 0, 3100)])
    ]
    spare = [replace(problem, spare=60 - sum(problem.pages)) for problem in problems]
    tensors = [problem.tensors() for problem in spare]
    width = max(given["block_table"].shape[1] for given in tensors)
    for given in tensors:
        table = torch.full((3, width), memory.UNUSED_PAGE, dtype=torch.int32, device="cuda")
        table[:, : given["block_table"].shape[1]] = given["block_table"]
        given["block_table"] = table
    inputs = {name: tensor.clone() for name, tensor in tensors[0].items()}
    kernel = problems[0].kernel()
    plan = kernel.plan(inputs["seq_lens"])
    out = torch.empty(3, 1, 16, variant.form.d_v, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
    lse = torch.empty(3, 16, 1, device="cuda")
    size = kernel.workspace_size(**inputs)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    kernel.prepare()

    def step() -> None:
        kernel.plan(inputs["seq_lens"], out=plan)
        kernel(**inputs, **problems[0].scalars(), plan=plan, out=out, lse=lse, workspace=workspace)

    graph = captured(step)
    for problem, given in zip(spare, tensors, strict=True):
        for name, tensor in given.items():
            inputs[name].copy_(tensor)
        set_all_bits(out, lse, workspace)
        graph.replay()
        torch.cuda.synchronize()
        problem.compare(out, lse, *problem.expected())


@each
def test_two_streams_at_once(variant: Row) -> None:
    problems = [Decode(variant.name, lengths=(2500, 70, 0), num_heads=15 + i, seed=i) for i in range(2)]
    check_at_once([partial(problem.launch, problem.tensors()) for problem in problems])


@each
def test_other_tensors_at_the_same_addresses(variant: Row) -> None:
    """Caches of other pages and strides, and queries of other shapes and strides, take turns in the same memory."""
    places = {
        name: torch.zeros(1 << 22, dtype=memory.DTYPES[dtype], device="cuda")
        for name, dtype in (("q", variant.q_dtype), ("kv_cache", variant.kv_dtype))
    }
    problems = [
        Decode(variant.name, page_size=64, num_heads=16, seed=1),
        Decode(variant.name, page_size=128, num_heads=16, seed=2),
        Decode(
            variant.name,
            num_heads=variant.most("num_heads"),
            q_len=min(2, variant.most("q_len")),
            lengths=(300, 64, 0, 1, 5),
            seed=3,
        ),
    ]
    wanted = [problem.expected() for problem in problems]
    for _ in range(2):
        for problem, want in zip(problems, wanted, strict=True):
            for pad in (0, 64):
                inputs = problem.tensors()
                for name, place in places.items():
                    *outer, inner, row = inputs[name].shape
                    shape = (*outer, inner + pad // 16, row + pad)
                    view = place[: math.prod(shape)].view(shape)[..., :inner, :row]
                    inputs[name] = view.copy_(inputs[name])
                out, lse = problem.launch(inputs)
                problem.compare(out, lse, *want)


@each
def test_caches_freed_and_allocated_again(variant: Row) -> None:
    addresses = set()
    for i, page_size in enumerate((64, 128, 192) * 4):
        problem = Decode(variant.name, page_size=page_size, num_heads=16, strided=i % 2 == 1, seed=i)
        inputs = problem.tensors()
        addresses.add(inputs["kv_cache"].data_ptr())
        out, lse = problem.launch(inputs)
        problem.compare(out, lse, *problem.expected())
        del inputs
    assert len(addresses) < 12, "no address came back"


@each
def test_layers_take_turns_in_two_threads(variant: Row) -> None:
    problems = [Decode(variant.name, lengths=(700 + i, 20, 0), num_heads=16, seed=i) for i in range(4)]
    inputs = [problem.tensors() for problem in problems]
    want = [problem.launch(given) for problem, given in zip(problems, inputs, strict=True)]
    torch.cuda.synchronize()

    def steps(first: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(40):
                layer = (first + i) % len(problems)
                out, lse = problems[layer].launch(inputs[layer])
                assert_same_bytes("out", out, want[layer][0])
                assert_same_bytes("lse", lse, want[layer][1])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(steps, range(2)))


@each_with("num_heads, q_len", [(16, 1), (16, 2), (128, 2), (64, 1)])
@pytest.mark.parametrize("lengths", [MIXED, (1000,) * 64, RAGGED], ids=["mixed", "equal", "ragged"])
def test_the_same_bits_in_a_hundred_runs(variant: Row, num_heads: int, q_len: int, lengths: tuple[int, ...]) -> None:
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads, q_len=q_len)
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    for _ in range(100):
        out, lse = problem.launch(inputs)
        assert_same_bytes("out", out, want_out)
        assert_same_bytes("lse", lse, want_lse)
