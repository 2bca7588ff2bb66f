"""Tells a want of memory from other failures, whatever raised it."""

from __future__ import annotations

_SAID = ("out of memory", "allocate memory")
"""What CUDA, and torch on the host, say in an error of another class."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says only that there was no room."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _SAID)
