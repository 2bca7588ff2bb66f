"""Keeps the tests of engines from what their caller has set, and ends them where they hang."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

LIMIT = 900
"""Seconds of all tests, which take a sixth of this on two idle cores; see ``runs.SECONDS`` for one engine."""


@pytest.fixture(scope="session", autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the variables that vLLM reads when it is imported; print where every thread is, and exit, when it is late."""
    from tests.engines.runs import APART, CPU  # what it imports is there for the tests of engines only

    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        del os.environ[name]
    os.environ.update(APART | CPU.variables)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        visible = os.dup(2)
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=visible)
    yield
    faulthandler.cancel_dump_traceback_later()
    os.close(visible)
