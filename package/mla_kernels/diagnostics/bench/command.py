"""``mla-kernels bench``: its options, and the table that it prints.

``python -m benchmarks``, in a clone of the repository, measures more ops, beside other packages, and writes pages.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import takewhile

from mla_kernels.devices.machine import current_arch
from mla_kernels.diagnostics import tables
from mla_kernels.diagnostics.bench.problems import LENGTHS, SUITES, Shape, problems, shapes
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import HEAD_DIM

SHAPE = ("heads", "q_len", "batch", "seq")
"""The options whose combinations are the shapes."""
LENGTHS_HELP = (
    "lengths of the requests: equal (--seq each), normal (--seq on average, half of it as deviation), long (one of "
    "65536 tokens, the others of 1024), or zipf (from 65536 to 256 tokens by rank); default equal"
)
D_QK_HELP = "columns of a key: 576 (512 of the value), 512 (512) or 320 (256); default 576"
_LISTS = ((16, 128), (1,), (8,), (4096,))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; those left out are ``None``."""
    parser.add_argument("--arch", help="arch to measure; by default that of the current device")
    parser.add_argument("--repeats", type=int, default=15, help="repetitions, of which the median is shown; default 15")
    cells = parser.add_argument_group("cells", "each combination of these lists is measured")
    cells.add_argument("--suite", choices=sorted(SUITES), help="named shapes instead of the first four lists")
    for name, default in zip(SHAPE, _LISTS, strict=True):
        cells.add_argument(option(name), type=integers, metavar="N,N", help=f"default {joined(default)}")
    cells.add_argument("--page-size", type=integers, metavar="N,N", help="default 64")
    cells.add_argument("--dtypes", type=names, metavar="T,T", help="such as bf16, or bf16:e4m3 for Q:KV; default bf16")
    cells.add_argument("--d-qk", type=integers, metavar="N,N", help=D_QK_HELP)
    cells.add_argument("--lengths", choices=LENGTHS, default="equal", help=LENGTHS_HELP)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    with tables.status("importing torch"):
        tables.require("torch", "mla-kernels[torch]")
    if options.repeats < 1:
        raise ValueRangeError("repeats", str(options.repeats), "integers from 1")
    from mla_kernels.diagnostics.bench import decode

    cells = problems(
        options.dtypes or ("bf16",),
        _shapes(options),
        options.page_size or (64,),
        options.lengths,
        options.d_qk or (HEAD_DIM,),
    )
    arch = options.arch or current_arch()
    rows = decode.measure(cells, arch, options.repeats, tables.progress(options.json))
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        same, differing = split(rows)
        tables.table(
            tables.wrapped(", ".join([f"decode on {arch}", *(f"{name} {same[name]}" for name in same)])), differing
        )
    return 0


def split(rows: Sequence[tables.Row]) -> tuple[tables.Row, list[tables.Row]]:
    """What all cells have in common, and the rows without it; what was measured stays in the rows."""
    cell = tuple(takewhile(lambda name: name != "us", rows[0]))
    same = {name: rows[0][name] for name in cell if len(rows) > 1 and len({row[name] for row in rows}) == 1}
    return same, [{name: value for name, value in row.items() if name not in same} for row in rows]


def _shapes(options: argparse.Namespace) -> tuple[Shape, ...]:
    if options.suite:
        refuse(options, SHAPE, "nothing beside --suite, which has shapes of its own")
        return SUITES[options.suite]
    return shapes(*(getattr(options, name) or default for name, default in zip(SHAPE, _LISTS, strict=True)))


def refuse(options: argparse.Namespace, given: tuple[str, ...], accepts: str) -> None:
    """Refuse options that were given.

    Raises
    ------
    ValueRangeError
        Names the first of them, and what it accepts.
    """
    for name in given:
        if (value := getattr(options, name)) is not None:
            raise ValueRangeError(name.replace("_", "-"), joined(value), accepts)


def option(name: str) -> str:
    """An attribute's option: ``--q-len`` of ``q_len``."""
    return f"--{name.replace('_', '-')}"


def joined(value: object) -> str:
    """A value as the command line takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def integers(text: str) -> tuple[int, ...]:
    """The numbers of ``16,128``."""
    return tuple(int(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """The names of ``bf16,fp16``."""
    return tuple(text.split(","))
