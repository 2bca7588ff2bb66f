"""A worker runs the cases of one block in a process of its own, and tells by shared memory how far it is."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import struct
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.fuzz.changes.together import RUN
from tests.fuzz.draw import drawn, listed
from tests.fuzz.elements import Noise
from tests.fuzz.judge import FaultError, Outcome, judged
from tests.fuzz.memory import HostArena, Space
from tests.fuzz.problems.case import Variant

BLOCK = 500
"""Cases that share a worker, its instruction set and its threads."""
DEAD_DEVICE = 3
"""What a worker exits with after an error of CUDA."""


@dataclass(frozen=True)
class Finding:
    """A case that went wrong; its seed replays it."""

    seed: int
    kind: str
    op: str
    variant: str
    label: str
    fault: str
    detail: str

    @property
    def sort(self) -> str:
        """Findings of one sort have probably one cause."""
        return f"{self.fault} | {self.kind} | {self.op} | {self.label}"


class Board:
    """What a worker writes for its supervisor: the seed that it is at, and the cases that it has done."""

    FORM = struct.Struct("qq")

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def at(self, seed: int, done: int) -> None:
        """Say which case begins."""
        self.FORM.pack_into(self._memory, 0, seed, done)

    def read(self) -> tuple[int, int]:
        """The seed of the case that runs, and how many are done."""
        seed, done = self.FORM.unpack_from(self._memory, 0)
        return seed, done


def environment(seed: int, isas: tuple[str, ...]) -> dict[str, str]:
    """The instruction set and the threads of the block that a seed lies in."""
    source = random.Random(f"block {seed // BLOCK}")
    return {
        "MLA_KERNELS_CPU_ISA": source.choice(isas),
        "MLA_KERNELS_CPU_THREADS": str(source.choice((1, 1, 2, 2, 3, 8))),
    }


@cache
def shared(arch: str) -> tuple[Noise, dict[str, list[Variant]]]:
    """What every worker has from its parent."""
    return Noise(), listed(arch)


class Worker:
    """Runs cases; the library reads the environment when the first is launched."""

    def __init__(self, device: str, arch: str, plain: bool = False) -> None:
        self.settle = lambda: None
        arena: Any = HostArena
        if device == "cuda":
            from tests.fuzz.device import DeviceArena, PlainArena, settle

            arena, self.settle = PlainArena if plain else DeviceArena, settle
        self.space = Space(arena, device)
        self.noise, self.variants = shared(arch)

    def run(self, seed: int) -> tuple[dict[str, str], Outcome]:
        """Run the case of a seed."""
        self.space.reset()
        case = drawn(seed, self.noise, self.variants, self.space)
        about = {"kind": case.kind, "op": case.op, "variant": case.variant.name, "label": case.label}
        if case.kind not in RUN:
            return about, judged(case, self.space, self.settle)
        try:
            RUN[case.kind](case, self.space)
        except FaultError as fault:
            return about, Outcome("accepted", *map(str, fault.args))
        except Exception as error:
            return about, Outcome(type(error).__name__, "a legal call is refused", f"{type(error).__name__}: {error}")
        return about, Outcome("accepted")


def work(worker: Worker, seeds: range, board: Board, log: Path) -> None:
    """Run seeds, and append a line of JSON with every finding and, at the end, one with the counts."""
    torch.set_num_threads(1)  # what torch waits for in a forked process are threads of its parent
    counts: dict[str, int] = {}
    with log.open("a") as lines:
        faulthandler.enable(lines)
        for done, seed in enumerate(seeds):
            board.at(seed, done)
            try:
                about, outcome = worker.run(seed)
            except RuntimeError as error:
                if "CUDA error" not in str(error):
                    raise
                lines.write(f"{error}\n")  # every later call of this process would fail too
                lines.flush()
                os._exit(DEAD_DEVICE)
            for name in (f"kind {about['kind']}", f"op {about['op']}", f"end {outcome.end}"):
                counts[name] = counts.get(name, 0) + 1
            if outcome.fault:
                finding = Finding(seed, **about, fault=outcome.fault, detail=outcome.detail[:400])
                lines.write(json.dumps({"finding": asdict(finding)}) + "\n")
            if outcome.fault or done % 20 == 19:
                lines.write(json.dumps({"counts": counts}) + "\n")
                lines.flush()
                counts = {}
        board.at(seeds.stop, len(seeds))
        lines.write(json.dumps({"counts": counts}) + "\n")


def quiet() -> None:
    """Keep what libraries print out of the supervisor's output."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
