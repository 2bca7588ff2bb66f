"""Builds wheels in the stage: ``python -m ci.build [cpu|sm90|...|sdist] [--shard 1/3 | --merge] [--fresh]``."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ci.build import cache, report, shards
from ci.build.stage import Stage, staged
from ci.rows import ROOT, Row, rows

DIST = ROOT / "dist"
GLIBC = "2.28"
"""The glibc of manylinux_2_28, the tag of every wheel."""


def main() -> None:
    """Build what the arguments name; the core wheel if they name nothing."""
    options = _parser().parse_args()
    by_name = {row.payload: row for row in rows()}
    for name in options.names:
        if name not in (*by_name, "sdist"):
            raise SystemExit(f"no wheel {name!r}; there are {', '.join(by_name)}, and sdist")
    with staged() as stage:
        for name in options.names or ["cpu"]:
            if name == "sdist":
                _sdist(stage, by_name["cpu"])
            elif options.shard or options.units or options.one_of_each_op:
                _units(stage, by_name[name], options)
            else:
                _wheel(stage, by_name[name], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nox -s wheels --", description=__doc__)
    parser.add_argument("names", nargs="*", help="payloads, or sdist; by default cpu, the core wheel")
    parser.add_argument("--fresh", action="store_true", help="build from nothing but the compile cache")
    parser.add_argument("--no-cache", action="store_true", help="compile without the compile cache")
    parser.add_argument("--recache", action="store_true", help="compile everything, and keep it in the compile cache")
    parser.add_argument(
        "--shard", type=shards.Shard.parse, metavar="I/N", help="compile the I-th part of the units only"
    )
    parser.add_argument(
        "--units", type=lambda text: text.split(","), metavar="NAME,NAME", help="compile these units only"
    )
    parser.add_argument("--one-of-each-op", action="store_true", help="compile one unit of each op only")
    parser.add_argument("--merge", action="store_true", help="link the objects of all shards instead of compiling")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="for CMake")
    parser.add_argument("--build-type", default="Release", help="CMake's; anything but Release keeps its symbols")
    parser.add_argument("--name", help="of the build folder; by default the payload's")
    parser.add_argument("--out", type=Path, default=DIST, help="where wheels, shards and reports go")
    return parser


def _wheel(stage: Stage, row: Row, options: argparse.Namespace) -> None:
    tools = stage.tools(row)
    name = options.name or row.payload
    folder = stage.build(name)
    defines = {"MLA_GLIBC": GLIBC, "MLA_GLIBC_STUBS": str(stage.folder / "glibc")}
    if options.merge:
        defines["MLA_OBJECTS"] = str(shards.objects(stage, row, options.out))
        folder = stage.build(f"{name}-merged")
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    defines |= dict(pair.split("=", 1) for pair in options.define)
    raw = stage.folder / "wheels" / name
    shutil.rmtree(raw, ignore_errors=True)
    with cache.running(stage, tools, cache.Mode.of(options)) as compile_cache, report.watched(row, folder) as watched:
        settings = {
            "build-dir": str(folder),
            "cmake.build-type": options.build_type,
            "install.strip": str(options.build_type == "Release").lower(),
            **{f"cmake.define.{define}": value for define, value in (defines | compile_cache.defines).items()},
        }
        command = [tools / "bin" / "python", "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
        command += [f"--outdir={raw}", *(f"-C{setting}={value}" for setting, value in settings.items())]
        _run([*command, stage.source / row.project], compile_cache.environment)
    (built,) = raw.glob("*.whl")
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{row.package}-*.whl"):
        old.unlink()
    if defines["MLA_GLIBC"]:
        tag = f"manylinux_{defines['MLA_GLIBC'].replace('.', '_')}_{platform.machine()}"
        repair = [tools / "bin" / "auditwheel", "repair", "--only-plat", f"--plat={tag}", f"--wheel-dir={out}"]
        _run([*repair, built], compile_cache.environment)
    else:
        shutil.copy(built, out)
    (wheel,) = out.glob(f"{row.package}-*.whl")
    found = report.Report(
        payload=row.payload,
        commit=stage.label,
        cores=os.cpu_count() or 1,
        seconds=round(watched.seconds, 1),
        wheel=wheel.name,
        wheel_bytes=wheel.stat().st_size,
        cache=compile_cache.statistics,
        units=report.compiled_units(row, stage.source, folder, watched),
    )
    found.save(out / f"{name}.build.json")
    found.show()


def _units(stage: Stage, row: Row, options: argparse.Namespace) -> None:
    """Compile some units of a payload; their objects go to ``<out>/shards``."""
    tools = stage.tools(row)
    names = options.units or (options.shard.units if options.shard else shards.one_of_each_op)(row, stage.source)
    folder = stage.build(f"{row.payload}-units")
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    with cache.running(stage, tools, cache.Mode.of(options)) as compile_cache:
        defines = {
            "CMAKE_BUILD_TYPE": "Release",
            "MLA_PAYLOAD": "" if row.core else row.payload,
            "MLA_UNITS": ";".join(names),
            "Python_EXECUTABLE": str(tools / "bin" / "python"),
            **compile_cache.defines,
        }
        cmake = str(tools / "bin" / "cmake")
        configure = [cmake, "-S", stage.source / "package", "-B", folder, "-G", "Ninja"]
        start = time.monotonic()
        _run([*configure, *(f"-D{name}={value}" for name, value in defines.items())], compile_cache.environment)
        _run([cmake, "--build", folder, "--target", f"mla_{row.payload}_units"], compile_cache.environment)
        print(f"{len(names)} units of {row.payload} in {time.monotonic() - start:.0f} s")
    shard: shards.Shard | None = options.shard
    named = f"{row.payload}-{shard.index}-of-{shard.count}" if shard else f"{row.payload}-units"
    shards.collect(row, names, folder, options.out / "shards" / named)
    if shard:
        shards.save(shards.Part(shard, tuple(names), stage.label), options.out / "shards" / named)


def _sdist(stage: Stage, row: Row) -> None:
    tools = stage.tools(row)
    for old in DIST.glob("mla_kernels-*.tar.gz"):
        old.unlink()
    command = [tools / "bin" / "python", "-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check"]
    _run([*command, f"--outdir={DIST}", stage.source], stage.environment(tools))


def _run(command: Sequence[object], environment: dict[str, str]) -> None:
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\n{shlex.join(map(str, command))} failed")


if __name__ == "__main__":
    main()
