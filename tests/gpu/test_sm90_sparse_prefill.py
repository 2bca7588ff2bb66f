"""The suite of sparse prefill, over the variants of the sm90 payload."""

from __future__ import annotations

import pytest

from tests.gpu.sm90 import ARCH, hopper
from tests.kernels.test_exact import test_sparse_prefill_selects_one_key
from tests.kernels.test_sparse_prefill import *  # noqa: F403
from tests.support.variants import range_over

__all__ = ["hopper", "test_sparse_prefill_selects_one_key"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    range_over(metafunc, lambda row: row.arch == ARCH)
