"""Keeps the tests of engines from what their caller has set, ends them where they hang, and starts engines on GPUs."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

AT_ONCE = 8
"""Engines that share a GPU; each takes 1 to 3 GiB of it, and most of its time on one core to start."""

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


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Start every engine of a module's ``RUNS``, some at a time, and return what each told."""
    from tests.engines.runs import start

    folder = tmp_path_factory.mktemp("engines")
    pool = ThreadPoolExecutor(AT_ONCE)
    runs = request.module.RUNS
    begun = {name: pool.submit(start, run, folder / name.replace(", ", "-")) for name, run in runs.items()}
    try:
        yield lambda name: begun[name].result()
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def distance(record_property: Callable[[str, object], None]) -> Callable[[Any, Any], float]:
    """The mean difference of log-probabilities of two runs, which the report keeps."""
    from tests.engines.compare import alike, apart, served

    def between(a: Any, b: Any) -> float:
        differences = apart(served(a), served(b))
        mean = sum(differences) / len(differences)
        record_property("apart", {"mean": mean, "most": max(differences), "tokens alike": alike(a, b)})
        return mean

    return between
