"""``python -m mla_kernels bench``: its options, and what they measure, print and write."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_kernels.bench import page, peer_figures, report, roofline, sparse_problems
from mla_kernels.bench.problems import LENGTHS, SUITES, Problem, problems, shapes
from mla_kernels.devices.machine import HOST, current_arch
from mla_kernels.errors import ValueRangeError

_SHAPE = ("heads", "q_len", "batch", "seq")
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
_ONLY_CUDA = ("peers", "measured", "markdown", "topk")
_CELLS = ("suite", *_SHAPE, "topk", "page_size", "dtypes", "lengths")
_UNUSED = {
    "decode": ("topk",),
    "sparse_decode": ("lengths",),
    "sparse_prefill": ("lengths", "page_size"),
    "caches": (*_CELLS, "peers", "plot"),
    "overhead": (),
}
"""Options that an op has no use for on CUDA."""
_MEASURES = ("arch", *_CELLS, "repeats", "peers")
"""The options that say what is measured, as the page repeats them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; those left out are ``None``."""
    parser.add_argument("--op", choices=tuple(_UNUSED), default="decode")
    parser.add_argument("--arch", help="by default the current device's")
    parser.add_argument("--threads", type=int, help="cores to run on; by default all that the process may use")
    parser.add_argument("--repeats", type=int, help="by default 15 on a CPU, 7 replays on CUDA")
    parser.add_argument("--plot", metavar="PNG", help="draw the table; on CUDA the roofline")
    parser.add_argument("--markdown", metavar="FILE", help="write a page, and the JSON in data/ beside it, on CUDA")
    parser.add_argument("--peers", metavar="FILE", help="figures of peers from another run, labelled as such, on CUDA")
    parser.add_argument(
        "--measured", metavar="JSON", help="show what was measured on CUDA before, instead of measuring"
    )
    parser.add_argument("--noop", metavar="PATH", help="a payload that computes nothing, for --op overhead")
    cells = parser.add_argument_group("cells", "every combination of these lists")
    cells.add_argument("--suite", choices=sorted(SUITES), help="named shapes, in place of the first four lists")
    for place, name in enumerate(_SHAPE):
        text = "; ".join(f"{_joined(lists[place])} for {op}" for op, lists in _SHAPES.items())
        cells.add_argument(_option(name), type=_integers, metavar="N,N", help=f"by default {text}")
    cells.add_argument("--topk", type=_integers, metavar="N,N", help="of sparse ops, by default 2048")
    cells.add_argument("--page-size", type=_integers, metavar="N,N", help="by default 64")
    text = "bf16, or bf16:e4m3 for Q:KV; by default bf16, of sparse_decode bf16:fp8_ds_mla, on a CPU bf16,fp32"
    cells.add_argument("--dtypes", type=_names, metavar="T,T", help=text)
    lengths = "all --seq; with half of it as deviation; one of 65536 tokens beside 1024, whatever --seq says"
    cells.add_argument("--lengths", choices=LENGTHS, help=lengths)


def run(options: argparse.Namespace) -> int:
    """Measure and show; 1 where a cell could not be measured."""
    _prepare(options)
    if options.op != "overhead" and (options.measured or (options.arch or current_arch()) != HOST):
        return _cuda(options)
    if options.op not in {"decode", "overhead"}:
        raise ValueRangeError("op", options.op, "decode or overhead on a CPU; the others are measured on CUDA")
    _refuse(options, _ONLY_CUDA, "nothing here: it is for CUDA")
    rows = _overhead(options) if options.op == "overhead" else _cpu(options)
    if options.plot:
        report.plot(rows, options.plot)
    _show(options, rows, rows)
    return 0


def _prepare(options: argparse.Namespace) -> None:
    """Refuse before minutes of measuring what would fail after them."""
    if options.plot:
        report.require("matplotlib", "bench")
    if not options.json:
        report.require("rich", "cli")
    if not options.measured:
        report.require("torch", "torch")
    if options.repeats is not None and options.repeats < 1:
        raise ValueRangeError("repeats", str(options.repeats), "integers from 1")
    for name in ("plot", "markdown"):
        path = getattr(options, name)
        if path and not Path(path).parent.is_dir():
            raise ValueRangeError(name, path, "a file in a folder that exists")


def _overhead(options: argparse.Namespace) -> list[report.Row]:
    from mla_kernels.bench import overhead

    return overhead.measure(options.noop, progress=report.progress(options.json))


def _cpu(options: argparse.Namespace) -> list[report.Row]:
    from mla_kernels.bench import decode_cpu

    settings = decode_cpu.Settings(options.threads, options.repeats or _CPU_REPEATS)
    cells = _decodes(options, options.dtypes or _CPU_DTYPES)
    return decode_cpu.measure(cells, settings, progress=report.progress(options.json))


def _cuda(options: argparse.Namespace) -> int:
    _refuse(options, ("threads", "noop"), "nothing here: it is not for CUDA")
    _refuse(options, _UNUSED[options.op], f"nothing here: --op {options.op} has no use for it")
    figures = peer_figures.load(options.peers) if options.peers else None
    document = _read(options.measured) if options.measured else _measure(options)
    if figures:
        document = peer_figures.joined(document, figures)
    if options.markdown:
        _write(document, Path(options.markdown), options.plot)
    if options.plot:
        roofline.draw(document, options.plot)
    _show(options, document, page.summary(document))
    return int(any("note" in row for row in document["rows"]))


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    from mla_kernels.bench import caches_cuda, decode_cuda, run_cuda, sparse_cuda

    arch = options.arch or current_arch()
    op = {
        "decode": decode_cuda.OP,
        "sparse_decode": sparse_cuda.DECODE,
        "sparse_prefill": sparse_cuda.PREFILL,
        "caches": caches_cuda.OP,
    }[options.op]
    cells = caches_cuda.cells(arch) if options.op == "caches" else _cells(options)
    repeats = options.repeats or _CUDA_REPEATS
    told = run_cuda.measure(op, cells, arch, repeats, report.progress(options.json))
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
    return problems(dtypes, _shapes(options), options.page_size or _PAGE_SIZE, options.lengths or "equal")


def _shapes(options: argparse.Namespace) -> tuple[tuple[int, int, int, int], ...]:
    if options.suite:
        _refuse(options, _SHAPE, "nothing beside --suite, which has shapes of its own")
        return _SUITES[options.op][options.suite]
    lists = zip(_SHAPE, _SHAPES[options.op], strict=True)
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


def _show(options: argparse.Namespace, document: object, rows: Sequence[report.Row]) -> None:
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        report.table(f"bench --op {options.op}", rows)


def _refuse(options: argparse.Namespace, names: Sequence[str], accepts: str) -> None:
    for name in names:
        if (value := getattr(options, name)) is not None:
            raise ValueRangeError(name.replace("_", "-"), _joined(value), accepts)


def _command(options: argparse.Namespace) -> str:
    """The command that measures the same again."""
    words = ["python", "-m", "mla_kernels", "bench", "--op", options.op]
    for name in _MEASURES:
        if (value := getattr(options, name)) is not None:
            words += [_option(name), _joined(value)]
    return shlex.join(words)


def _joined(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
