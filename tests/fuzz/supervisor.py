"""Starts workers, watches them, and goes on after one that died or hangs; its progress outlives it."""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.draw import drawn
from tests.fuzz.memory import HostArena, Space
from tests.fuzz.worker import BLOCK, DEAD_DEVICE, Board, Finding, Worker, environment, quiet, shared, work


@dataclass
class Progress:
    """What is done: blocks, counts and findings; written to a file whenever a block ends."""

    about: dict[str, Any]
    blocks: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path, about: dict[str, Any]) -> Progress:
        """The progress of an earlier run of the same library and seeds, or none."""
        if not path.exists():
            return cls(about)
        kept = json.loads(path.read_text())
        if kept["about"] != about:
            return cls(about)
        findings = [Finding(**finding) for finding in kept["findings"]]
        return cls(about, set(kept["blocks"]), Counter(kept["counts"]), findings, kept["seconds"])

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = {
            "about": self.about,
            "blocks": sorted(self.blocks),
            "counts": dict(sorted(self.counts.items())),
            "findings": [asdict(finding) for finding in self.findings],
            "seconds": round(self.seconds, 1),
        }
        new = path.with_suffix(".new")
        new.write_text(json.dumps(text))
        new.replace(path)


@dataclass
class Settings:
    """How cases are run."""

    device: str
    arch: str
    jobs: int
    isas: tuple[str, ...]
    patience: float
    plain: bool = False
    make: Callable[..., Any] = Worker


@dataclass
class Running:
    """A worker that runs, and where it was seen last."""

    pid: int
    seeds: range
    board: Board
    log: Path
    seen: tuple[int, int] = (-1, -1)
    since: float = field(default_factory=time.monotonic)


class Supervisor:
    """Runs blocks of seeds in workers."""

    def __init__(self, settings: Settings, progress: Progress, path: Path) -> None:
        self.settings, self.progress, self.path = settings, progress, path
        self._number = 0

    def run_here(self, seeds: range, report: Callable[[Finding], None]) -> None:
        """Run every block in this process, which tools want that watch one; an error of CUDA then ends it."""
        log = self.path.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        settings = self.settings
        worker = settings.make(settings.device, settings.arch, settings.plain)
        for part in self._parts(seeds):
            log.write_text("")
            board = Board(bytearray(Board.FORM.size))
            work(worker, part, board, log)
            self._ended(Running(os.getpid(), part, board, log), "", report)
            self.progress.blocks.add((part.stop - 1) // BLOCK)
            self.progress.write(self.path)

    def run(self, seeds: range, report: Callable[[Finding], None]) -> None:
        """Run every block of ``seeds`` that is not done."""
        if self.settings.device == "cpu":
            shared(self.settings.arch)  # before the first worker is forked
        queue = self._parts(seeds)
        running: list[Running] = []
        began, before = time.monotonic(), self.progress.seconds
        rest: list[range] = []
        while True:
            while len(running) < self.settings.jobs and (part := rest.pop() if rest else next(queue, None)):
                running.append(self._start(part))
            if not running:
                break
            time.sleep(0.01)
            for worker in list(running):
                status = self._status(worker)
                if status is None:
                    continue
                running.remove(worker)
                left = self._ended(worker, status, report)
                if left:
                    rest.append(left)
                else:
                    self.progress.blocks.add((worker.seeds.stop - 1) // BLOCK)
                self.progress.seconds = before + time.monotonic() - began
                self.progress.write(self.path)

    def _parts(self, seeds: range) -> Iterator[range]:
        for block in range(seeds.start // BLOCK, -(-seeds.stop // BLOCK)):
            if block not in self.progress.blocks:
                yield range(max(seeds.start, block * BLOCK), min(seeds.stop, (block + 1) * BLOCK))

    def _start(self, seeds: range) -> Running:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        board = Board(memory)
        board.at(seeds.start, 0)
        self._number += 1
        log = self.path.parent / f"worker-{os.getpid()}-{self._number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._work(seeds, board, log)
        return Running(pid, seeds, board, log)

    def _work(self, seeds: range, board: Board, log: Path) -> None:
        """In the child: run the seeds, and leave without what the parent would do at its end."""
        try:
            quiet()
            settings = self.settings
            os.environ |= environment(seeds.start, settings.isas)
            work(settings.make(settings.device, settings.arch, settings.plain), seeds, board, log)
        except BaseException:
            with log.open("a") as lines:
                lines.write(traceback.format_exc())
            os._exit(1)
        os._exit(0)

    def _status(self, worker: Running) -> str | None:
        """How a worker ended; None while it runs."""
        done, status = os.waitpid(worker.pid, os.WNOHANG)
        if done:
            if os.WIFSIGNALED(status):
                return f"crash: {signal.Signals(os.WTERMSIG(status)).name}"
            failed = {0: "", DEAD_DEVICE: "crash: an error of CUDA"}
            return failed.get(os.WEXITSTATUS(status), "the fuzzer itself failed")
        now = worker.board.read()
        if now != worker.seen:
            worker.seen, worker.since = now, time.monotonic()
        elif time.monotonic() - worker.since > self.settings.patience:
            os.kill(worker.pid, signal.SIGABRT)  # faulthandler then writes where it was
            time.sleep(0.3)
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            return "hang"
        return None

    def _ended(self, worker: Running, status: str, report: Callable[[Finding], None]) -> range | None:
        """Take what a worker left, and return the seeds that it has not run."""
        said: list[str] = []
        for line in worker.log.read_text(errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}"):
                entry = json.loads(line)
                if "finding" in entry:
                    self._found(Finding(**entry["finding"]), report)
                self.progress.counts.update(entry.get("counts", {}))
            else:
                said.append(line)
        worker.log.unlink()
        if not status:
            return None
        seed, _ = worker.board.read()
        about = described(seed, self.settings)
        self._found(Finding(seed, **about, fault=status, detail=" / ".join(said[-12:])[-400:]), report)
        self.progress.counts.update({"end died": 1})
        return range(seed + 1, worker.seeds.stop) if seed + 1 < worker.seeds.stop else None

    def _found(self, finding: Finding, report: Callable[[Finding], None]) -> None:
        self.progress.findings.append(finding)
        report(finding)


UNKNOWN = {"kind": "?", "op": "?", "variant": "?", "label": "?"}


def described(seed: int, settings: Settings) -> dict[str, str]:
    """What the case of a seed is, without running it; drawn in a child, because that takes memory and a library."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            case = drawn(seed, *shared(settings.arch), Space(HostArena, settings.device))
            said = {"kind": case.kind, "op": case.op, "variant": case.variant.name, "label": case.label}
            os.write(writer, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as text:
        found = text.read()
    os.waitpid(child, 0)
    return dict(json.loads(found)) if found else dict(UNKNOWN)
