"""Sparse decode of the sm90 payload: the suite of the op, batches that fill a GPU, and groups of heads."""

from __future__ import annotations

from dataclasses import replace

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import AlignmentError, StrideError, UnsupportedError
from torch import Tensor

from tests.gpu.support.sm90 import ARCH, SPARSE_DECODE, each_sparse_decode, each_with
from tests.gpu.support.sparse_results import RESULTS, compare_results, empty_results
from tests.kernels.formats.test_bytes import (
    test_a_call_finds_two_formats_by_their_rows,
    test_attention_reads_every_code_and_every_scale,
)
from tests.kernels.test_exact import test_sparse_decode_selects_one_key
from tests.kernels.test_sparse_decode import *  # noqa: F403
from tests.support.compare import assert_same_bytes
from tests.support.rows import Row
from tests.support.sparse import SparseDecode
from tests.support.variants import range_over

__all__ = [
    "test_a_call_finds_two_formats_by_their_rows",
    "test_attention_reads_every_code_and_every_scale",
    "test_sparse_decode_selects_one_key",
]
del test_codes_as_uint8  # noqa: F821, of caches of plain e4m3, for which there is no variant


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    range_over(metafunc, lambda row: row.arch == ARCH)


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [16, 64, 65, 100, 127, 128])
@pytest.mark.parametrize(("batch", "q_len"), [(1, 1), (4, 1), (9, 1), (32, 1), (66, 1), (70, 1), (133, 2), (2, 300)])
def test_batches(variant: Row, batch: int, q_len: int, num_heads: int) -> None:
    """Some requests are in many parts, some in two or in one, and some parts have several requests."""
    heads = variant.heads(num_heads)
    problem = SparseDecode(variant.name, batch=batch, q_len=q_len, num_heads=heads, topk=300, num_pages=20)
    replace(problem, counts=True, sink=True, extra_topk=70).check()


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [32, 64, 128])
@pytest.mark.parametrize("batch", [1, 4, 9])
def test_few_tokens_with_a_limit_of_splits(variant: Row, batch: int, num_heads: int) -> None:
    """The limit is out of reach, but with it no launch computes heads in groups."""
    heads = variant.heads(num_heads)
    problem = SparseDecode(variant.name, batch=batch, num_heads=heads, topk=300, num_pages=20, max_splits=1000)
    replace(problem, counts=True, sink=True, extra_topk=70).check()


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [1, 7, 12, 16, 17, 32])
@pytest.mark.parametrize("topk", [2048, 8192])
def test_one_token_in_many_parts(variant: Row, topk: int, num_heads: int) -> None:
    """There are more blocks than fragments of eight rows, so that blocks combine some rows of a fragment."""
    heads = variant.heads(num_heads)
    SparseDecode(variant.name, batch=1, num_heads=heads, topk=topk, num_pages=140, sink=True).check()


@each_sparse_decode
@pytest.mark.parametrize("batch", [3, 5, 40])
@pytest.mark.parametrize("max_splits", [0, 1000])
def test_unaligned_queries_of_128_heads(variant: Row, batch: int, max_splits: int) -> None:
    """A warp copies such queries, and blocks share rows all the same; parts begin at odd tiles too."""
    problem = SparseDecode(variant.name, batch=batch, num_heads=variant.heads(128), topk=700, num_pages=20, sink=True)
    problem = replace(problem, max_splits=max_splits)
    inputs = problem.tensors()
    q = torch.empty(inputs["q"].numel() + 1, dtype=inputs["q"].dtype, device="cuda")[1:].view_as(inputs["q"])
    inputs["q"] = q.copy_(inputs["q"])
    results = empty_results(problem)
    problem.launch(inputs, **results)
    compare_results(problem, results)


@each_sparse_decode
def test_more_query_tokens_than_blocks_of_a_grid(variant: Row) -> None:
    SparseDecode(variant.name, batch=1, q_len=5000, num_heads=9, topk=64).check()


@each_sparse_decode
def test_what_the_kernel_cannot_read_is_refused_before_a_launch(variant: Row) -> None:
    problem = SparseDecode(variant.name)
    inputs = problem.tensors()
    pool = inputs["kv_cache"]
    size = len(pool) * pool.stride(0)
    shifted = torch.empty(size + 1, dtype=pool.dtype, device="cuda")[1:].as_strided(pool.shape, pool.stride(), 1)
    with pytest.raises(AlignmentError, match="kv_cache"):
        problem.launch(inputs | {"kv_cache": shifted})
    odd = torch.empty(*pool.shape[:2], pool.shape[2] + 4, dtype=pool.dtype, device="cuda")[..., : pool.shape[2]]
    with pytest.raises(StrideError, match="kv_cache"):
        problem.launch(inputs | {"kv_cache": odd})
    many = torch.empty(3, 1, 129, variant.form.d_qk, dtype=inputs["q"].dtype, device="cuda")
    with pytest.raises((UnsupportedError, mla.errors.VariantNotFoundError), match="num_heads"):
        mla.sparse_decode(many, pool, inputs["indices"], softmax_scale=1.0, kv_dtype=variant.kv_dtype)


GROUP = 16
"""Heads of a group: few query tokens with more heads are computed by the kernel of ``swap_ab``, in groups."""


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


@each_with("num_heads", [32, 64, 128], VARIANTS)
def test_a_workspace_of_the_largest_batch_is_enough_for_each(variant: Row, num_heads: int) -> None:
    """With groups and without them, and with a second cache of which only the extent is told."""
    kernel = mla.lookup(**SparseDecode(variant.name, num_heads=num_heads, topk=128).config(), page_size=64)

    def size(batch: int, **extents: int) -> int:
        return kernel.workspace_size(batch=batch, q_len=1, num_heads=num_heads, topk=128, **extents)

    for extents in ({}, {"extra_topk": 512}):
        sizes = [size(batch, **extents) for batch in range(1, 30)]
        assert sizes[-1] > 0
        assert sizes == sorted(sizes)
    problem = SparseDecode(variant.name, batch=20, num_heads=num_heads, topk=128, extra_topk=512, num_pages=20)
    workspace = torch.empty(size(20, extra_topk=512), dtype=torch.uint8, device="cuda")
    results = empty_results(problem)
    problem.launch(problem.tensors(), **results, workspace=workspace)
    compare_results(problem, results)
