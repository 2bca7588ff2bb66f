"""A measurement on a CPU as a plot of bars."""

from __future__ import annotations

from collections.abc import Sequence

from mla_kernels.diagnostics.tables import Row, require, text

from benchmarks.pages import style

_TITLES = {"us": "time, us", "of ceiling": "fraction of the ceiling", "x torch": "times faster than torch's fastest"}


def draw(rows: Sequence[Row], path: str) -> None:
    """Draw times and ratios as bars, one a row, below each other in an SVG or PNG file.

    Raises
    ------
    MissingPackageError
        matplotlib is not installed.
    """
    require("matplotlib", "matplotlib")
    labels, names = _labels(rows), [name for name in _TITLES if name in rows[0]]
    with style.figure(len(names) * (0.4 * len(rows) + 0.6), path) as figure:
        for axes, name in zip(figure.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
            bars = axes.barh(range(len(rows)), [float(row[name] or 0) for row in rows], height=0.6, color=style.OURS)
            axes.bar_label(bars, labels=[text(row[name]) for row in rows], padding=4)
            axes.set_yticks(range(len(rows)), labels)
            axes.set_xticks([])  # the bars are labelled
            axes.margins(x=0.2)
            axes.invert_yaxis()
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(left=False)
            axes.set_title(_TITLES[name], loc="left", fontsize=style.SIZE)


def _labels(rows: Sequence[Row]) -> list[str]:
    """What tells each row from the others: of what stands before the time, the columns that differ."""
    cells = list(rows[0])[: list(rows[0]).index("us")]
    differing = [name for name in cells if len({row[name] for row in rows}) > 1] or cells[:1]
    return [
        ", ".join(f"{row[name]} heads" if name == "heads" else str(row[name]) for name in differing) for row in rows
    ]
