"""Sparse decode of few query tokens with many heads, which the kernel of ``swap_ab`` computes in groups of sixteen."""

from __future__ import annotations

from dataclasses import replace

import mla_kernels as mla
import pytest
import torch
from torch import Tensor

from tests.gpu.support.sm90 import SPARSE_DECODE, each_with
from tests.gpu.support.sparse_results import RESULTS, compare_results, empty_results
from tests.support.compare import assert_same_bytes
from tests.support.rows import Row
from tests.support.sparse import SparseDecode

GROUP = 16


def _traits(variant: Row) -> tuple[object, ...]:
    return tuple(sorted(pair for pair in dict(variant.traits).items() if pair[0] != "schedule"))


IN_GROUPS = {_traits(row): row for row in SPARSE_DECODE if row.schedule == "swap_ab"}
VARIANTS = [row for row in SPARSE_DECODE if _traits(row) in IN_GROUPS]
each_few = pytest.mark.parametrize(("batch", "q_len"), [(1, 1), (3, 1), (1, 3)])


def launched(problem: SparseDecode, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The results of a launch into buffers of NaN."""
    results = {name: result.fill_(torch.nan) for name, result in empty_results(problem).items()}
    problem.launch(inputs, **results)
    return results


@each_with("num_heads", [32, 48, 64, 128], VARIANTS)
@each_few
def test_groups_give_what_so_many_tokens_give(variant: Row, batch: int, q_len: int, num_heads: int) -> None:
    """Bit for bit: the groups of a token are tokens of sixteen heads that select the same."""
    problem = SparseDecode(
        variant.name, batch=batch, q_len=q_len, num_heads=num_heads, topk=200, extra_topk=70, counts=True, num_pages=20
    )
    inputs = problem.tensors()
    tokens, groups = batch * q_len, num_heads // GROUP
    alike = replace(problem, variant=IN_GROUPS[_traits(variant)].name, batch=tokens, q_len=groups, num_heads=GROUP)
    several = {name: tensor for name, tensor in inputs.items() if name.endswith("kv_cache")}
    several["q"] = inputs["q"].reshape(tokens, groups, GROUP, -1)
    for name in ("indices", "extra_indices", "topk_length", "extra_topk_length"):
        of_token = inputs[name].flatten(0, 1)
        several[name] = torch.stack([of_token] * groups, 1)
    got, want = launched(problem, inputs), launched(alike, several)
    assert_same_bytes("out", got["out"], want["out"].view_as(got["out"]))
    for name in RESULTS[1:]:
        own = got[name].transpose(1, 2).reshape(tokens, num_heads)
        assert_same_bytes(name, own, want[name].transpose(1, 2).reshape(tokens, num_heads))


@each_with("num_heads", [32, 48, 64, 96, 112, 128], VARIANTS)
@each_few
@pytest.mark.parametrize("topk", [64, 1100])
def test_each_head_has_its_own_sink(variant: Row, batch: int, q_len: int, num_heads: int, topk: int) -> None:
    """Where a token is in one part, and where parts are combined."""
    problem = SparseDecode(variant.name, batch=batch, q_len=q_len, num_heads=num_heads, topk=topk, num_pages=20)
    replace(problem, counts=True, sink=True, strided=True).check()


@each_with("num_heads", [64, 128], VARIANTS)
def test_with_a_limit_of_splits_no_result_depends_on_the_batch(variant: Row, num_heads: int) -> None:
    problem = SparseDecode(variant.name, batch=40, num_heads=num_heads, topk=300, num_pages=20, max_splits=1)
    inputs = problem.tensors()
    together = launched(problem, inputs)
    first = {name: tensor if name == "kv_cache" else tensor[:1] for name, tensor in inputs.items()}
    alone = launched(replace(problem, batch=1), first)
    for name, result in alone.items():
        assert_same_bytes(name, result, together[name][:1])


@each_with("num_heads", [48, 64, 128], VARIANTS)
def test_a_workspace_is_as_large_as_the_extents_say(variant: Row, num_heads: int) -> None:
    """It is asked for without tensors, whose strides a launch may have otherwise."""
    problem = SparseDecode(variant.name, batch=1, q_len=2, num_heads=num_heads, topk=1100, num_pages=20, strided=True)
    kernel = mla.lookup(**problem.config(), page_size=problem.page_size)
    size = kernel.workspace_size(batch=1, q_len=2, num_heads=num_heads, topk=1100)
    assert size > 0
    inputs = problem.tensors()
    assert kernel.workspace_size(**inputs) == size
    results, workspace = empty_results(problem), torch.empty(size, dtype=torch.uint8, device="cuda")
    problem.launch(inputs, **results, workspace=workspace)
    compare_results(problem, results)
