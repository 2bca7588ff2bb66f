"""Keeps the table in ``README.md`` between two comments as ``generated/SUPPORT.md`` has it."""

from __future__ import annotations

from pathlib import Path

from codegen import sync
from codegen.pages import block


def path() -> Path:
    """The README beside ``generated/``."""
    return sync.GENERATED.parent / "README.md"


def is_stale(table: str) -> bool:
    """Whether the README has a table, and another one than this."""
    return path().exists() and _with(table) != path().read_text(encoding="utf-8")


def write(table: str) -> None:
    """Put the table into the README, where that has another one."""
    if is_stale(table):
        path().write_text(_with(table), encoding="utf-8", newline="\n")


def _with(table: str) -> str:
    return block("support").sub(lambda _: table, path().read_text(encoding="utf-8"))
