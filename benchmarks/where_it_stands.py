"""Write the tables of our speed on Hopper: ``python -m benchmarks.where_it_stands``.

They stand in the README, on the page of benchmarks and on Hopper's page, between two comments. The data are those of
the pages of an H200 beside FlashMLA 9241ae3 alone, each of one run.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.pages import comparison
from benchmarks.pages.markdown import markdown, with_block
from codegen.pages import block

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "docs/benchmarks",
    "docs/benchmarks.md": "benchmarks",
    "docs/kernels/sm90/index.md": "../../benchmarks",
}
"""The pages that hold the tables, and the folder of the pages of benchmarks as each finds it."""
_NAME = "where it stands"
"""Of the block of a page that holds the tables."""
_MEANS = [
    ("Dense decode", "h200_dense_upstream", (16, 64, 128)),
    ("Sparse fp8 decode", "h200_few_heads", (8,)),
    ("Sparse fp8 decode", "h200_few_heads", (16,)),
    ("Sparse fp8 decode", "h200_few_heads", (32,)),
    ("Sparse fp8 decode", "h200_sparse", (64,)),
    ("Sparse fp8 decode", "h200_sparse", (128,)),
    ("Sparse bf16 prefill", "h200_few_heads_prefill", (8, 16)),
    ("Sparse bf16 prefill", "h200_few_heads_prefill", (32,)),
    ("Sparse bf16 prefill", "h200_prefill", (64,)),
    ("Sparse bf16 prefill", "h200_prefill", (128,)),
]
"""The rows of the first table: an op, a page, and the heads of its cells."""
_LOADS = [("Sparse fp8 decode", "h200_sparse_sustained"), ("Dense decode", "h200_sustained_upstream")]
"""The rows of the second table, of cells under load."""


def cells(name: str, heads: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """The cells of a page's data, of these numbers of heads, or of any."""
    path = ROOT / "docs" / "benchmarks" / "data" / f"{name}.json"
    measured: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in measured if not heads or cell["problem"]["heads"] in heads]


def tables(benchmarks: str) -> str:
    """The tables of a page that finds the pages of benchmarks in the folder ``benchmarks``."""
    means = [_mean_row(_link(op, name, benchmarks), name, heads) for op, name, heads in _MEANS]
    loads = [_load_row(_link(op, name, benchmarks), name) for op, name in _LOADS]
    return f"{markdown(means, right=tuple(means[0])[2:])}\n\n{markdown(loads, right=('shapes',))}\n"


def _link(op: str, name: str, benchmarks: str) -> str:
    return f"[{op}]({benchmarks}/{name}.md)"


def _mean_row(link: str, name: str, heads: tuple[int, ...]) -> dict[str, str]:
    found = {state: comparison.ratios(cells(name, heads), state) for state in ("graph", "between")}
    mean, between = (f"{statistics.geometric_mean(ratios):.2f}x" for ratios in found.values())
    return {
        "": link,
        "heads": ", ".join(map(str, heads)),
        "shapes": str(len(found["graph"])),
        "mean": mean,
        "worst": f"{min(found['graph']):.2f}x",
        "below 1": str(sum(ratio < 1 for ratio in found["graph"])),
        "mean between other kernels": between,
        "below 1 there": str(sum(ratio < 1 for ratio in found["between"])),
    }


def _load_row(link: str, name: str) -> dict[str, str]:
    measured = cells(name)
    joules = [each for cell in measured if (each := comparison.compared(cell, "sustained", "mj"))]
    return {
        "two seconds of load": link,
        "heads": ", ".join(map(str, sorted({cell["problem"]["heads"] for cell in measured}))),
        "shapes": str(len(measured)),
        "ratio in a graph": _range(comparison.ratios(measured, "graph"), "x"),
        "ratio under load": _range(comparison.ratios(measured, "sustained"), "x"),
        "our joules over FlashMLA's": _range([1 / each.ratio for each in joules]),
    }


def _range(figures: list[float], unit: str = "") -> str:
    return f"{min(figures):.2f}{unit} to {max(figures):.2f}{unit}"


def current(page: str) -> str:
    """The tables that a page has now."""
    (found,) = block(_NAME).findall((ROOT / page).read_text(encoding="utf-8"))
    return str(found)


def main() -> None:
    """Write the tables of all pages."""
    for page, benchmarks in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(with_block(text, _NAME, tables(benchmarks)), encoding="utf-8")


if __name__ == "__main__":
    main()
