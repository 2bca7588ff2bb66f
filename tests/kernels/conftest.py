"""Tests range over the rows of the CPU's registry, and the summary names what did not run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from tests.support.rows import Row, arch, archs
from tests.support.variants import range_over

NOT_RUN = "not run: "

settings.register_profile("kernels", deadline=None, derandomize=True, max_examples=40, database=None)
settings.load_profile("kernels")


def pytest_configure() -> None:
    torch.set_num_threads(1)  # the reference works on small matrices; threads that spin only slow the kernels down


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    range_over(metafunc, lambda row: row.device == "cpu", indirect=True)
    if "device" in metafunc.fixturenames:
        hosts = [arch for arch in archs() if arch.device == "cpu"]
        metafunc.parametrize("device", hosts, ids=[arch.name for arch in hosts], indirect=True)


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> Row:
    """Return a row of the test's op, and skip the test where its hardware is not here."""
    row: Row = request.param
    _need(row.arch)
    return row


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """Return the framework's name of an arch's device, and skip the test where the hardware is not here."""
    _need(request.param.name)
    return str(request.param.device)


def _need(name: str) -> None:
    absence = arch(name).absence()
    if absence is not None:
        pytest.skip(NOT_RUN + absence)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what no test could run, so that nobody takes a green line for it."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if NOT_RUN in reason:
            what = reason.partition(NOT_RUN)[2]
            counts[what] = counts.get(what, 0) + 1
    if counts:
        terminalreporter.section("not run")
        for what, count in sorted(counts.items()):
            terminalreporter.line(f"{what} ({count} tests)")
