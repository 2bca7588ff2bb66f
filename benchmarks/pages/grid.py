"""The chart of many cells: their ratios to the fastest other in a grid, in a light and a dark version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import style
from benchmarks.pages.comparison import compared
from benchmarks.pages.ratios import THEMES

_ROW, _MARGINS = 0.32, 1.4
"""Inches of a row, and of what is above and below the rows."""
_MOST_COLUMNS = 6
_STRONGEST = 0.25
"""The distance from 1 at which a colour is at its strongest."""
_ABOUT = (
    "Time of the fastest other library over ours, in a graph:\n"
    "above 1, ours is faster. h: heads, q: query tokens, b: batch."
)
_FIELDS = ("d_qk", "kv", "heads", "q_len", "lengths", "batch", "seq", "topk", "page_size", "kv_mean")
_WHERE_ABSENT = {"kv_mean": 0}
"""Values of fields that a problem has only where it has another one."""
_WORDS = {
    "heads": "h {}",
    "q_len": "q {}",
    "batch": "b {}",
    "seq": "{:,}",
    "d_qk": "{} columns",
    "topk": "top {:,}",
    "page_size": "page {}",
}


def draw(document: Mapping[str, Any], stem: Path) -> tuple[Path, Path]:
    """Draw ``<stem>_light.svg`` and ``<stem>_dark.svg``: a field for each cell, with the ratio in a graph."""
    light, dark = (_draw(document["cells"], stem.with_name(f"{stem.name}_{theme}.svg"), theme) for theme in THEMES)
    return light, dark


def differing(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields that tell some cells apart."""
    problems = [cell["problem"] for cell in cells]
    return [
        name for name in _FIELDS if len({each.get(name, _WHERE_ABSENT.get(name)) for each in problems} - {None}) > 1
    ]


def _draw(cells: Sequence[Mapping[str, Any]], path: Path, theme: str) -> Path:
    colours, names = THEMES[theme], differing(cells)
    across = [name for name in names if name in {"heads", "q_len"}]
    if len({_key(cell, across) for cell in cells}) > _MOST_COLUMNS:
        across = ["batch"]
    down = [name for name in names if name not in across]
    columns, rows = (list(dict.fromkeys(_key(cell, fields) for cell in cells)) for fields in (across, down))
    with style.figure(_ROW * len(rows) + _MARGINS, str(path), colours["ink"]) as drawn:
        axes = drawn.add_subplot()
        for cell in cells:
            if found := compared(cell, "graph"):
                place = (columns.index(_key(cell, across)), rows.index(_key(cell, down)))
                colour = colours["ahead" if found.ratio >= 1 else "behind"]
                strength = min(1.0, abs(found.ratio - 1) / _STRONGEST)
                axes.barh(place[1], 0.96, left=place[0] - 0.48, height=0.94, color=colour, alpha=0.1 + 0.5 * strength)
                axes.text(*place, f"{found.ratio:.2f}", ha="center", va="center", fontsize=style.SIZE - 2)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), ["\n".join(_words(across, key)) for key in columns])
        axes.set_yticks(range(len(rows)), [", ".join(_words(down, key)) for key in rows])
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelsize=style.SIZE - 3)
        axes.spines[["left", "bottom"]].set_visible(False)
        drawn.supxlabel(_ABOUT, x=0.01, ha="left", fontsize=style.SIZE - 1, multialignment="left")
    return path


def _key(cell: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(cell["problem"].get(name) for name in names)


def _words(names: Sequence[str], values: Sequence[Any]) -> list[str]:
    given = ((name, value) for name, value in zip(names, values, strict=True) if value is not None)
    return [_WORDS.get(name, "{}").format(value) for name, value in given]
