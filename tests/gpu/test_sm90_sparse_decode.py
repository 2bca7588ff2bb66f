"""The suite of sparse decode, over the variants of the sm90 payload."""

from __future__ import annotations

import pytest

from tests.gpu.sm90 import ARCH, hopper
from tests.kernels.test_exact import test_sparse_decode_selects_one_key
from tests.kernels.test_sparse_decode import *  # noqa: F403
from tests.support.variants import range_over

__all__ = ["hopper", "test_sparse_decode_selects_one_key"]
del test_codes_as_uint8  # noqa: F821, of caches of plain e4m3, for which there is no variant


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    range_over(metafunc, lambda row: row.arch == ARCH)
