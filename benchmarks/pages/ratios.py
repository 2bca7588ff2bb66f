"""The chart of ratios to the fastest peer, in a light and a dark version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import style
from benchmarks.pages.side_by_side import ratios

_THEMES = {
    "light": {"ink": "#1f2328", "ahead": "#1a7f37", "behind": "#bc4c00"},
    "dark": {"ink": "#f0f6fc", "ahead": "#3fb950", "behind": "#db6d28"},
}
_ROW, _MARGINS = 0.62, 1.5
"""Inches of a row, and of what is above and below the rows."""


def draw(document: Mapping[str, Any], stem: Path) -> tuple[Path, Path]:
    """Draw ``<stem>_light.svg`` and ``<stem>_dark.svg``: a bar for the graph, and a mark for the sustained state."""
    light, dark = (_draw(document, stem.with_name(f"{stem.name}_{theme}.svg"), theme) for theme in _THEMES)
    return light, dark


def _draw(document: Mapping[str, Any], path: Path, theme: str) -> Path:
    colours, cells = _THEMES[theme], document["cells"]
    graph, sustained = ratios(document, "graph"), ratios(document, "sustained")
    low, high = min(*graph, *sustained, 0.95), max(*graph, *sustained, 1.05)
    span = high - low
    with style.figure(_ROW * len(cells) + _MARGINS, str(path), colours["ink"]) as drawn:
        axes = drawn.add_subplot()
        bars = [colours["ahead" if ratio >= 1 else "behind"] for ratio in graph]
        axes.barh(range(len(cells)), [ratio - 1 for ratio in graph], left=1, height=0.36, color=bars)
        axes.plot(sustained, range(len(cells)), "D", color=colours["ink"], markersize=6)
        for place, (cell, ratio, load) in enumerate(zip(cells, graph, sustained, strict=True)):
            axes.plot([1, 1], [place - 0.25, place + 0.25], color=colours["ink"], linewidth=1.2)
            axes.text(0, place - 0.28, cell["title"], transform=axes.get_yaxis_transform(), va="bottom")
            axes.text(max(1, ratio, load) + 0.03 * span, place, f"{ratio:.2f}x", va="center")
        axes.set_xlim(low - 0.1 * span, high + 0.3 * span)
        axes.set_ylim(len(cells) - 0.4, -0.9)
        axes.set_yticks([])
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("Time of the fastest other library over ours.\nBar: CUDA graph. Diamond: sustained load.")
    return path
