"""How plots look: one picture that is readable on a light and on a dark page, and on a screen of 400 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK, OURS, PEER = "#808080", "#3d82d6", "#d2691e"
"""Text and lines, our figures, and those of others: on a white and on a dark page each has a contrast of 3 or more."""
WIDTH, SIZE = 6.4, 14
"""Inches of a figure, and points of its text: on 400 pixels the text is 12 pixels high."""


@contextmanager
def figure(height: float, path: str, ink: str = INK) -> Iterator[Any]:
    """Make a figure, and write it into a file when it is drawn, without a background.

    Parameters
    ----------
    height : float
        In inches.
    path : str
        Of an SVG or PNG file; the same figure becomes the same SVG.
    ink : str
        The colour of text and lines, for a picture of one theme.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    inked = "text.color axes.edgecolor axes.labelcolor axes.titlecolor xtick.color ytick.color grid.color"
    looks: dict[Any, Any] = dict.fromkeys(inked.split(), ink)
    looks |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "font.size": SIZE}
    with mpl.rc_context({**looks, "svg.hashsalt": "mla-kernels"}):
        drawn = Figure(figsize=(WIDTH, height), layout="constrained")
        yield drawn
        metadata = {"Date": None} if path.endswith(".svg") else None
        drawn.savefig(path, dpi=150, transparent=True, metadata=metadata)
