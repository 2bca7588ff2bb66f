"""The roofline of a measurement: arithmetic intensity against rate, under both ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from mla_kernels.diagnostics.tables import require

from benchmarks.pages import style

_HEIGHT = 5.2
_GAP = 0.13
"""Between the labels of columns, as a part of the plot's width."""
_SAME = 0.04
"""The width of a column of points, likewise."""


def draw(document: Mapping[str, Any], path: str) -> None:
    """Draw a measurement into an SVG or PNG file.

    Raises
    ------
    MissingPackageError
        matplotlib is not installed.
    """
    require("matplotlib", "matplotlib")
    read, gemm = document["ceilings"]["read TB/s"], document["ceilings"]["GEMM TFLOP/s"]
    rows = [row for row in document["rows"] if row["us"] is not None]
    ridge = gemm / read
    intensities = [row["FLOP/byte"] for row in rows] + [ridge]
    left, right = min(intensities) / 2, max(intensities) * 2
    with style.figure(_HEIGHT, path) as figure:
        axes = figure.add_subplot(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="TFLOP/s")
        what = f"{document['op'].replace('_', ' ')} on {document['machine']['gpu']}"
        ceilings = f"ceilings: read {read:.2f} TB/s, bf16 GEMM {gemm:.0f} TFLOP/s"
        figure.suptitle(f"{what}\n{ceilings}", fontsize=style.SIZE)
        axes.plot([left, ridge, right], [left * read, gemm, gemm], color=style.INK)
        _points(axes, [(row["FLOP/byte"], row["TFLOP/s"]) for row in rows], "mla-kernels", "o", style.OURS)
        lowest = min([left * read, *(row["TFLOP/s"] for row in rows)])
        axes.set_xlim(left, right)
        axes.set_ylim(lowest / 5, gemm * 2)
        _ticks(axes)
        _label(axes, rows, left, right)
        axes.grid(which="major", alpha=0.3)
        if rows:
            figure.legend(loc="outside lower center", ncols=2)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places in falling order, moved down until each is ``gap`` below the one before it."""
    moved: list[float] = []
    for place in places:
        moved.append(min(place, moved[-1] - gap) if moved else place)
    return moved


def _points(axes: Any, points: Sequence[tuple[float, float]], label: str, marker: str, colour: str) -> None:
    if points:
        axes.scatter(*zip(*points, strict=True), s=60, label=label, marker=marker, color=colour, zorder=3)


def _ticks(axes: Any) -> None:
    from matplotlib.ticker import LogLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")


def _label(axes: Any, rows: Sequence[Mapping[str, Any]], left: float, right: float) -> None:
    """Name the columns of points below them: cells of one kind of query have nearly one intensity."""
    placed = [(log(row["FLOP/byte"] / left) / log(right / left), row) for row in rows]
    columns: list[tuple[float, list[Mapping[str, Any]]]] = []
    for place, row in sorted(placed, key=lambda pair: pair[0], reverse=True):
        if not columns or columns[-1][0] - place > _SAME:
            columns.append((place, []))
        columns[-1][1].append(row)
    for place, (_, column) in zip(spread([place for place, _ in columns], _GAP), columns, strict=True):
        heads = sorted({row["heads"] for row in column})
        tokens = sorted({row.get("q_len", 1) for row in column})
        name = f"{_joined(heads)}\nheads" + (f"\nq {_joined(tokens)}" if tokens != [1] else "")
        axes.text(place, 0.02, name, transform=axes.transAxes, ha="center", va="bottom", fontsize=style.SIZE - 2)


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
