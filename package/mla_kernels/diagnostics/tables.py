"""Tables and the progress bar of the command line; rich is imported when first needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

from mla_kernels.errors import MlaError

Item = TypeVar("Item")
Progress = Callable[[Sequence[Item], str], Iterable[Item]]
Row = dict[str, Any]
WIDE = 200
"""Columns of a table that no terminal shows."""


class MissingPackageError(MlaError, ImportError):
    """A package that only this command needs is not installed."""

    def __init__(self, package: str, requirement: str) -> None:
        super().__init__(f"this needs {package}: pip install '{requirement}'")


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


def table(title: str, rows: Sequence[Row]) -> None:
    """Print rows under the keys of the first; floats with three significant digits, absent values as a dash.

    Raises
    ------
    MissingPackageError
        rich is not installed.
    """
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError as error:
        raise MissingPackageError("rich", "mla-kernels[cli]") from error
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    drawn = Table(title=title, title_justify="left")
    for name, value in rows[0].items() if rows else ():
        drawn.add_column(name, justify="right" if isinstance(value, (int, float)) else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(text, row.values()))
    console.print(drawn)


def progress(quiet: bool) -> Progress[Any]:
    """How to go through work: under a bar on standard error, or silently."""

    def shown(items: Sequence[Item], what: str) -> Iterator[Item]:
        try:
            from rich.console import Console
            from rich.progress import track
        except ImportError as error:
            raise MissingPackageError("rich", "mla-kernels[cli]") from error
        yield from track(items, what, console=Console(stderr=True), transient=True)

    return (lambda items, _: items) if quiet or not sys.stderr.isatty() else shown


def text(value: object) -> str:
    """A value as tables show it: floats with three significant digits, and nothing as a dash."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)
