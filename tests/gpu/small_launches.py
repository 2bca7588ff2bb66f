"""Small launches for tools that watch each access: ``python -m tests.gpu.small_launches TASK``.

A task is the name of a variant of dense or sparse decode, or ``caches`` for the ops around it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from mla_kernels import reference

from tests.gpu import test_gather_kv, test_merge_states, test_store_kv, test_to_global_indices
from tests.gpu.conftest import Case, arch_name
from tests.support.compare import SPARSE
from tests.support.problems import Decode
from tests.support.rows import row
from tests.support.sparse import SparseDecode

PROBLEMS: tuple[dict[str, Any], ...] = (
    {"lengths": (140, 20, 1, 0)},
    # Clusters of two blocks.
    {"lengths": (300, 0, 70), "num_heads": 128, "q_len": 2},
    # Pages of less than a tile.
    {"lengths": (300, 20), "num_heads": 128, "page_size": 16},
    # Queries that a warp copies.
    {"lengths": (200, 64), "num_heads": 9, "q_len": 3},
    # Splits and their merge.
    {"lengths": (500, 260), "max_splits": 3},
    # Rings of tiles that are gone round several times.
    {"lengths": (700, 64), "num_heads": 128, "max_splits": 1},
    # More items of a block than their ring holds.
    {"lengths": (33,) * 45, "num_heads": 128, "q_len": 8},
)


SMALLER: tuple[dict[str, Any], ...] = (
    {"lengths": (300, 0, 70), "q_len": 2},
    {"lengths": (700, 64), "page_size": 16, "max_splits": 1},
    {"lengths": (33,) * 140, "q_len": 2},
)
"""The same for variants of few rows of queries."""


def decode(variant: str) -> None:
    """Without a plan, so that it is made too; memory is allocated for each launch, no larger than it must be."""
    for options in filter(partial(served, variant), PROBLEMS + SMALLER):
        problem = Decode(variant, **options)
        inputs = problem.tensors()
        out, lse = problem.launch(inputs)
        # On the host, for tools watch the kernels of torch too.
        on_host = {name: tensor.cpu() for name, tensor in inputs.items()}
        problem.compare(out.cpu(), lse.cpu(), *reference.decode(**on_host, **problem.scalars(), dtype=torch.float64))


SPARSE_PROBLEMS: tuple[dict[str, Any], ...] = (
    {"sink": True, "extra_topk": 70, "counts": True},
    # Two blocks of heads; queries as boxes; splits and their merge.
    {"num_heads": 128, "topk": 300, "num_pages": 9, "sink": True},
    # Queries that a warp copies, requests in one part, rings that are gone round several times.
    {"num_heads": 9, "q_len": 70, "topk": 200, "batch": 4},
)


def sparse_decode(variant: str) -> None:
    """Compared on the host."""
    for options in SPARSE_PROBLEMS:
        problem = SparseDecode(variant, **options)
        inputs = problem.tensors()
        results = dict(zip(("out", "lse", "max_logits"), problem.launch(inputs, return_max_logits=True), strict=True))
        on_host = {name: tensor.cpu() for name, tensor in inputs.items()}
        want = problem.expected(on_host)
        problem.compare(
            {name: got.cpu() for name, got in results.items()}, dict(zip(results, want, strict=True)), SPARSE
        )


def served(variant: str, options: dict[str, Any]) -> bool:
    """Whether a variant has a problem's shape."""
    return row(variant).serves(num_heads=options.get("num_heads", 16), q_len=options.get("q_len", 1))


def caches() -> None:
    """The other ops, each with all of its types."""
    arch = str(arch_name())
    for case in cases(arch):
        case.load(case.fresh(0))
        case.run()
        case.check(0)
    for in_dtype, out_dtype in test_merge_states.TYPES:  # one row, whose states the warps of a block share
        test_merge_states.check(arch, (in_dtype, out_dtype), *test_merge_states.states(in_dtype, 50, 1, 1))


def cases(arch: str) -> Iterator[Case]:
    """One launch of each type."""
    for in_dtype, kv_dtype in test_store_kv.TYPES:
        yield test_store_kv.case(arch, in_dtype, kv_dtype)
    for kv_dtype, out_dtype in test_gather_kv.TYPES:
        yield test_gather_kv.case(arch, kv_dtype, out_dtype)
    for in_dtype, out_dtype in test_merge_states.TYPES:
        yield test_merge_states.case(arch, in_dtype, out_dtype)
    yield test_to_global_indices.case(arch)


if __name__ == "__main__":
    task = sys.argv[1]
    if task == "caches":
        caches()
    else:
        {"decode": decode, "sparse_decode": sparse_decode}[row(task).op](task)
