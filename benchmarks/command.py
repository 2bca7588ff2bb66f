"""``python -m benchmarks``: its options, and what they measure, print and write."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_kernels.devices.machine import HOST, current_arch
from mla_kernels.diagnostics import tables
from mla_kernels.diagnostics.bench.command import (
    D_QK_HELP,
    LENGTHS_HELP,
    SHAPE,
    integers,
    joined,
    names,
    option,
    refuse,
)
from mla_kernels.diagnostics.bench.problems import LENGTHS, SUITES, Problem, problems, shapes
from mla_kernels.diagnostics.cli import status_of
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import HEAD_DIM

from benchmarks.ops import sparse_problems
from benchmarks.pages import bars, page, roofline

_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "decode": ((16, 128), (1,), (8,), (4096,)),
    "sparse_decode": ((64, 128), (1,), (8,), (32768,)),
    "sparse_prefill": ((64, 128), (1024,), (1,), (32768,)),
}
"""The lists of each op, unless others are given."""
_SUITES = {
    "decode": SUITES,
    "sparse_decode": sparse_problems.DECODE_SUITES,
    "sparse_prefill": sparse_problems.PREFILL_SUITES,
}
_CPU_DTYPES, _CPU_REPEATS = ("bf16", "fp32"), 15
_CUDA_DTYPES = {"decode": ("bf16",), "sparse_decode": ("bf16:fp8_ds_mla",), "sparse_prefill": ("bf16",)}
_CUDA_REPEATS = 7
_TOPK, _PAGE_SIZE = (2048,), (64,)
_ONLY_CUDA = ("measured", "markdown", "topk")
_CELLS = ("suite", *SHAPE, "topk", "page_size", "dtypes", "d_qk", "lengths")
_UNUSED = {
    "decode": ("topk",),
    "sparse_decode": ("lengths", "d_qk"),
    "sparse_prefill": ("lengths", "page_size", "d_qk"),
    "caches": (*_CELLS, "plot"),
    "overhead": (),
}
"""Options that an op has no use for on CUDA."""
_MEASURES = ("arch", *_CELLS, "repeats")
"""The options that say what is measured, as the page repeats them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 1 with a message for an error or a cell that failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    add_options(parser)
    return status_of(run, parser.parse_args(arguments))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; those left out are ``None``."""
    parser.add_argument("--op", choices=tuple(_UNUSED), default="decode")
    parser.add_argument("--arch", help="by default the current device's")
    parser.add_argument("--threads", type=int, help="cores to run on; by default all that the process may use")
    parser.add_argument("--repeats", type=int, help="by default 15 on a CPU, 7 replays on CUDA")
    parser.add_argument("--plot", metavar="SVG", help="draw the table into an SVG or PNG file; on CUDA the roofline")
    parser.add_argument("--markdown", metavar="FILE", help="write a page, and the JSON in data/ beside it, on CUDA")
    parser.add_argument(
        "--measured", metavar="JSON", help="show what was measured on CUDA before, instead of measuring"
    )
    parser.add_argument("--noop", metavar="PATH", help="a payload that computes nothing, for --op overhead")
    cells = parser.add_argument_group("cells", "every combination of these lists")
    cells.add_argument("--suite", choices=sorted(SUITES), help="named shapes, in place of the first four lists")
    for place, name in enumerate(SHAPE):
        text = "; ".join(f"{joined(lists[place])} for {op}" for op, lists in _SHAPES.items())
        cells.add_argument(option(name), type=integers, metavar="N,N", help=f"by default {text}")
    cells.add_argument("--topk", type=integers, metavar="N,N", help="of sparse ops, by default 2048")
    cells.add_argument("--page-size", type=integers, metavar="N,N", help="by default 64")
    text = "bf16, or bf16:e4m3 for Q:KV; by default bf16, of sparse_decode bf16:fp8_ds_mla, on a CPU bf16,fp32"
    cells.add_argument("--dtypes", type=names, metavar="T,T", help=text)
    cells.add_argument("--d-qk", type=integers, metavar="N,N", help=D_QK_HELP)
    cells.add_argument("--lengths", choices=LENGTHS, help=LENGTHS_HELP)


def run(options: argparse.Namespace) -> int:
    """Measure and show; 1 where a cell could not be measured."""
    _prepare(options)
    if options.op != "overhead" and (options.measured or (options.arch or current_arch()) != HOST):
        return _cuda(options)
    if options.op not in {"decode", "overhead"}:
        raise ValueRangeError("op", options.op, "decode or overhead on a CPU; the others are measured on CUDA")
    refuse(options, _ONLY_CUDA, "nothing here: it is for CUDA")
    rows = _overhead(options) if options.op == "overhead" else _cpu(options)
    if options.plot:
        bars.draw(rows, options.plot)
    _show(options, rows, rows)
    return 0


def _prepare(options: argparse.Namespace) -> None:
    """Refuse before minutes of measuring what would fail after them."""
    if options.plot:
        tables.require("matplotlib", "matplotlib")
    if not options.measured:
        tables.require("torch", "mla-kernels[torch]")
    if options.repeats is not None and options.repeats < 1:
        raise ValueRangeError("repeats", str(options.repeats), "integers from 1")
    for name in ("plot", "markdown"):
        path = getattr(options, name)
        if path and not Path(path).parent.is_dir():
            raise ValueRangeError(name, path, "a file in a folder that exists")


def _overhead(options: argparse.Namespace) -> list[tables.Row]:
    from benchmarks.ops import overhead

    return overhead.measure(options.noop, progress=tables.progress(options.json))


def _cpu(options: argparse.Namespace) -> list[tables.Row]:
    from benchmarks.ops import decode_cpu

    settings = decode_cpu.Settings(options.threads, options.repeats or _CPU_REPEATS)
    cells = _decodes(options, options.dtypes or _CPU_DTYPES)
    return decode_cpu.measure(cells, settings, progress=tables.progress(options.json))


def _cuda(options: argparse.Namespace) -> int:
    refuse(options, ("threads", "noop"), "nothing here: it is not for CUDA")
    refuse(options, _UNUSED[options.op], f"nothing here: --op {options.op} has no use for it")
    document = _read(options.measured) if options.measured else _measure(options)
    if options.markdown:
        _write(document, Path(options.markdown), options.plot)
    if options.plot:
        roofline.draw(document, options.plot)
    _show(options, document, page.summary(document))
    return int(any("note" in row for row in document["rows"]))


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.ops import caches_cuda, decode_cuda, run_cuda, sparse_cuda

    arch = options.arch or current_arch()
    op = {
        "decode": decode_cuda.OP,
        "sparse_decode": sparse_cuda.DECODE,
        "sparse_prefill": sparse_cuda.PREFILL,
        "caches": caches_cuda.OP,
    }[options.op]
    cells = caches_cuda.cells(arch) if options.op == "caches" else _cells(options)
    repeats = options.repeats or _CUDA_REPEATS
    told = run_cuda.measure(op, cells, arch, repeats, tables.progress(options.json))
    return {"command": _command(options), **told}


def _cells(options: argparse.Namespace) -> Sequence[Any]:
    dtypes = options.dtypes or _CUDA_DTYPES[options.op]
    topks = options.topk or _TOPK
    if options.op == "sparse_decode":
        return sparse_problems.decodes(dtypes, _shapes(options), topks, options.page_size or _PAGE_SIZE)
    if options.op == "sparse_prefill":
        return sparse_problems.prefills(dtypes, _shapes(options), topks)
    return _decodes(options, dtypes)


def _decodes(options: argparse.Namespace, dtypes: Sequence[str]) -> tuple[Problem, ...]:
    pages, lengths = options.page_size or _PAGE_SIZE, options.lengths or "equal"
    return problems(dtypes, _shapes(options), pages, lengths, options.d_qk or (HEAD_DIM,))


def _shapes(options: argparse.Namespace) -> tuple[tuple[int, int, int, int], ...]:
    if options.suite:
        refuse(options, SHAPE, "nothing beside --suite, which has shapes of its own")
        return _SUITES[options.op][options.suite]
    lists = zip(SHAPE, _SHAPES[options.op], strict=True)
    return shapes(*(getattr(options, name) or default for name, default in lists))


def _read(path: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        page.page(document, data=path, picture=None)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueRangeError("measured", f"{path} ({error!r})", "what --json printed on CUDA") from error
    return document


def _write(document: Mapping[str, Any], path: Path, picture: str | None) -> None:
    """Write a page, and what was measured under the same name in ``data/`` beside it."""
    data = path.parent / "data" / f"{path.stem}.json"
    data.parent.mkdir(exist_ok=True)
    data.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    beside = os.path.relpath(picture, path.parent) if picture else None
    path.write_text(
        page.page(document, data=data.relative_to(path.parent).as_posix(), picture=beside), encoding="utf-8"
    )


def _show(options: argparse.Namespace, document: object, rows: Sequence[tables.Row]) -> None:
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        tables.table(f"benchmarks --op {options.op}", rows)


def _command(options: argparse.Namespace) -> str:
    """The command that measures the same again."""
    words = ["python", "-m", "benchmarks", "--op", options.op]
    for name in _MEASURES:
        if (value := getattr(options, name)) is not None:
            words += [option(name), joined(value)]
    return shlex.join(words)
