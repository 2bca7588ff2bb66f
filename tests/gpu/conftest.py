"""The arch under test and the frameworks beside torch, as fixtures of every GPU test."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from tests.gpu.support.availability import arch_name, refuse, require_payload

torch.set_num_threads(1)
"""Many processes test at once. With a thread for each core in each process, they would compete for the cores."""


@pytest.fixture(autouse=True)
def arch() -> Iterator[str]:
    """The arch under test; no error of the device outlives a test unseen."""
    require_payload()
    yield str(arch_name())
    torch.cuda.synchronize()


@pytest.fixture
def cupy() -> Any:
    """CuPy, where it is installed."""
    if find_spec("cupy") is None:
        refuse("no CuPy")
    import cupy

    return cupy
