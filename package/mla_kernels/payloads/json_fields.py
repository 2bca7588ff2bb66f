"""Reads the JSON files of a payload, whatever they hold."""

from __future__ import annotations

from typing import Any, TypeVar

Kind = TypeVar("Kind")

BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file raises that is missing, is no JSON, or has another form."""


def typed(value: Any, kind: type[Kind]) -> Kind:
    """A value that must be of one type.

    Raises
    ------
    TypeError
        It is of another.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
