"""Fixtures of ``tests/runtime`` that the benchmarks need too, and a run and a command without a GPU."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.ops import decode_cuda
from tests.runtime.conftest import play, rediscover, use

from .imagined import imagine, shell

__all__ = ["play", "rediscover", "use"]


@pytest.fixture
def run(monkeypatch):
    """``measure`` of dense decodes."""
    return partial(imagine(monkeypatch), decode_cuda.OP)


@pytest.fixture
def bench(capsys):
    """``python -m benchmarks``."""
    return shell(capsys)
