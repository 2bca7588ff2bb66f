"""Attention of the sm90 payload whose warps stall at random: each role falls behind the others, and no bit changes.

The payload under test is that of ``nox -s delays``, with barriers at which warps stall (``tests/gpu/delays``). It is
loaded beside the installed one, which was built of the same sources and says what is right.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import _launcher
from mla_kernels.api.lookup import bound
from mla_kernels.kernels.base import Kernel
from mla_kernels.payloads.discovery import Payload, payloads

from tests.gpu.support.availability import refuse, require_arch, require_payload
from tests.gpu.support.sm90 import ARCH, each_sparse_decode, each_with
from tests.gpu.support.sparse_results import compare_results, empty_results
from tests.gpu.support.tensors import poisoned_workspace, set_all_bits
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row
from tests.support.sparse import SparseDecode

WHEELS = Path(__file__).parents[3] / "dist" / "delays"
PAGES = {"tma": 64, "gather": 16}
RAGGED = (4096, 2999, 1025, 64, 0, 1, 129) * 10
PAIRS = (1500,) * 64
FEW = (20, 140, 0, 1, 97, 640)
"""The blocks that have a split of the longest request combine it, while the others have no tiles."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library whose warps stall."""
    require_payload()
    require_arch(ARCH)
    wheels = sorted(WHEELS.glob("mla_kernels_sm90-*.whl"))
    if not wheels:
        refuse(f"{ARCH}: no payload whose warps stall is in dist/delays (nox -s delays)")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract("mla_kernels_sm90/libmla_sm90.so", tmp_path_factory.mktemp("delays")))


@pytest.fixture(scope="module")
def stalling(library: Path) -> Payload:
    """The installed payload with that library."""
    return replace(payloads().found["sm90"], library=_launcher.Payload(str(library)))


def kernel_of(payload: Payload, installed: Kernel) -> Any:
    """A kernel, from that payload."""
    return bound(payload, installed.variant, installed.config)


@each_with("num_heads", [9, 16, 48, 128])
@pytest.mark.parametrize(
    ("lengths", "max_splits"),
    [(RAGGED, None), (RAGGED, 1), (PAIRS, None), (FEW, None)],
    ids=["ragged", "whole", "pairs", "few"],
)
def test_no_bit_changes_in_a_hundred_runs(
    variant: Row, num_heads: int, lengths: tuple[int, ...], max_splits: int | None, stalling: Payload
) -> None:
    """Each block has some 10 tiles and more, so that every pipeline stage is used several times."""
    problem = Decode(
        variant.name,
        lengths=lengths,
        num_heads=num_heads,
        q_len=min(2, variant.most("q_len")),
        page_size=PAGES[variant.load],
        max_splits=max_splits,
    )
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    problem.compare(want_out, want_lse, *problem.expected())
    kernel = kernel_of(stalling, problem.kernel())
    plan = kernel.plan(inputs["seq_lens"], max_splits=max_splits or 0)
    out, lse = torch.empty_like(want_out), torch.empty_like(want_lse)
    workspace = poisoned_workspace()
    for _ in range(100):
        set_all_bits(out, lse, workspace)
        kernel(**inputs, **problem.scalars(), plan=plan, out=out, lse=lse, workspace=workspace)
        assert_same_bytes("out", out, want_out)
        assert_same_bytes("lse", lse, want_lse)


@each_with("num_heads", [16, 64, 128])
def test_blocks_that_combine_requests_without_tokens(variant: Row, num_heads: int, stalling: Payload) -> None:
    """What has been asked for before a length was known does not disturb the combining of nothing."""
    problem = Decode(variant.name, lengths=(0, 3, 0), num_heads=num_heads, page_size=PAGES[variant.load])
    inputs = problem.tensors()
    kernel = kernel_of(stalling, problem.kernel())
    plan = kernel.plan(torch.full_like(inputs["seq_lens"], 3000))
    want = problem.expected()
    workspace = poisoned_workspace()
    for _ in range(100):
        problem.compare(*kernel(**inputs, **problem.scalars(), plan=plan, workspace=workspace), *want)


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [9, 64, 128])
@pytest.mark.parametrize("batch", [2, 32, 150])
def test_no_bit_of_sparse_decode_changes(variant: Row, batch: int, num_heads: int, stalling: Payload) -> None:
    """Some requests are in many parts, some in two, and some parts have many requests, over two caches."""
    problem = SparseDecode(
        variant.name,
        batch=batch,
        q_len=2,
        num_heads=variant.heads(num_heads),
        topk=900,
        num_pages=40,
        extra_topk=100,
        counts=True,
    )
    inputs = problem.tensors()
    results = empty_results(problem)
    problem.launch(inputs, **results)
    compare_results(problem, results)
    want = {name: result.clone() for name, result in results.items()}
    kernel = kernel_of(stalling, mla.lookup(**problem.config(), page_size=problem.page_size))
    workspace = poisoned_workspace()
    for _ in range(50):
        set_all_bits(*results.values(), workspace)
        kernel(**inputs, **problem.scalars(), **results, workspace=workspace)
        for name, result in results.items():
            assert_same_bytes(name, result, want[name])


def test_the_library_is_another(library: Path) -> None:
    """Builds of the same sources are the same byte for byte, so other bytes mean other barriers."""
    assert library.read_bytes() != (payloads().found["sm90"].folder / library.name).read_bytes()
