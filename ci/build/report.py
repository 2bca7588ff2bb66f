"""Says what a build cost: seconds, memory and bytes of each unit, and answers of the compile cache; and plots it."""

from __future__ import annotations

import heapq
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.status import Status
from rich.table import Table

from ci.build import shards
from ci.rows import ROOT, Row

SECONDS_BETWEEN_SAMPLES = 0.5
STYLES = ("-", "--", ":")
COMPILERS = ("cicc", "ptxas", "cudafe++", "cc1plus")
WORKERS = (1, 8, 64)
"""Projections are made for so many cores, each of which compiles one unit at a time."""


@dataclass
class Unit:
    """One object of the payload: how many variants it holds, and what it cost to compile."""

    variants: int
    seconds: float
    peak_mb: float
    object_bytes: int


@dataclass
class Watched:
    """Seconds of a whole build, and the most memory that a unit's compilers took together."""

    seconds: float = 0.0
    peak_bytes: dict[str, int] = field(default_factory=dict)


@dataclass
class Report:
    """One build of one wheel."""

    payload: str
    commit: str
    cores: int
    seconds: float
    wheel: str
    wheel_bytes: int
    cache: dict[str, int]
    units: dict[str, Unit]

    @property
    def instances(self) -> list[Unit]:
        """The units that instantiate variants, in the order of their compilation."""
        return [unit for unit in self.units.values() if unit.variants]

    @property
    def costs(self) -> dict[str, float]:
        """Seconds of each generated unit."""
        return {name: unit.seconds for name, unit in sorted(self.units.items()) if not name.endswith(".o")}

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what ``save`` wrote."""
        stated = json.loads(path.read_text())
        return cls(**{**stated, "units": {name: Unit(**unit) for name, unit in stated["units"].items()}})

    def show(self) -> None:
        """Print the dearest units and the totals."""
        table = Table("unit", "variants", "seconds", "seconds a variant", "peak MB", "object kB")
        for name, unit in sorted(self.units.items(), key=lambda pair: -pair[1].seconds)[:12]:
            each = f"{unit.seconds / unit.variants:.1f}" if unit.variants else ""
            table.add_row(
                name,
                str(unit.variants or ""),
                f"{unit.seconds:.1f}",
                each,
                f"{unit.peak_mb:.0f}",
                f"{unit.object_bytes / 1e3:.0f}",
            )
        console = Console(width=140)
        if self.units:
            console.print(table)
        told = ", ".join(f"{count} {name}" for name, count in self.cache.items()) or "off"
        console.print(
            f"{self.wheel}: {self.wheel_bytes / 1e6:.2f} MB, {self.seconds:.0f} s, "
            f"{len(self.units)} objects compiled, compile cache: {told}",
            soft_wrap=True,
        )


@contextmanager
def watched(row: Row, build: Path) -> Iterator[Watched]:
    """Time what happens inside, show how far it is, and watch the compilers' memory, whoever started them."""
    found, done = Watched(), threading.Event()
    units = re.compile("|".join(rf"(?:\b|_)({name})\." for name in shards.units(row, ROOT)))
    before = _finished(build)

    def watch(status: Status) -> None:
        while not done.wait(SECONDS_BETWEEN_SAMPLES):
            for name, size in _compilers_memory(units).items():
                found.peak_bytes[name] = max(size, found.peak_bytes.get(name, 0))
            status.update(f"{row.payload}: {_finished(build) - before} objects, {time.monotonic() - start:.0f} s")

    start = time.monotonic()
    with Console(stderr=True).status(f"{row.payload}: preparing") as status:
        thread = threading.Thread(target=watch, args=(status,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found.seconds = time.monotonic() - start
            done.set()
            thread.join()


def _compilers_memory(units: re.Pattern[str]) -> dict[str, int]:
    """Return the bytes that compilers hold at the moment, by the unit that their command lines name."""
    now: dict[str, int] = {}
    for process in psutil.process_iter(["name"]):
        if process.info["name"] not in COMPILERS:
            continue
        try:
            named = units.search(" ".join(process.cmdline()))
            size = process.memory_info().rss
        except psutil.Error:  # it has ended
            continue
        if named:
            name = named[named.lastindex or 0]
            now[name] = now.get(name, 0) + size
    return now


def _finished(build: Path) -> int:
    """Count the objects that ninja has made in a folder so far."""
    log = build / ".ninja_log"
    return log.read_text().count(".o\t") if log.exists() else 0


def compiled_units(row: Row, source: Path, build: Path, watched: Watched) -> dict[str, Unit]:
    """Return what was compiled just now, by the unit's name or the source's path.

    The seconds are ninja's, the bytes those of the objects, and the memory is what was watched.
    """
    found = {}
    for path, seconds in compiled(build / ".ninja_log", since=time.time() - watched.seconds).items():
        stem, place = Path(path).name.partition(".")[0], path.partition(".dir/")[2]
        own = "_units.dir/" in path
        held = variants_of(source / "generated" / row.payload, stem) if own else 0
        peak = round(watched.peak_bytes.get(stem, 0) / 1e6, 1)
        found[stem if own else place] = Unit(held, seconds, peak, (build / path).stat().st_size)
    return found


def compiled(log: Path, since: float) -> dict[str, float]:
    """Return the seconds of each object that ninja made since a time, by its path in the build folder."""
    found = {}
    for line in log.read_text().splitlines()[1:]:
        start, end, _, path, _ = line.split("\t")
        made = log.parent / path
        if path.endswith(".o") and made.exists() and made.stat().st_mtime >= since:
            found[path] = round((int(end) - int(start)) / 1000, 2)
    return found


def variants_of(folder: Path, unit: str) -> int:
    """Count the variants that a generated unit instantiates."""
    paths = [path for suffix in (".cu", ".cpp") if (path := folder / f"{unit}{suffix}").exists()]
    return sum(line.startswith("template struct") for path in paths for line in path.read_text().splitlines())


def projected(units: Sequence[Unit], variants: int, workers: int) -> float:
    """Return the seconds to compile so many variants on so many cores, if units were repeated, the dearest first."""
    if not any(unit.variants for unit in units):
        raise ValueError("no unit with variants was compiled, so there is nothing to project from")
    chosen: list[Unit] = []
    while sum(unit.variants for unit in chosen) < variants:
        chosen += units
    loads = [0.0] * workers
    for unit in sorted(chosen, key=lambda unit: -unit.seconds):
        heapq.heapreplace(loads, loads[0] + unit.seconds)
    return max(loads)


def plot(reports: Sequence[Report], path: Path) -> None:
    """Draw seconds against variants, as built and as projected."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for report in reports:
        counts, seconds = [0], [0.0]
        for unit in report.instances:
            counts.append(counts[-1] + unit.variants)
            seconds.append(seconds[-1] + unit.seconds)
        (line,) = axes.plot(counts[1:], seconds[1:], marker="o", label=f"{report.payload}, as compiled")
        for workers, style in zip(WORKERS, STYLES, strict=True):
            many = [100, 300, 1000]
            wall = [projected(report.instances, n, workers) for n in many]
            axes.plot(many, wall, style, color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="variants", ylabel="seconds")
    for workers, style in zip(WORKERS, STYLES, strict=True):
        axes.plot([], [], style, color="grey", label=f"projected, {workers} worker{'s' * (workers > 1)}")
    figure.legend(loc="outside right upper", fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
