"""What lookups and the generator cost by the number of variants: ``python -m benchmarks.lookup COMMIT... --page PAGE``

The registries of each commit are read by today's code. ``read`` is a new process that parses them and makes their
indices, which the first lookup of a process does. ``search`` is a lookup that nothing has cached, without the
launcher's part: check the config, and find the variant. ``check`` and ``generate`` are ``python -m codegen`` of that
commit, in new processes. A cached lookup sees no registry: it is measured once, in the installed package.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mla_kernels
from mla_kernels import _launcher
from mla_kernels.models import models
from mla_kernels.payloads.discovery import Payloads, payloads
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry
from mla_kernels.resolve import config, search

from benchmarks.pages.facts import ROOT, git_commit, processor
from benchmarks.pages.markdown import markdown
from benchmarks.timing import overheads

READ = """
import json, sys, time
from mla_kernels import _launcher
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry
start = time.process_time()
registries = [Registry.parse(json.loads(open(path, encoding="utf-8").read())) for path in sys.argv[1:]]
variants = [variant for registry in registries for variant in registry.variants]
indices = {op: Index(each for each in variants if each.op == op) for op in _launcher.OPS}
print(time.process_time() - start)
"""
FIRST = """
import time
start = time.process_time()
import mla_kernels
imported = time.process_time()
mla_kernels.lookup(op="decode", arch="cpu", q_dtype="bf16")
print(imported - start, time.process_time() - imported)
"""
CACHED: dict[str, Any] = {"op": "decode", "arch": "cpu", "q_dtype": "bf16", "kv_dtype": "bf16", "num_heads": 128}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checkout:
    """The sources of a commit, and its registries."""

    commit: str
    folder: Path
    paths: tuple[Path, ...]

    @property
    def registries(self) -> list[Registry]:
        """What a payload of each says of itself."""
        return [Registry.parse(json.loads(path.read_text(encoding="utf-8"))) for path in self.paths]

    def processes(self) -> dict[str, Callable[[], float]]:
        """What is measured in processes of its own, in seconds."""
        return {
            "read, ms": lambda: printed([sys.executable, "-c", READ, *map(str, self.paths)]),
            "check, s": lambda: generator(self.folder, "check"),
            "generate, s": lambda: generator(self.folder, "generate"),
        }


@contextmanager
def checked_out(commits: Sequence[str]) -> Iterator[list[Checkout]]:
    """A clone at each commit."""
    with tempfile.TemporaryDirectory() as root:
        found = []
        for number, commit in enumerate(commits):
            folder = Path(root) / str(number)
            subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
            subprocess.run(["git", "checkout", "-q", commit], cwd=folder, check=True)
            found.append(Checkout(commit, folder, tuple(sorted((folder / "generated").glob("*/registry.json")))))
        yield found


def measure(checkouts: Sequence[Checkout], rounds: int, repeats: int) -> list[Row]:
    """One row for each commit: the best of processes that take turns, and medians of searches."""
    taken: list[dict[str, list[float]]] = [{} for _ in checkouts]
    for _ in range(rounds):
        for checkout, times in zip(checkouts, taken, strict=True):
            for name, process in checkout.processes().items():
                times.setdefault(name, []).append(process())
    rows = []
    for checkout, times in zip(checkouts, taken, strict=True):
        searched = searching(checkout.registries, repeats)
        best = {name: min(each) * (1e3 if name.endswith("ms") else 1) for name, each in times.items()}
        rows.append(
            {
                "commit": checkout.commit,
                "variants": sum(len(registry.variants) for registry in checkout.registries),
                "read, ms": best.pop("read, ms"),
                "search, us": statistics.median(searched) * 1e6,
                "slowest search, us": max(searched) * 1e6,
                **best,
            }
        )
    return rows


def searching(registries: Sequence[Registry], repeats: int) -> list[float]:
    """Seconds of a search for each config of a model that one of the registries serves, each the median of some."""
    variants = [variant for registry in registries for variant in registry.variants]
    indices = {op: Index(each for each in variants if each.op == op) for op in _launcher.OPS}
    taken: list[float] = []
    with imagined(Payloads({}, (), indices)):
        for registry in registries:
            for asked in configs(registry.arch):
                try:
                    served = search.search(asked)[2] is not None
                except mla_kernels.MlaError:  # a width or a format that these registries do not know
                    continue
                if served:
                    taken.append(statistics.median(once(partial(search.search, asked)) for _ in range(repeats)))
    return taken


def configs(arch: str) -> Iterator[Row]:
    """What ranks of the models look up on an arch."""
    for model in models():
        yield from model.configs(arch=arch, q_len=max(model.q_lens, default=1))


@contextmanager
def imagined(found: Payloads) -> Iterator[None]:
    """Look up in these payloads."""
    with patch.object(search, "payloads", lambda: found), patch.object(config, "payloads", lambda: found):
        yield


def generator(folder: Path, command: str) -> float:
    """Seconds of the processor for a command of the generator, as it is in a checkout."""
    line = [sys.executable, "-m", "codegen", command]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    before = os.times()
    subprocess.run(line, cwd=folder, env=environment, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def printed(command: Sequence[str]) -> float:
    """The number that a process prints."""
    return float(subprocess.run(command, check=True, capture_output=True).stdout)


def once(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def installed(rounds: int) -> list[Row]:
    """The installed package: its import, its first lookup, and a lookup that is cached."""
    count = sum(len(payload.registry.variants) for payload in payloads().found.values())
    command = [sys.executable, "-c", FIRST]
    fresh = [subprocess.run(command, check=True, capture_output=True).stdout.split() for _ in range(rounds)]
    imported, first = (min(map(float, each)) for each in zip(*fresh, strict=True))
    seconds = {
        "import mla_kernels": imported,
        "the first lookup, which imports the rest and loads the payloads": first,
        "a cached lookup": overheads({"cached": lambda: mla_kernels.lookup(**CACHED)})["cached"],
    }
    return [{f"with {count} variants installed": what, "us": taken * 1e6} for what, taken in seconds.items()]


def page(document: Row) -> str:
    """The page of what was measured."""
    parts = [
        "# Lookup and generator, by the number of variants",
        markdown([{"fact": name, "value": value} for name, value in document["facts"].items()]),
        "The registries of each commit, read by the code of the commit above. `read` is what the first lookup of a "
        "process does with them: parse the files and make the indices. `search` is a lookup whose answer is not cached "
        "yet, without the binding of a kernel: the median over every config of a model that the registries serve, and "
        "the slowest of them. `check` and `generate` are `python -m codegen` as it was at that commit, in a new "
        f"process, where no file changes. These two and `read` are seconds of the processor, so that other work on "
        f"the machine hardly counts: the best of {document['rounds']} processes, which take turns by commit. `search` "
        "is the median of calls in one process.",
        markdown(document["rows"]),
        "The installed package: the first two are the best of as many processes, again of the processor. A cached "
        "lookup is one access to a dictionary by the arguments, and sees no registry.",
        markdown(document["installed"]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure, and write the page with its data."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookup", description=__doc__)
    parser.add_argument("commits", nargs="+", metavar="COMMIT", help="whose registries and generator are measured")
    parser.add_argument("--page", type=Path, required=True, help="the data is written beside it, as data/NAME.json")
    parser.add_argument("--rounds", type=int, default=7, help="of processes, of which the best counts")
    parser.add_argument("--repeats", type=int, default=51, help="of each search")
    options = parser.parse_args()
    facts = {
        "commit": git_commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "python": sys.version.partition(" ")[0],
        "command": f"`python -m benchmarks.lookup {' '.join(options.commits)} --page {options.page}`",
    }
    with checked_out(options.commits) as checkouts:
        rows = measure(checkouts, options.rounds, options.repeats)
    document = {"facts": facts, "rounds": options.rounds, "rows": rows, "installed": installed(options.rounds)}
    data = options.page.parent / "data" / f"{options.page.stem}.json"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    options.page.write_text(page(document), encoding="utf-8")


if __name__ == "__main__":
    main()
