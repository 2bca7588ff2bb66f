"""Keeps the tests of engines from what their caller has set, and ends them where they hang."""

from __future__ import annotations

import faulthandler
import os

import pytest

from tests.engines.runs import APART

LIMIT = 900
"""Seconds of all tests, which take a tenth of this; see ``runs.SECONDS`` for one engine."""


def pytest_configure(config: pytest.Config) -> None:
    """Set the variables that vLLM reads when it is imported; print where every thread is, and exit, when it is late."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        del os.environ[name]
    os.environ.update(APART)
    # pytest replaces the descriptor of standard error while a test runs.
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=os.dup(2))
