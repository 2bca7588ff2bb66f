"""compute-sanitizer finds nothing in small launches of every op of the sm90 payload."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mla_kernels as mla
import pytest

from tests.gpu.conftest import refuse
from tests.gpu.sm90 import DENSE, SPARSE_DECODE
from tests.support.rows import row

ROOT = Path(__file__).parents[2]
TOOLS = ("memcheck", "racecheck", "initcheck")
"""Not synccheck, for which every phase of a barrier must be waited for: ``logits_done`` is a hint."""
WATCHED = [
    (each.name, tool)
    for each in (*DENSE, *SPARSE_DECODE)
    if each.q_dtype == "bf16"
    for tool in TOOLS
    if tool != "racecheck" or (each.load == "tma" and each.kv_dtype == each.q_dtype)
]
"""racecheck follows neither copies that arrive at a barrier when they are done, with which ``gather`` loads, nor an
order that one barrier hands on to another, as where threads that widen e4m3 reuse the memory of Q: it reports all of
them. Of ``stream`` it reports three pairs on either side of a barrier (docs/kernels/sm90_decode.md). Stalling warps
(test_delays.py) watch those."""
FOUND = 86
"""The exit status of a run in which a tool found something."""


@pytest.fixture
def sanitizer() -> str:
    """The path of compute-sanitizer."""
    found = shutil.which("compute-sanitizer")
    if found is None:
        refuse("no compute-sanitizer on PATH")
    return str(found)


@pytest.mark.parametrize(("variant", "tool"), WATCHED)
def test_decode(variant: str, tool: str, arch: str, sanitizer: str) -> None:
    if arch != row(variant).arch:
        pytest.skip(f"not run: {variant}: the arch under test is {arch}")
    if not mla.variants(arch=arch, op="decode"):
        refuse(f"{arch}: no payload with decode is installed")
    check(sanitizer, tool, variant)


@pytest.mark.parametrize("tool", TOOLS)
def test_caches(tool: str, arch: str, sanitizer: str) -> None:
    check(sanitizer, tool, "caches")


def check(sanitizer: str, tool: str, task: str) -> None:
    """Without torch's cache of memory, so that what lies beyond a tensor belongs to nobody."""
    done = subprocess.run(
        [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20",
         sys.executable, "-m", "tests.gpu.small_launches", task],
        cwd=ROOT, env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode != FOUND, f"{tool} on {task}:\n{done.stdout[-6000:]}"
    assert done.returncode == 0, f"{task} failed under {tool}:\n{done.stdout[-6000:]}"
    assert "SUMMARY: 0 " in done.stdout, f"{tool} has watched nothing:\n{done.stdout[-6000:]}"
