"""Goes through mutants: several scratch copies at a time, each of which builds and tests one mutant after the other."""

from __future__ import annotations

import queue
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.build import cache
from ci.build.stage import Stage, staged
from ci.mutants import gpu
from ci.mutants.mutant import Mutant
from ci.mutants.results import Result, Results, sources_of
from ci.mutants.workspace import BuildError, Workspace
from ci.rows import rows

CONTROL_SECONDS = 1800
QUICKLY = {"CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG"}
"""Most of a build's time is optimization, which mutants do without."""
KILLED = ("killed", "timed out")


@dataclass(frozen=True)
class Builds:
    """The stage, and what builds see of the environment and of CMake while the compile cache runs."""

    stage: Stage
    environment: Mapping[str, str]
    defines: Mapping[str, str]

    def workspace(self, name: str) -> Workspace:
        """Make a scratch copy of the sources in the stage."""
        return Workspace(self.stage.folder / "mutants" / name, self.stage.source, self.environment)


def run(listed: Sequence[Mutant], jobs: int) -> int:
    """Run the tests of each mutant that has no result yet; 0 where none survives that should not."""
    results = Results()
    with _builds("cpu", QUICKLY) as builds:
        sources = sources_of(builds.stage.source)
        left = results.open(listed, sources)
        print(f"{len(listed)} mutants, {len(listed) - len(left)} of them have results for these sources", flush=True)
        if left:
            _run(left, jobs, builds, results, sources)
    return _summary(listed, results)


def build_only(listed: Sequence[Mutant], payload: str, out: Path) -> int:
    """Build the library of each mutant of a GPU payload into a folder of ``out``; 0 where all were built."""
    with _builds(payload, {}) as builds:
        return 0 if gpu.build(listed, builds.workspace(payload), builds.defines, out.resolve()) else 1


@contextmanager
def _builds(payload: str, settings: Mapping[str, str]) -> Iterator[Builds]:
    (row,) = (row for row in rows() if row.payload == payload)
    with staged() as stage:
        tools = stage.tools(row)
        with cache.running(stage, tools, cache.Mode.ON) as compile_cache:
            python = {
                "Python_EXECUTABLE": str(tools / "bin" / "python"),
                "Python_INCLUDE_DIR": sysconfig.get_path("include"),
            }
            yield Builds(stage, compile_cache.environment, {**python, **compile_cache.defines, **settings})


def _run(left: Sequence[Mutant], jobs: int, builds: Builds, results: Results, sources: str) -> None:
    free: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
    workspaces = [builds.workspace(str(number)) for number in range(min(jobs, len(left)))]
    for workspace in workspaces:
        workspace.make("cpu", builds.defines)
        free.put(workspace)
    _control(workspaces, left)

    def one(mutant: Mutant) -> None:
        workspace = free.get()
        try:
            result = judged(mutant, workspace, builds.defines, sources)
        finally:
            free.put(workspace)
        results.add(mutant.name, result)
        print(f"{mutant.name}: {result.outcome} {result.by} ({result.seconds:.0f} s)", flush=True)

    # The libraries stay as they are while mutants that are not compiled go first.
    with ThreadPoolExecutor(len(workspaces)) as pool:
        list(pool.map(one, sorted(left, key=lambda mutant: mutant.compiled)))


def _control(workspaces: Sequence[Workspace], left: Sequence[Mutant]) -> None:
    """Require that the tests pass without any mutant: those of a folder in one process, as mutants run them."""
    folders: dict[str, list[str]] = {}
    for tests in dict.fromkeys(mutant.tests for mutant in left if mutant.tests != ("build",)):
        if any(test.startswith("-") for test in tests):
            folders[" ".join(tests)] = list(tests)
            continue
        for test in tests:
            path = test.partition("::")[0]
            group = folders.setdefault(path.rpartition("/")[0] if path.endswith(".py") else path, [])
            group += [test] if test not in group else []
    free: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
    for workspace in workspaces:
        free.put(workspace)

    def one(tests: Sequence[str]) -> str:
        workspace = free.get()
        try:
            done = workspace.test(tests, CONTROL_SECONDS, "--maxfail=30")
        finally:
            free.put(workspace)
        return "" if done.status == 0 else f"exit status {done.status}:\n{done.output[-4000:]}"

    with ThreadPoolExecutor(len(workspaces)) as pool:
        if failed := [said for said in pool.map(one, folders.values()) if said]:
            raise SystemExit("\n".join(["these tests fail without any mutant:", *failed]))


def judged(mutant: Mutant, workspace: Workspace, defines: Mapping[str, str], sources: str) -> Result:
    """Apply a mutant, build it, run its tests, and leave the workspace as it was."""
    start = time.monotonic()

    def result(outcome: str, by: str = "") -> Result:
        return Result(outcome, by, round(time.monotonic() - start, 1), mutant.sha256, sources)

    if (workspace.source / mutant.file).read_text(encoding="utf-8").count(mutant.before) != 1:
        return result("not applied")
    try:
        with workspace.mutated(mutant):
            try:
                if mutant.compiled:
                    workspace.make("cpu", defines)
                workspace.copy_python()
            except BuildError:
                return result("killed", "the compiler") if mutant.tests == ("build",) else result("not built")
            if mutant.tests == ("build",):
                return result("survived")
            done = workspace.test(mutant.tests, mutant.seconds)
    finally:
        if mutant.compiled:
            workspace.make("cpu", defines)
        workspace.copy_python()
    if done.status is None:
        return result("timed out", f"the limit of {mutant.seconds} s")
    return result("killed", done.failed or f"exit status {done.status}") if done.status else result("survived")


def _summary(listed: Sequence[Mutant], results: Results) -> int:
    outcomes = {mutant: results.by_name[mutant.name].outcome for mutant in listed}
    killed = sum(outcome in KILLED for outcome in outcomes.values())
    unexpected = [mutant for mutant, outcome in outcomes.items() if outcome not in KILLED and not mutant.survives]
    print(f"{killed} of {len(listed)} mutants were killed")
    for mutant, outcome in outcomes.items():
        if outcome not in KILLED:
            print(f"{mutant.name}: {outcome}; {mutant.survives or mutant.why}")
    return 1 if unexpected else 0
