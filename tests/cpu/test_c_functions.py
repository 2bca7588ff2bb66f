"""The C functions of the CPU payload, called without the launcher, and the variables that it reads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.manifest import library_name

DECODE = "import mla_kernels as mla; mla.lookup(op='decode', arch='cpu', q_dtype='bf16').can_run(batch=0)"


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(payloads().found["cpu"].folder / library_name("cpu")))
    found.mla_last_error.restype = ctypes.c_char_p
    return found


@pytest.mark.parametrize("variant", [-1, -(2**63), 10**6, 2**63 - 1])
@pytest.mark.parametrize("function", ["mla_can_run", "mla_plan_size", "mla_workspace_size"])
def test_a_variant_that_there_is_not(library: ctypes.CDLL, function: str, variant: int) -> None:
    size = ctypes.c_int64(7)
    problem = (ctypes.c_int32 * 256)()
    assert getattr(library, function)(ctypes.c_int64(variant), problem, ctypes.byref(size)) != 0
    assert library.mla_last_error().decode().startswith(f"variant\n{variant}\n0 to ")
    assert size.value == 7


def test_a_problem_of_another_op(library: ctypes.CDLL) -> None:
    problem = (ctypes.c_int32 * 256)(99)
    assert library.mla_can_run(ctypes.c_int64(0), problem) != 0
    assert library.mla_last_error().decode().startswith("op\n99\n")


@pytest.mark.parametrize("threads", ["4x", "0", "-1", "many", " ", "1.5"])
def test_a_number_of_threads_that_is_none(threads: str) -> None:
    done = run(MLA_KERNELS_CPU_THREADS=threads)
    assert f"ValueRangeError: MLA_KERNELS_CPU_THREADS: got {threads}; accepts a positive number" in done.stderr


def test_an_instruction_set_that_there_is_not() -> None:
    done = run(MLA_KERNELS_CPU_ISA="sse9")
    assert "UnsupportedError: MLA_KERNELS_CPU_ISA: got sse9; accepts one of " in done.stderr


def test_an_empty_variable_is_none() -> None:
    assert run(MLA_KERNELS_CPU_THREADS="", MLA_KERNELS_CPU_ISA="").returncode == 0


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", DECODE], env=environment, capture_output=True, text=True, check=False)
