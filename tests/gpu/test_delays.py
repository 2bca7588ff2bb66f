"""Dense decode of the sm90 payload whose warps stall at random: each role falls behind the others, and no bit changes.

The payload under test is that of ``nox -s delays``, with barriers at which warps stall (``tests/gpu/delays``). It is
loaded beside the installed one, which was built of the same sources and says what is right.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mla_kernels import _launcher
from mla_kernels.discovery import Payload, payloads
from mla_kernels.resolve import bound

from tests.gpu.conftest import absence, arch_name, refuse
from tests.gpu.sm90 import ARCH, each_with
from tests.kernels.compare import assert_same_bytes
from tests.kernels.problems import Decode, garbage_workspace
from tests.kernels.rows import Row

WHEELS = Path(__file__).parents[2] / "dist" / "delays"
PAGES = {"tma": 64, "gather": 16}
RAGGED = (4096, 2999, 1025, 64, 0, 1, 129) * 10


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library whose warps stall."""
    reason = absence()
    if reason is not None:
        refuse(reason)
    if arch_name() != ARCH:
        pytest.skip(f"not run: {ARCH}: the arch under test is {arch_name()}")
    wheels = sorted(WHEELS.glob("mla_kernels_sm90-*.whl"))
    if not wheels:
        refuse(f"{ARCH}: no payload whose warps stall is in dist/delays (nox -s delays)")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract("mla_kernels_sm90/libmla_sm90.so", tmp_path_factory.mktemp("delays")))


@pytest.fixture(scope="module")
def stalling(library: Path) -> Payload:
    """The installed payload with that library."""
    return replace(payloads().found["sm90"], library=_launcher.Payload(str(library)))


def kernel_of(payload: Payload, problem: Decode) -> Any:
    """The kernel of a problem, from that payload."""
    installed = problem.kernel()
    return bound(payload, installed.variant, installed.config)


@each_with("num_heads", [9, 16, 128])
@pytest.mark.parametrize("max_splits", [None, 1])
def test_no_bit_changes_in_a_hundred_runs(
    variant: Row, num_heads: int, max_splits: int | None, stalling: Payload
) -> None:
    """Of each block, some 10 tiles and more, so that every ring is gone round several times."""
    problem = Decode(
        variant.name,
        lengths=RAGGED,
        num_heads=num_heads,
        q_len=2,
        page_size=PAGES[variant.load],
        max_splits=max_splits,
    )
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    problem.compare(want_out, want_lse, *problem.expected())
    kernel = kernel_of(stalling, problem)
    plan = kernel.plan(inputs["seq_lens"], max_splits=max_splits or 0)
    out, lse = torch.empty_like(want_out), torch.empty_like(want_lse)
    workspace = garbage_workspace("cuda")
    for _ in range(100):
        for buffer in (out, lse, workspace):
            buffer.view(torch.uint8).fill_(0xFF)
        kernel(**inputs, **problem.scalars(), plan=plan, out=out, lse=lse, workspace=workspace)
        assert_same_bytes("out", out, want_out)
        assert_same_bytes("lse", lse, want_lse)


def test_the_library_is_another(library: Path) -> None:
    """Builds of the same sources are the same byte for byte, so other bytes mean other barriers."""
    assert library.read_bytes() != (payloads().found["sm90"].folder / library.name).read_bytes()
