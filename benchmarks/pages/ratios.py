"""The chart of a few cells: bars of the ratios to the fastest other, in a light and a dark version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import style
from benchmarks.pages.comparison import compared, ratios

THEMES = {
    "light": {"ink": "#1f2328", "ahead": "#1a7f37", "behind": "#bc4c00"},
    "dark": {"ink": "#f0f6fc", "ahead": "#3fb950", "behind": "#db6d28"},
}
_ROW, _MARGINS = 0.62, 1.6
"""Inches of a row, and of what is above and below the rows."""
_BARS, _COLUMNS = 0.66, (0.8, 1.0)
"""Of the width: where the bars end, and where the two columns of figures do."""


def draw(document: Mapping[str, Any], stem: Path) -> tuple[Path, Path]:
    """Draw ``<stem>_light.svg`` and ``<stem>_dark.svg``: a bar for the graph, a mark for sustained load."""
    light, dark = (_draw(document, stem.with_name(f"{stem.name}_{theme}.svg"), theme) for theme in THEMES)
    return light, dark


def _draw(document: Mapping[str, Any], path: Path, theme: str) -> Path:
    colours = THEMES[theme]
    cells = [cell for cell in document["cells"] if compared(cell, "graph") and compared(cell, "sustained")]
    graph, sustained = ratios(cells, "graph"), ratios(cells, "sustained")
    low, high = min(*graph, *sustained, 0.95), max(*graph, *sustained, 1.05)
    span = high - low
    columns = dict(zip(_COLUMNS, ("\N{BLACK RECTANGLE} graph", "\N{BLACK DIAMOND} sustained"), strict=True))
    with style.figure(_ROW * len(cells) + _MARGINS, str(path), colours["ink"]) as drawn:
        axes = drawn.add_subplot()
        across = axes.get_yaxis_transform()
        bars = [colours["ahead" if ratio >= 1 else "behind"] for ratio in graph]
        axes.barh(range(len(cells)), [ratio - 1 for ratio in graph], left=1, height=0.36, color=bars)
        axes.plot(sustained, range(len(cells)), "D", color=colours["ink"], markersize=6)
        for place, (cell, ratio, load) in enumerate(zip(cells, graph, sustained, strict=True)):
            axes.plot([1, 1], [place - 0.22, place + 0.22], color=colours["ink"], linewidth=1.2)
            axes.text(0, place - 0.28, cell["title"], transform=across, va="bottom", in_layout=False)
            for column, shown in zip(columns, (ratio, load), strict=True):
                axes.text(column, place, f"{shown:.2f}x", transform=across, ha="right", va="center")
        for column, title in columns.items():
            axes.text(column, -1, title, transform=across, ha="right", va="center")
        left = low - 0.06 * span
        axes.set_xlim(left, left + (high + 0.04 * span - left) / _BARS)
        axes.set_ylim(len(cells) - 0.4, -1.3)
        axes.set_yticks([])
        axes.set_xticks([tick for tick in axes.get_xticks() if left <= tick <= high])
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("Time of the fastest other library over ours:\nabove 1, ours is faster.", loc="left")
    return path
