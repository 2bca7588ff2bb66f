"""A measurement on a CPU as a plot of bars."""

from __future__ import annotations

from collections.abc import Sequence

from mla_kernels.diagnostics.tables import Row, require, text


def draw(rows: Sequence[Row], path: str) -> None:
    """Draw times and ratios as bars, one a row, into a PNG file.

    Raises
    ------
    MissingPackageError
        matplotlib is not installed.
    """
    require("matplotlib", "matplotlib")
    from matplotlib.figure import Figure

    first = list(rows[0]).index("us")  # what stands before the time says what was measured
    labels = ["  ".join(map(str, list(row.values())[:first])) for row in rows]
    names = [name for name in ("us", "of ceiling", "x torch") if name in rows[0]]
    figure = Figure(figsize=(4 * len(names) + 3, 0.5 * len(rows) + 1.5), layout="constrained")
    for at, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), at + 1)
        bars = axes.barh(labels, [float(row[name] or 0) for row in rows])
        axes.bar_label(bars, fmt=text, padding=3)
        axes.set_xscale("log" if name == "us" else "linear")
        axes.margins(x=0.3)
        axes.invert_yaxis()
        axes.set_title(name)
        if at:
            axes.set_yticks([])
    figure.savefig(path, dpi=150)
