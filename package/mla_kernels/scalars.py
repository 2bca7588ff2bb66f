"""Numbers, flags and names that Python itself reads, and how an error quotes what it was given instead."""

from __future__ import annotations

import reprlib

from mla_kernels.errors import DTypeError, ValueRangeError

MOST = (1 << 63) - 1
"""The largest extent, count or number of a config."""

_QUOTE = reprlib.Repr()
_QUOTE.maxstring = _QUOTE.maxother = 100


ZERO = 0
"""CPython's one object for 0: an argument that is this object was left as it is by default, or might as well be."""


def quoted(value: object) -> str:
    """The ``repr`` of a value, shortened; one whose ``repr`` fails is told by its type."""
    try:
        return _QUOTE.repr(value)
    except Exception:  # Python does not write an int of thousands of digits; a subclass may raise anything
        return f"a value of type {type(value).__name__}"


def type_name(value: object) -> str:
    """The type of a value; of one that is not Python's own with its module, because NumPy's bool is one of ``bool``."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def flag(argument: str, value: object) -> bool:
    """A flag that is a bool, or 0 or 1, as the launcher takes one.

    Raises
    ------
    DTypeError, ValueRangeError
    """
    if not isinstance(value, int):
        raise DTypeError(argument, type_name(value), "True or False")
    number = int.__index__(value)  # not what a subclass says that it is
    if number not in (0, 1):
        raise ValueRangeError(argument, quoted(value), "True or False")
    return number == 1


def count(argument: str, value: object, least: int = 0) -> int:
    """An integer from ``least`` to 2^63 - 1.

    Raises
    ------
    DTypeError, ValueRangeError
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise DTypeError(argument, type_name(value), f"a Python int of at least {least}")
    number = int.__index__(value)  # not what a subclass says that it is
    if not least <= number <= MOST:
        raise ValueRangeError(argument, quoted(value), f"{least} to 2^63 - 1")
    return number


def is_preset(value: object, preset: int) -> bool:
    """Whether an argument was left as it is by default; of another type it was not, whatever it equals."""
    return type(value) is type(preset) and value == preset
