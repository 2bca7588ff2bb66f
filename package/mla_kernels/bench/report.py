"""Tables, the progress bar and the plot of the command line; rich and matplotlib are imported when first needed."""

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

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}: pip install 'mla-kernels[{extra}]'")


def require(module: str, extra: str) -> None:
    """Import a package that only some commands need.

    Raises
    ------
    MissingPackageError
        It is not installed.
    """
    try:
        import_module(module)
    except ImportError as error:
        raise MissingPackageError(module, extra) from error


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
        raise MissingPackageError("rich", "cli") from error
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    drawn = Table(title=title, title_justify="left")
    for name, value in rows[0].items() if rows else ():
        drawn.add_column(name, justify="right" if isinstance(value, (int, float)) else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(_text, row.values()))
    console.print(drawn)


def progress(quiet: bool) -> Progress[Any]:
    """How to go through work: under a bar on standard error, or silently."""

    def shown(items: Sequence[Item], what: str) -> Iterator[Item]:
        try:
            from rich.console import Console
            from rich.progress import track
        except ImportError as error:
            raise MissingPackageError("rich", "cli") from error
        yield from track(items, what, console=Console(stderr=True), transient=True)

    return (lambda items, _: items) if quiet or not sys.stderr.isatty() else shown


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "-" if value is None else str(value)


def plot(rows: Sequence[Row], path: str) -> None:
    """Draw times and ratios as bars, one a row, into a PNG file.

    Raises
    ------
    MissingPackageError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("matplotlib", "bench") from error
    first = list(rows[0]).index("us")  # what stands before the time says what was measured
    labels = ["  ".join(map(str, list(row.values())[:first])) for row in rows]
    names = [name for name in ("us", "of ceiling", "x torch") if name in rows[0]]
    figure = Figure(figsize=(4 * len(names) + 3, 0.5 * len(rows) + 1.5), layout="constrained")
    for at, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), at + 1)
        bars = axes.barh(labels, [float(row[name] or 0) for row in rows])
        axes.bar_label(bars, fmt=_text, padding=3)
        axes.set_xscale("log" if name == "us" else "linear")
        axes.margins(x=0.3)
        axes.invert_yaxis()
        axes.set_title(name)
        if at:
            axes.set_yticks([])
    figure.savefig(path, dpi=150)
