"""Plain text for terminals, files and pipes: tables, wrapped lines, and progress on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from mla_kernels.errors import MissingPackageError

Item = TypeVar("Item")
Progress = Callable[[Sequence[Item], str], Iterable[Item]]
Row = dict[str, Any]
_GAP = "  "
_ERASE = "\r\x1b[K"


def require(module: str, requirement: str) -> None:
    """Import a package that only some commands need, and that ``pip install requirement`` brings.

    Raises
    ------
    MissingPackageError
        It is not installed.
    """
    try:
        import_module(module)
    except ImportError as error:
        raise MissingPackageError(module, requirement) from error


def width() -> int | None:
    """The columns of the terminal, or ``COLUMNS``; None for a file or a pipe, whose lines are not wrapped."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def table(title: str, rows: Sequence[Row]) -> None:
    """Print rows under the keys of the first; columns that do not fit stand below each row, with their names."""
    print(title)
    if not rows:
        return
    limit, names = width(), list(rows[0])
    shown = len(names)
    while limit and shown > 1 and max(map(len, _columns(rows, names[:shown]))) > limit:
        shown -= 1
    header, *lines = _columns(rows, names[:shown])
    print(header)
    for line, row in zip(lines, rows, strict=True):
        print(line)
        if below := ", ".join(f"{name} {text(row[name])}" for name in names[shown:]):
            print(wrapped(f"    {below}"))


def _columns(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """A header and the rows in aligned columns, numbers to the right."""
    columns = [[name, *(text(row[name]) for row in rows)] for name in names]
    right = [all(isinstance(row[name], (int, float, type(None))) for row in rows) for name in names]
    aligned = [
        [cell.rjust(size) if number else cell.ljust(size) for cell in column]
        for column, number in zip(columns, right, strict=True)
        for size in [max(map(len, column))]
    ]
    return [_GAP.join(line).rstrip() for line in zip(*aligned, strict=True)]


def wrapped(line: str, indent: int = 4) -> str:
    """A line broken at spaces to fit the terminal; what follows its first line is indented."""
    limit = width()
    if limit is None or len(line) <= limit:
        return line
    return textwrap.fill(
        line,
        limit,
        drop_whitespace=True,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def progress(quiet: bool) -> Progress[Any]:
    """How to go through work: counted on standard error where that is a terminal, or silently."""

    def shown(items: Sequence[Item], what: str) -> Iterator[Item]:
        try:
            for number, item in enumerate(items, 1):
                print(f"{_ERASE}{what}: {number} of {len(items)}", end="", file=sys.stderr, flush=True)
                yield item
        finally:
            print(_ERASE, end="", file=sys.stderr, flush=True)

    return (lambda items, _: items) if quiet or not sys.stderr.isatty() else shown


@contextmanager
def status(what: str) -> Iterator[None]:
    """Say what takes a while on standard error, where that is a terminal, until it is done."""
    if not sys.stderr.isatty():
        yield
        return
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(_ERASE, end="", file=sys.stderr, flush=True)


def text(value: object) -> str:
    """A value as tables show it: floats with three significant digits, and nothing as a dash."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)
