"""The chart of ratios to the fastest peer, in a light and a dark version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages.side_by_side import compared

_THEMES = {
    "light": {"text": "#1f2328", "grid": "#d1d9e0", "ahead": "#1a7f37", "behind": "#bc4c00"},
    "dark": {"text": "#f0f6fc", "grid": "#3d444d", "ahead": "#3fb950", "behind": "#db6d28"},
}
_WIDTH, _ROW, _SIZE = 7.2, 0.62, 15
"""Inches of the figure and of a row, and points of the text: on a screen of 400 pixels the text has 11."""


def draw(document: Mapping[str, Any], stem: Path) -> tuple[Path, Path]:
    """Draw ``<stem>_light.svg`` and ``<stem>_dark.svg``: a bar for the graph, and a mark for the sustained state."""
    light, dark = (_draw(document, stem.with_name(f"{stem.name}_{theme}.svg"), theme) for theme in _THEMES)
    return light, dark


def _draw(document: Mapping[str, Any], path: Path, theme: str) -> Path:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colours, cells = _THEMES[theme], document["cells"]
    graph = [compared(cell, "graph").ratio for cell in cells]
    sustained = [compared(cell, "sustained").ratio for cell in cells]
    with mpl.rc_context({"font.size": _SIZE, "svg.hashsalt": "ratios", "text.color": colours["text"]}):
        figure = Figure(figsize=(_WIDTH, _ROW * len(cells) + 1.4), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(cells))
        bars = [colours["ahead" if ratio >= 1 else "behind"] for ratio in graph]
        axes.barh(places, [ratio - 1 for ratio in graph], left=1, height=0.36, color=bars)
        axes.plot(sustained, places, "D", color=colours["text"], markersize=7, label="sustained load")
        axes.axvline(1, color=colours["text"], linewidth=1.2)
        low, high = min(*graph, *sustained, 0.95), max(*graph, *sustained, 1.05)
        axes.set_xlim(low - 0.12 * (high - low), high + 0.3 * (high - low))
        for place, cell, ratio, load in zip(places, cells, graph, sustained, strict=True):
            axes.text(0, place - 0.3, cell["title"], transform=axes.get_yaxis_transform(), va="bottom", size=_SIZE - 2)
            axes.text(max(1, ratio, load) + 0.02 * (high - low), place, f"{ratio:.2f}x", va="center")
        axes.set_ylim(len(cells) - 0.4, -0.9)
        axes.set_yticks([])
        axes.tick_params(colors=colours["text"])
        axes.grid(axis="x", color=colours["grid"], linewidth=0.6)
        axes.set_axisbelow(True)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_title("Fastest peer's time over ours (right of 1: ours is faster)", size=_SIZE, loc="left")
        axes.legend(loc="lower right", frameon=False, labelcolor=colours["text"])
        figure.savefig(path, transparent=True, metadata={"Date": None})
    return path
