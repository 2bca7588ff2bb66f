"""The fuzzer's command line: run cases, go on with a run that was killed, or replay one case."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.fuzz.evidence import facts, library, written
from tests.fuzz.supervisor import Progress, Settings, Supervisor
from tests.fuzz.worker import BLOCK, Finding, Worker, environment

ROOT = Path(__file__).parents[2]
ISAS = ("amx_bf16", "avx512_bf16", "avx512", "avx2", "baseline")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser("nox -s fuzz --", description="Random calls of every op; each fault has a seed.")
    parser.add_argument("--cases", type=int, default=10_000, help="how many; those that are done already count")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="workers at a time; 0 runs all in one process"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--arch", default="", help="of the kernels; by default that of the device")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this case alone, and say what came of it")
    parser.add_argument("--from-block", action="store_true", help="replay what its worker ran before it, too")
    parser.add_argument("--out", type=Path, help="where the evidence goes; by default build/fuzz/<device>.json")
    parser.add_argument("--fresh", action="store_true", help="forget an earlier run")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which a case hangs")
    parser.add_argument("--plain", action="store_true", help="without unmapped pages, as compute-sanitizer wants")
    return parser.parse_args(arguments)


def supported() -> tuple[str, ...]:
    """The instruction sets that the library can use here, each asked in a process of its own."""
    path, _ = library("cpu")
    if b"mla_cpu_isa" not in path.read_bytes():
        return ("", "baseline")  # a library from before it could tell
    found = []
    for isa in ISAS:
        child = os.fork()
        if child == 0:
            os.environ["MLA_KERNELS_CPU_ISA"] = isa
            ask = ctypes.CDLL(str(path)).mla_cpu_isa
            ask.restype = ctypes.c_char_p
            os._exit(0 if ask() == isa.encode() else 1)
        if os.waitpid(child, 0)[1] == 0:
            found.append(isa)
    return tuple(found)


def replay_line(finding: Finding, options: argparse.Namespace) -> str:
    """The command that runs a finding's case again."""
    device = "" if options.device == "cpu" else f" --device {options.device}"
    return f"nox -s fuzz -- --replay {finding.seed}{device}"


def replay(options: argparse.Namespace, settings: Settings) -> int:
    """Run one case in this process, so that a debugger can be there."""
    os.environ |= environment(options.replay, settings.isas)
    begin = options.replay // BLOCK * BLOCK if options.from_block else options.replay
    worker = Worker(settings.device, settings.arch, settings.plain)
    for seed in range(begin, options.replay):
        worker.run(seed)
    about, outcome = worker.run(options.replay)
    isa, threads = os.environ["MLA_KERNELS_CPU_ISA"], os.environ["MLA_KERNELS_CPU_THREADS"]
    print(f"{about['kind']} {about['op']}: {about['label']} ({about['variant']}; {isa}, {threads} threads)")
    print(f"{outcome.end}: {outcome.fault or 'as it should be'}{': ' if outcome.detail else ''}{outcome.detail}")
    return 1 if outcome.fault else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where there is a finding."""
    options = parsed(arguments)
    torch.set_num_threads(1)
    arch = options.arch or ("cpu" if options.device == "cpu" else "sm90a")
    settings = Settings(
        options.device,
        arch,
        options.jobs,
        supported() if options.device == "cpu" else ("",),
        options.patience,
        options.plain,
    )
    if options.replay is not None:
        return replay(options, settings)
    out = options.out or ROOT / "build" / "fuzz" / f"{options.device}.json"
    path = out.with_suffix(".progress")
    if options.fresh:
        path.unlink(missing_ok=True)
    seeds = range(options.first, options.first + options.cases)
    progress = Progress.read(path, facts(options.device, settings))
    sorts = Counter(finding.sort for finding in progress.findings)
    if progress.blocks:
        print(f"goes on: {len(progress.blocks)} blocks of {BLOCK} are done, {len(progress.findings)} findings so far")

    def report(finding: Finding) -> None:
        sorts[finding.sort] += 1
        if sorts[finding.sort] == 1:
            print(f"{finding.fault}: {finding.op}, {finding.label or finding.kind}: {finding.detail}", flush=True)
            print(f"    {replay_line(finding, options)}", flush=True)

    supervisor = Supervisor(settings, progress, path)
    (supervisor.run if options.jobs else supervisor.run_here)(seeds, report)
    evidence = written(progress, seeds)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(evidence, indent=1) + "\n")
    print(f"{evidence['cases']} cases, {progress.seconds:.0f} s, {len(progress.findings)} findings, {len(sorts)} sorts")
    return 1 if progress.findings else 0
