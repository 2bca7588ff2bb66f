"""Cuts a payload's units into parts for a build farm: each part compiles some, and one machine links them all.

Parts exchange objects, never libraries, so the wheel is the one that a single machine would have built.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ci.build.stage import Stage
from ci.rows import ROOT, Row

COSTS = ROOT / "ci" / "build" / "costs.json"
"""Seconds that each unit took to compile, by payload; ``nox -s full`` measures them."""
UNMEASURED = 10.0
HEADER = re.compile(r'#include "(?P<folder>\w+)/(?P<op>\w+)/')
"""The header of an op's kernels, which a unit includes first."""


@dataclass(frozen=True)
class Shard:
    """The ``index``-th of ``count`` parts, counted from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``1/3``."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"{text!r} is not I/N with 1 <= I <= N")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def units(self, row: Row, source: Path) -> list[str]:
        """Return the names of this part's units."""
        names = units(row, source)
        return split(names, costs(row, names), self.count)[self.index - 1]


@dataclass(frozen=True)
class Part:
    """What ``shard.json`` says of the objects beside it: which they are, and of which sources."""

    shard: Shard
    units: tuple[str, ...]
    commit: str

    @classmethod
    def load(cls, path: Path) -> Part:
        """Read ``shard.json``."""
        stated = json.loads(path.read_text())
        return cls(Shard(**stated["shard"]), tuple(stated["units"]), stated["commit"])


def units(row: Row, source: Path) -> list[str]:
    """Return the names of a payload's generated units, in the order in which they are linked."""
    folder = source / "generated" / row.payload
    return sorted(path.stem for path in folder.iterdir() if path.suffix in (".cpp", ".cu"))


def one_of_each_op(row: Row, source: Path) -> list[str]:
    """Return the cheapest unit of each op whose kernels are the payload's own, and not those of every CUDA arch."""
    names = units(row, source)
    seconds = costs(row, names)
    cheapest: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (seconds[name], name)):
        (path,) = (source / "generated" / row.payload).glob(f"{name}.c*")
        header = HEADER.search(path.read_text())
        if header and header["folder"] == row.payload and name.startswith(header["op"]):
            cheapest.setdefault(header["op"], name)
    return sorted(cheapest.values())


def costs(row: Row, names: Sequence[str]) -> dict[str, float]:
    """Return the measured seconds of each unit; a new one is given the median of the payload's units."""
    measured: Mapping[str, float] = json.loads(COSTS.read_text()).get(row.payload, {}) if COSTS.exists() else {}
    guess = median(measured.values()) if measured else UNMEASURED
    return {name: measured.get(name, guess) for name in names}


def split(names: Sequence[str], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Cut units into parts of about equal cost: the dearest comes first, each goes to the part that has least."""
    parts: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for name in sorted(names, key=lambda name: (-seconds[name], name)):
        least = loads.index(min(loads))
        parts[least].append(name)
        loads[least] += seconds[name]
    return [sorted(part) for part in parts]


def collect(row: Row, names: Sequence[str], build: Path, folder: Path) -> None:
    """Copy the objects of ``names`` out of a build folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (target,) = (path for path in build.rglob(f"mla_{row.payload}_units.dir") if path.is_dir())
    for name in names:
        (made,) = target.rglob(f"{name}.c*.o")
        shutil.copyfile(made, folder / f"{name}.o")


def save(part: Part, folder: Path) -> None:
    """Write beside the objects in ``folder`` what they are."""
    (folder / "shard.json").write_text(json.dumps(asdict(part), indent=1) + "\n")


def objects(stage: Stage, row: Row, out: Path) -> Path:
    """Bring the objects of all parts of a payload together in the stage, and return their folder.

    Raises
    ------
    SystemExit
        The parts do not make a whole; the message says why.
    """
    found = {path.parent: Part.load(path) for path in sorted(out.glob(f"shards/{row.payload}-*-of-*/shard.json"))}
    wrong = problems(list(found.values()), stage, units(row, stage.source))
    if wrong:
        raise SystemExit(f"the shards of {row.payload} cannot be linked:\n" + "\n".join(wrong))
    folder = stage.folder / "objects" / row.payload
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for place, part in found.items():
        for name in part.units:
            shutil.copyfile(place / f"{name}.o", folder / f"{name}.o")
    return folder


def problems(parts: Sequence[Part], stage: Stage, wanted: Sequence[str]) -> list[str]:
    """Say why parts are not the whole of one build."""
    if not parts:
        return ["there are none; run: nox -s wheels -- PAYLOAD --shard 1/N"]
    wrong = []
    there = ", ".join(str(part.shard) for part in parts)
    counts, indices = {part.shard.count for part in parts}, sorted(part.shard.index for part in parts)
    if len(counts) > 1 or indices != list(range(1, max(counts) + 1)):
        wrong.append(f"there are parts {there}; build all parts of one split, and remove those of others")
    for part in parts:
        if part.commit != stage.label:
            wrong.append(f"part {part.shard} is of commit {part.commit}, the sources are of {stage.label}")
    held = Counter(name for part in parts for name in part.units)
    differ = sorted(name for name in {*held, *wanted} if held[name] != (name in wanted))
    if differ:
        wrong.append(f"missing, twice or unknown: {', '.join(differ)}")
    return wrong
