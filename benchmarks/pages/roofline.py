"""The roofline of a measurement: arithmetic intensity against rate, under both ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mla_kernels.diagnostics.tables import require

from benchmarks.peers.figures import SAME_RUN, TABLE, best

_GAP = 0.025
"""Between labels, as a part of the plot's height."""


def draw(document: Mapping[str, Any], path: str) -> None:
    """Draw a measurement into a PNG file: ours, and the best peer of each cell.

    Raises
    ------
    MissingPackageError
        matplotlib is not installed.
    """
    require("matplotlib", "matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    read, gemm = document["ceilings"]["read TB/s"], document["ceilings"]["GEMM TFLOP/s"]
    rows = [row for row in document["rows"] if row["us"] is not None]
    ridge = gemm / read
    intensities = [row["FLOP/byte"] for row in rows] + [ridge]
    left, right = min(intensities) / 2, max(intensities) * 4
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.add_subplot(
        xscale="log",
        yscale="log",
        xlabel="FLOP/byte",
        ylabel="TFLOP/s",
        title=f"{document['op'].replace('_', ' ')} on {document['machine']['gpu']}",
    )
    axes.plot([left, ridge, right], [left * read, gemm, gemm], color="black", lw=1)
    axes.annotate(f"read {read:.2f} TB/s", (left, left * read), xytext=(16, -2), textcoords="offset points")
    axes.annotate(
        f"bf16 GEMM {gemm:.0f} TFLOP/s", (right, gemm), xytext=(-4, 4), textcoords="offset points", ha="right"
    )
    _points(axes, [(row["FLOP/byte"], row["TFLOP/s"]) for row in rows], "mla-kernels", "o")
    fastest = [(row, peer) for row in rows if (peer := best(row))]
    for source, marker in ((SAME_RUN, "x"), (TABLE, "+")):
        points = [
            (row["FLOP/byte"], row["FLOP"] / peer["us"] / 1e6) for row, peer in fastest if peer["source"] == source
        ]
        _points(axes, points, f"the best peer, {source}", marker)
    axes.set_xlim(left, right)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    _label(axes, rows)
    axes.grid(which="both", alpha=0.2)
    if rows:
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places in falling order, moved down until each is ``gap`` below the one before it."""
    moved: list[float] = []
    for place in places:
        moved.append(min(place, moved[-1] - gap) if moved else place)
    return moved


def _points(axes: Any, points: Sequence[tuple[float, float]], label: str, marker: str) -> None:
    if points:
        axes.scatter(*zip(*points, strict=True), label=label, marker=marker, zorder=3)


def _label(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Name each point to its right; cells of one kind of query stand in one column."""
    height = axes.transAxes.inverted()
    columns: dict[tuple[object, ...], list[tuple[float, Mapping[str, Any]]]] = {}
    for row in rows:
        _, place = height.transform(axes.transData.transform((row["FLOP/byte"], row["TFLOP/s"])))
        columns.setdefault((row["heads"] * row["q_len"], row["q"], row["kv"]), []).append((place, row))
    for column in columns.values():
        column.sort(key=lambda pair: pair[0], reverse=True)
        widest = max(row["FLOP/byte"] for _, row in column)
        for place, (_, row) in zip(spread([place for place, _ in column], _GAP), column, strict=True):
            axes.annotate(
                _name(row), (row["FLOP/byte"], row["TFLOP/s"]), xytext=(widest * 1.12, place),
                textcoords=axes.get_xaxis_transform(), fontsize=7, va="center",
                arrowprops={"arrowstyle": "-", "lw": 0.4, "alpha": 0.6},
            )  # fmt: skip


def _name(row: Mapping[str, Any]) -> str:
    extra = f" {row['lengths']}" if row.get("lengths", "equal") != "equal" else ""
    letters = {"heads": "h", "q_len": "q", "batch": "b", "seq": "k"}
    return " ".join(f"{letter}{row[name]}" for name, letter in letters.items() if name in row) + extra
