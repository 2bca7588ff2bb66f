"""The switch for results that do not depend on the rest of a batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mla_kernels.errors import ValueRangeError
from mla_kernels.scalars import flag, quoted

VARIABLE = "MLA_KERNELS_BATCH_INVARIANT"


def _stated() -> bool:
    """What the environment says.

    Raises
    ------
    ValueRangeError
        It says neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in {"", "0", "1"}:
        raise ValueRangeError(VARIABLE, quoted(value), "0 or 1")
    return value == "1"


enabled = _stated()
"""Whether plans and launches are batch-invariant that do not ask for it themselves; launches read it."""


@contextmanager
def batch_invariant(enable: bool = True) -> Iterator[None]:
    """Make the results of a request independent of the rest of its batch, within a ``with`` block.

    Plans that are made in the block are batch-invariant, as with ``batch_invariant=True``, and sparse ops do not split
    a row unless ``max_splits`` says how often. The switch holds for all threads of the process. The environment
    variable ``MLA_KERNELS_BATCH_INVARIANT=1`` sets it from the start. A plan that was made before keeps its splits.

    Parameters
    ----------
    enable : bool

    Raises
    ------
    DTypeError, ValueRangeError
        ``enable`` is no flag.
    """
    global enabled  # noqa: PLW0603 (a launch reads it in a few nanoseconds)
    before, enabled = enabled, flag("enable", enable)
    try:
        yield
    finally:
        enabled = before
