"""Small launches for tools that watch each access: ``python -m tests.gpu.support.small_launches TASK``.

A task is the name of a variant of dense or sparse decode, or ``caches`` for the ops around it. With ``--whole-tiles``,
requests of dense decode that are not alone have whole tiles.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from mla_kernels import reference

from tests.gpu.support import cache_rows, merge_states, sm100
from tests.gpu.support.availability import arch_name
from tests.gpu.support.cases import EVERY, case
from tests.gpu.support.sm90 import TILE
from tests.gpu.support.sparse_results import RESULTS, compare_results
from tests.support.problems import Decode, generator, random
from tests.support.rows import row
from tests.support.sparse import SparseDecode

PROBLEMS: tuple[dict[str, Any], ...] = (
    {"lengths": (140, 20, 1, 0)},
    # 128 heads take clusters of two blocks.
    {"lengths": (300, 0, 70), "num_heads": 128, "q_len": 2},
    # These pages are smaller than a tile.
    {"lengths": (300, 20), "num_heads": 128, "page_size": 16},
    # A warp copies these queries.
    {"lengths": (200, 64), "num_heads": 9, "q_len": 3},
    # Splits are combined.
    {"lengths": (500, 260), "max_splits": 3},
    # Every pipeline stage is used several times.
    {"lengths": (700, 64), "num_heads": 128, "max_splits": 1},
    # A block has more work tiles than their pipeline has stages.
    {"lengths": (33,) * 45, "num_heads": 128, "q_len": 8},
    # The last tile has a tail.
    {"lengths": (140,), "num_heads": 128},
    # Requests have different numbers of query tokens: some clusters have no row of some of them.
    {"lengths": (300, 70, 20, 0), "q_lens": (1, 4, 0, 2), "num_heads": 128, "spare": 0},
)
OF_SM100: tuple[dict[str, Any], ...] = (
    # Few heads are packed into the 128 of the kernel, and unpacked.
    {"lengths": (300, 128, 20, 1, 0), "num_heads": 9, "q_len": 3},
    {"lengths": (300, 0, 70), "num_heads": 128, "q_len": 2},
    # Queries and outputs of 128 heads and one token are used in place.
    {"lengths": (300, 70), "num_heads": 128},
    {"lengths": (1400, 640, 20), "max_splits": 5},
)
"""Problems for what prepares and finishes a launch of the sm100 payload; a persistent schedule never splits."""
SMALLER: tuple[dict[str, Any], ...] = (
    {"lengths": (300, 0, 70), "q_len": 2},
    {"lengths": (700, 64), "page_size": 16, "max_splits": 1},
    {"lengths": (33,) * 140, "q_len": 2},
    {"lengths": (700, 64), "max_splits": 1},
    {"lengths": (33,) * 140},
    {"lengths": (140,)},
    {"lengths": (300, 70, 20), "q_lens": (1, 0, 1), "spare": 0},
)
"""Problems for variants that serve few query rows."""


def decode(variant: str) -> None:
    """Launch without a plan, so that it is made too, and in memory that is no larger than it must be."""
    of_sm100 = row(variant).arch == sm100.ARCH
    for options in filter(partial(served, variant), OF_SM100 if of_sm100 else PROBLEMS + SMALLER):
        lengths = options["lengths"]
        if "--whole-tiles" in sys.argv and len(lengths) > 1:
            lengths = tuple(-(-n // TILE) * TILE for n in lengths)
        given = {**options, "lengths": lengths}
        problem = sm100.problem(row(variant), **given) if of_sm100 else Decode(variant, **given)
        inputs = problem.tensors()
        out, lse = problem.launch(inputs)
        # The reference runs on the host, because the tools would watch the kernels of torch too.
        on_host = {name: tensor.cpu() for name, tensor in inputs.items()}
        problem.compare(
            out.cpu(),
            lse.cpu(),
            *reference.decode(**on_host, **problem.scalars(), **problem.options, dtype=torch.float64),
        )


SPARSE_PROBLEMS: tuple[dict[str, Any], ...] = (
    {"sink": True, "extra_topk": 70, "counts": True},
    # There are two blocks of heads, queries come as boxes, splits are combined.
    {"num_heads": 128, "topk": 300, "num_pages": 9, "sink": True},
    # A warp copies these queries, requests are in one part, every pipeline stage is used several times.
    {"num_heads": 9, "q_len": 70, "topk": 200, "batch": 4},
)


SPARSE_OF_SM100: tuple[dict[str, Any], ...] = (
    {"counts": True, "absent": 0.5},
    {"num_heads": 128, "topk": 300, "num_pages": 9},
    {"num_heads": 9, "q_len": 5, "topk": 512, "max_splits": 3},
)
"""Problems without what the sm100 payload does not take: sinks, extra caches, ``max_logits``."""


def sparse_decode(variant: str) -> None:
    """Launch each problem, and compare on the host."""
    of_sm100 = row(variant).arch == sm100.ARCH
    for options in SPARSE_OF_SM100 if of_sm100 else SPARSE_PROBLEMS:
        heads = row(variant).heads(options.get("num_heads", SparseDecode.num_heads))
        problem = SparseDecode(variant, **{**options, "num_heads": heads})
        inputs = problem.tensors()
        got = problem.launch(inputs) if of_sm100 else problem.launch(inputs, return_max_logits=True)
        results = dict(zip(RESULTS[: len(got)], got, strict=True))
        on_host = {name: tensor.cpu() for name, tensor in inputs.items()}
        compare_results(problem, {name: got.cpu() for name, got in results.items()}, on_host)


def served(variant: str, options: dict[str, Any]) -> bool:
    """Whether a variant has a problem's shape."""
    splits = row(variant).schedule != "persistent" or "max_splits" not in options
    numbers = {"num_heads": 16, "q_len": 1, "page_size": Decode.page_size}
    return splits and row(variant).serves(**{name: options.get(name, number) for name, number in numbers.items()})


def caches() -> None:
    """Launch the ops around attention, each with all of its types."""
    arch = str(arch_name())
    for op, types in EVERY:
        launch = case(arch, op, types)
        launch.load(launch.fresh(0))
        launch.run()
        launch.check(0)
    slots = torch.randperm(48, generator=generator(1))[:31]
    for in_dtype, form in cache_rows.STORES:
        cache_rows.check_store(arch, in_dtype, form, random(generator(2), 31, form.d_qk), slots - 2, (3, 16))
    for form, out_dtype in cache_rows.GATHERS:
        cache_rows.check_gather(arch, form, out_dtype, slots, torch.tensor([*slots[::2], -1, 48]).int(), (3, 16))
    for in_dtype, out_dtype in merge_states.TYPES:  # the warps of a block share the states of one row
        merge_states.check(arch, (in_dtype, out_dtype), *merge_states.states(in_dtype, 50, 1, 1))


if __name__ == "__main__":
    task = sys.argv[1]
    if task == "caches":
        caches()
    else:
        {"decode": decode, "sparse_decode": sparse_decode}[row(task).op](task)
