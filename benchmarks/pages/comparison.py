"""Ours against the fastest of the others, in one cell and in many."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

OURS = "mla-kernels"
OURS_FP8 = "mla-kernels, fp8 arithmetic"
"""Our kernels that multiply in e4m3, as a library of their own."""
UPSTREAM = "FlashMLA 9241ae3"
"""The build of FlashMLA that has to be in a run before anything is called the best of the others."""
PRODUCT = " (product)"
"""What the name of a library ends with whose time is a product of two ratios."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A quantity of our launch, and of the other library that has the least of it, in one cell and one state.

    Attributes
    ----------
    ours, least : float
        Microseconds or millijoules a launch; ours is the mean of the first and the last turn.
    peer : str
        The other library that has the least.
    drift : float
        The difference of our two turns over their mean.
    """

    ours: float
    peer: str
    least: float
    drift: float

    @property
    def ratio(self) -> float:
        """The peer's quantity over ours: above 1 ours is better."""
        return self.least / self.ours

    def __str__(self) -> str:
        """Return the ratio, in bold where ours is better by more than the drift."""
        text = f"{self.ratio:.2f}x"
        return f"**{text}**" if self.ratio - 1 > self.drift and text != "1.00x" else text


def compared(cell: Mapping[str, Any], state: str, quantity: str = "us") -> Comparison | None:
    """Ours against the best of the others in one state of a cell; None where the quantity was not read."""
    ours = of(cell, OURS, state, quantity)
    others = {name: each[0] for name in others_of([cell]) if (each := of(cell, name, state, quantity))}
    if not ours or not others:
        return None
    peer = min(others, key=others.__getitem__)
    mean = statistics.mean(ours)
    return Comparison(mean, peer, others[peer], (max(ours) - min(ours)) / mean)


def of(cell: Mapping[str, Any], library: str, state: str, quantity: str = "us") -> list[float]:
    """A library's figures in one state of a cell: two of ours, one or none of another."""
    turns = [turn[state] for turn in cell["turns"] if turn["library"] == library and state in turn]
    return [float(turn[quantity]) for turn in turns if turn.get(quantity)]


def others_of(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """The other libraries of some cells."""
    names = dict.fromkeys(turn["library"] for cell in cells for turn in cell["turns"])
    return [name for name in names if name != OURS]


def ratios(cells: Iterable[Mapping[str, Any]], state: str) -> list[float]:
    """The ratio of each cell that has one in a state."""
    return [each.ratio for cell in cells if (each := compared(cell, state))]


def has_upstream(document: Mapping[str, Any]) -> bool:
    """Whether every run of a document has times of upstream's FlashMLA."""
    timed = {cell.get("run", 0) for cell in document["cells"] if of(cell, UPSTREAM, "graph")}
    return bool(document["cells"]) and all(cell.get("run", 0) in timed for cell in document["cells"])


def with_products(document: Mapping[str, Any], products: Mapping[str, Any]) -> dict[str, Any]:
    """A measurement with the products of libraries that were not at hand, as turns that say so.

    Such a time is the library's ratio to ``UPSTREAM`` in another run, times what upstream took in this one. A cell in
    which upstream or the library itself was measured differently gets none.
    """
    known = {tuple(cell[name] for name in products["columns"]): cell["ratios"] for cell in products["cells"]}
    cells = []
    for cell in document["cells"]:
        problem = cell["problem"]
        same = all(problem.get(name) == value for name, value in products["common"].items())
        ratios_of = known.get(tuple(problem.get(name) for name in products["columns"])) if same else None
        upstream = of(cell, UPSTREAM, "graph")
        turns = [
            {"library": f"{library}{PRODUCT}", "graph": {"us": ratio * upstream[0]}}
            for library, ratio in (zip(products["libraries"], ratios_of, strict=True) if ratios_of and upstream else ())
            if not of(cell, library, "graph")
        ]
        cells.append({**cell, "turns": [*cell["turns"], *turns]})
    return {**document, "cells": cells, "products": {name: products[name] for name in ("machine", "date", "method")}}
