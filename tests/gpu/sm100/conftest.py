"""The emulating payload of sm100, without which nothing below here runs, and what its kernel does in a launch.

The payload under test is built for this GPU with a plain kernel in place of CUTLASS's (``nox -s emulation``). That
kernel reads the parameters that CUTLASS's would get, so a test sees what the host and the kernels around it make of
a problem.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import mla_kernels as mla
import pytest

from tests.gpu.support.availability import refuse
from tests.gpu.support.sm100 import ARCH

COMPUTE = 0
"""The mode in which the plain kernel computes attention."""


@pytest.fixture(autouse=True, scope="module")
def library() -> ctypes.CDLL:
    """The emulating payload."""
    if not mla.variants(arch=ARCH):
        refuse(f"{ARCH}: no payload built for this GPU is installed (nox -s emulation)")
    from mla_kernels.payloads.discovery import payloads

    found = ctypes.CDLL(str(payloads().found["sm100"].folder / "libmla_sm100.so"))
    if not hasattr(found, "mla_emulation_mode"):
        refuse(f"{ARCH}: the payload is built for Blackwell")
    return found


@pytest.fixture(autouse=True)
def mode(library: ctypes.CDLL) -> Iterator[ctypes.c_int]:
    """What a launch does; each test begins and ends with launches that compute."""
    mode = ctypes.c_int.in_dll(library, "mla_emulation_mode")
    mode.value = COMPUTE
    yield mode
    mode.value = COMPUTE
