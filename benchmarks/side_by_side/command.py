"""The command line of ``python -m benchmarks.side_by_side``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_kernels.diagnostics.cli import status_of
from mla_kernels.errors import DeviceError, ValueRangeError

from benchmarks.pages import comparison, fp8, grid, ratios, side_by_side
from benchmarks.pages.markdown import with_block
from benchmarks.side_by_side.cells import SUITES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 1 where a library of a cell has no time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__)
    parser.add_argument("data", type=Path, metavar="JSON", help="written cell by cell; cells that it holds are kept")
    parser.add_argument("--cells", choices=sorted(SUITES), default="front", help="the suite; by default %(default)s")
    parser.add_argument(
        "--peer",
        action="append",
        metavar="PROJECT=MODULE",
        help="a library to measure beside ours; may be repeated; by default every peer that is installed",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of the sustained state; by default %(default)s")
    parser.add_argument("--processes", action="store_true", help="a process for each library, not one for all of them")
    parser.add_argument(
        "--products",
        type=Path,
        metavar="JSON",
        help="ratios of libraries that are not at hand to FlashMLA 9241ae3, for the page",
    )
    parser.add_argument("--measured", action="store_true", help="measure nothing; show or write what JSON holds")
    parser.add_argument("--page", type=Path, metavar="MD", help="write a page, and its charts beside it")
    parser.add_argument("--table", type=Path, metavar="MD", help="write the table between the two comments of a page")
    options = parser.parse_args(arguments)
    return status_of(run, options)


def run(options: argparse.Namespace) -> int:
    """Measure what the options say, write the pages, and print a line for each library of each cell."""
    document = _read(options.data) if options.measured else _measure(options)
    if options.products:
        document = comparison.with_products(document, _read(options.products))
    if options.page:
        _write(document, options.data, options.page)
    if options.table:
        if not comparison.has_upstream(document):
            raise ValueRangeError("json", str(options.data), f"for --table, runs that have {comparison.UPSTREAM}")
        text = options.table.read_text(encoding="utf-8")
        text = with_block(text, "side by side", f"{side_by_side.table(document)}\n")
        options.table.write_text(text, encoding="utf-8")
    return _show(document)


def _command(options: argparse.Namespace) -> str:
    """The command that measures the same again."""
    words = ["python", "-m", "benchmarks.side_by_side", options.data.name, "--cells", options.cells]
    words += [word for peer in options.peer or () for word in ("--peer", peer)]
    words += ["--processes"] if options.processes else []
    return shlex.join([*words, "--seconds", f"{options.seconds:g}"])


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on the GPU of this process.

    Raises
    ------
    DeviceError
        There is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("device", "none that torch can use", "an NVIDIA GPU; --measured shows what JSON holds")
    from benchmarks.side_by_side.libraries import libraries
    from benchmarks.side_by_side.run import Run, measure

    chosen = libraries(options.peer)
    run = Run(options.cells, chosen, options.seconds, options.processes, _command(options))
    return measure(run, options.data)


def _write(document: Mapping[str, Any], data: Path, path: Path) -> None:
    title = SUITES[document.get("suite", "front")].title
    beside = os.path.relpath(data, path.parent)
    if fp8.measured(document):
        path.write_text(fp8.page(document, title=title, data=beside), encoding="utf-8")
        return
    pictures = None
    if comparison.has_upstream(document):
        draw = ratios.draw if side_by_side.sustains(document) else grid.draw
        light, dark = (os.path.relpath(drawn, path.parent) for drawn in draw(document, path.with_suffix("")))
        pictures = (light, dark)
    path.write_text(side_by_side.page(document, title=title, data=beside, pictures=pictures), encoding="utf-8")


def _show(document: Mapping[str, Any]) -> int:
    failed = 0
    for cell in document["cells"]:
        print(cell["title"])
        for turn in cell["turns"]:
            times = [f"{state} {turn[state]['us']:.1f} us" for state in side_by_side.NAMES if state in turn]
            failed += "note" in turn
            print(f"  {turn['library']:24} {turn.get('note', '  '.join(times))}")
    return int(failed > 0)
