"""compute-sanitizer finds nothing in small launches of every op of the payload under test.

Of the sm100 payload, it watches the kernels around CUTLASS's, which the emulating payload runs on Hopper.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.support import sm90, sm100
from tests.gpu.support.availability import refuse, require_arch, require_op

ROOT = Path(__file__).parents[2]
TOOLS = ("memcheck", "racecheck", "initcheck")
"""synccheck is left out, because it wants every phase of a barrier to be waited for, and ``logits_done`` is a hint."""
WATCHED = [
    (each.name, tool)
    for each in (*sm90.DENSE, *sm90.SPARSE_DECODE)
    if each.q_dtype == "bf16"
    for tool in TOOLS
    if tool != "racecheck" or (each.load == "tma" and each.schedule == "rows_m64" and each.kv_dtype == each.q_dtype)
]
"""racecheck follows neither copies that arrive at a barrier when they are done, with which ``gather`` loads, nor an
order that one barrier hands on to another: it reports all of them. So threads that dequantize e4m3 into the memory of Q
are not watched, and with racecheck requests have whole tiles: a warp has its result in the memory of a tile, another
thread loads the next one there, and others clear its tail. Of ``swap_ab`` it reports, in most runs, some pairs on
either side of a named barrier of both (docs/kernels/sm90/log.md). Stalling warps (sm90/test_stalling_warps.py) watch
those."""
WATCHED_OF_SM100 = [
    (each.name, tool)
    for each in (*sm100.DENSE, *sm100.SPARSE_DECODE)
    if each.out_dtype == "bf16"
    for tool in ("memcheck", "racecheck")
]
"""initcheck is left out, because the kernel reads 128 packed rows, and those beyond a request's heads, of which nothing
is stored, are never written."""
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
def test_decode(variant: str, tool: str, sanitizer: str) -> None:
    require_arch(sm90.ARCH)
    require_op(sm90.ARCH, "decode")
    check(sanitizer, tool, variant, *(["--whole-tiles"] if tool == "racecheck" else []))


@pytest.mark.parametrize(("variant", "tool"), WATCHED_OF_SM100)
def test_row_kernels_of_sm100(variant: str, tool: str, sanitizer: str) -> None:
    require_arch(sm100.ARCH)
    require_op(sm100.ARCH, "decode")
    check(sanitizer, tool, variant)


@pytest.mark.parametrize("tool", TOOLS)
def test_caches(tool: str, sanitizer: str) -> None:
    check(sanitizer, tool, "caches")


def check(sanitizer: str, tool: str, task: str, *options: str) -> None:
    """Run a task under a tool, without torch's cache of memory, so that what lies beyond a tensor belongs to nobody."""
    done = subprocess.run(
        [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20",
         sys.executable, "-m", "tests.gpu.support.small_launches", task, *options],
        cwd=ROOT, env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode != FOUND, f"{tool} on {task}:\n{done.stdout[-6000:]}"
    assert done.returncode == 0, f"{task} failed under {tool}:\n{done.stdout[-6000:]}"
    assert "SUMMARY: 0 " in done.stdout, f"{tool} has watched nothing:\n{done.stdout[-6000:]}"
