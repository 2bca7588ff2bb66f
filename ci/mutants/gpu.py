"""Mutants of GPU payloads: built on a machine with a compiler, run on a machine with the GPU.

Running needs pytest, the wheels of the project and a clone, but no compiler and none of the packages of a build.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ci.mutants.mutant import ROOT, Mutant
from ci.mutants.results import Result, sources_of
from ci.mutants.workspace import BuildError, Workspace, pytest

STATED = "mutant.json"
"""What is written beside each library, for the machine that runs it."""


def build(listed: Sequence[Mutant], workspace: Workspace, defines: Mapping[str, str], out: Path) -> bool:
    """Build the payload of each mutant into ``<out>/<its name>``; what is there for the same sources stays."""
    sources = sources_of(workspace.source)
    built = True
    for mutant in listed:
        folder = out / mutant.name
        wanted = {"mutant": asdict(mutant) | {"sha256": mutant.sha256}, "sources": sources}
        if _stated(folder) == json.loads(json.dumps(wanted)):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        try:
            workspace.make_with(mutant, defines, folder)
        except BuildError as error:
            (folder / "build.log").write_text(str(error), encoding="utf-8")
            print(f"{mutant.name}: not built; see {folder / 'build.log'}")
            built = False
            continue
        (folder / STATED).write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
        print(f"{mutant.name}: built in {time.monotonic() - start:.0f} s", flush=True)
    return built


def run(folder: Path, path: Path) -> bool:
    """Run the tests of each mutant of a folder against its library, and without it first; write what was found."""
    found: dict[str, Result] = {}
    for stated in sorted(folder.glob(f"*/{STATED}")):
        document = json.loads(stated.read_text(encoding="utf-8"))
        mutant: dict[str, Any] = document["mutant"]
        control = pytest(ROOT, None, mutant["tests"], mutant["seconds"])
        if control.status != 0:
            raise SystemExit(f"{mutant['name']}: its tests fail without it:\n{control.output[-4000:]}")
        start = time.monotonic()
        done = pytest(ROOT, stated.parent, mutant["tests"], mutant["seconds"])
        outcome = "timed out" if done.status is None else "killed" if done.status else "survived"
        seconds = round(time.monotonic() - start, 1)
        found[mutant["name"]] = Result(outcome, done.failed, seconds, mutant["sha256"], document["sources"])
        print(f"{mutant['name']}: {outcome} {done.failed}", flush=True)
        if outcome == "killed" and not done.failed:
            print(done.output[-2000:])
        text = json.dumps({name: asdict(result) for name, result in found.items()}, indent=1)
        path.write_text(f"{text}\n", encoding="utf-8")
    return all(result.outcome in ("killed", "timed out") for result in found.values())


def _stated(folder: Path) -> object:
    path = folder / STATED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
