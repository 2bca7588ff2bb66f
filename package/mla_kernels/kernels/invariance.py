"""The switch for results that do not depend on the rest of a batch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass(eq=False)
class _Block:
    """A ``with`` block that some thread is in."""

    enable: bool


_at_start = enabled
_blocks: list[_Block] = []
"""In the order in which they were entered; threads may leave them in another."""
_lock = threading.Lock()


def _settle() -> None:
    """Switch to what the last block says."""
    global enabled  # noqa: PLW0603 (a launch reads it in a few nanoseconds)
    enabled = _blocks[-1].enable if _blocks else _at_start


@contextmanager
def batch_invariant(enable: bool = True) -> Iterator[None]:
    """Make the results of a request independent of the rest of its batch, within a ``with`` block.

    Plans that are made in the block are batch-invariant, as with ``batch_invariant=True``, and sparse ops do not
    split a row unless ``max_splits`` says how often. The switch holds for all threads of the process: of several
    blocks, the one that was entered last decides. The environment variable ``MLA_KERNELS_BATCH_INVARIANT=1`` sets
    it from the start. A plan that was made before keeps its splits.

    Parameters
    ----------
    enable : bool

    Raises
    ------
    DTypeError, ValueRangeError
        ``enable`` is no flag.
    """
    block = _Block(flag("enable", enable))
    with _lock:
        _blocks.append(block)
        _settle()
    try:
        yield
    finally:
        with _lock:
            _blocks.remove(block)
            _settle()
