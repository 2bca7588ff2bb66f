"""Tests range over the variants of the op that they are marked with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .rows import Row, rows


def range_over(metafunc: pytest.Metafunc, qualifies: Callable[[Row], bool], *, indirect: bool = False) -> None:
    """Give ``variant``, where a test takes it, every row of its op that qualifies; it is an error if there is none.

    A suite of ``tests/kernels`` serves another payload where a module imports its tests and calls this from a
    ``pytest_generate_tests`` of its own.
    """
    if "variant" not in metafunc.fixturenames or _is_given(metafunc):
        return
    marker = metafunc.definition.get_closest_marker("op")
    assert marker is not None, f"{metafunc.definition.nodeid} needs @pytest.mark.op"
    where: Callable[[Row], bool] = marker.kwargs.get("where", lambda row: True)
    chosen = [row for row in rows(marker.args[0]) if qualifies(row) and where(row)]
    assert chosen, f"{metafunc.definition.nodeid}: no row of {marker.args[0]} qualifies"
    metafunc.parametrize("variant", chosen, ids=[row.name for row in chosen], indirect=indirect)


def _is_given(metafunc: pytest.Metafunc) -> bool:
    marks = metafunc.definition.iter_markers("parametrize")
    return any("variant" in str(mark.args[0]) for mark in marks)
