"""What is below here runs only where a Hopper payload is under test."""

from __future__ import annotations

import pytest

from tests.gpu.support.availability import require_arch, require_op
from tests.gpu.support.sm90 import ARCH


@pytest.fixture(autouse=True)
def hopper(arch: str) -> None:
    """Skip where another arch is under test; refuse where its payload has no dense decode."""
    require_arch(ARCH)
    require_op(ARCH, "decode")
