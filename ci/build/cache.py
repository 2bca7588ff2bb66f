"""Runs the compile cache, sccache: in the stage by default, in a shared store where the environment names one.

``SCCACHE_BUCKET``, ``SCCACHE_REDIS_ENDPOINT``, ``SCCACHE_GHA_ENABLED`` and the like are passed on to sccache.
"""

from __future__ import annotations

import json
import socket
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ci.build.stage import Stage


class Mode(Enum):
    """Says whether the cache answers, is only filled, or is left alone."""

    ON = "on"
    FILL = "fill"
    OFF = "off"

    @classmethod
    def of(cls, options: Namespace) -> Mode:
        """Read the mode from the options of the command line."""
        if options.no_cache:
            return cls.OFF
        return cls.FILL if options.recache else cls.ON


@dataclass
class CompileCache:
    """Holds what CMake and the compilers are told of the cache, and afterwards how often it answered."""

    environment: dict[str, str]
    defines: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, int] = field(default_factory=dict)


@contextmanager
def running(stage: Stage, tools: Path, mode: Mode) -> Iterator[CompileCache]:
    """Start a server of our own for one build, and stop it after."""
    environment = stage.environment(tools)
    launchers = ("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER")
    if mode is Mode.OFF:
        yield CompileCache(
            environment, dict.fromkeys(launchers, "")
        )  # a build folder remembers those of its last build
        return
    program = str(tools / "bin" / "sccache")
    environment = {"SCCACHE_DIR": str(stage.folder / "cache"), "SCCACHE_IDLE_TIMEOUT": "0", **environment}
    environment["SCCACHE_SERVER_PORT"] = str(_free_port())
    if mode is Mode.FILL:
        environment["SCCACHE_RECACHE"] = "1"
    subprocess.run([program, "--start-server"], env=environment, capture_output=True, check=True)
    nvcc = str(stage.source / "ci" / "build" / "sccache" / "nvcc")
    cache = CompileCache(environment, dict(zip(launchers, (program, nvcc), strict=True)))
    try:
        yield cache
    finally:
        asked = [program, "--show-stats", "--stats-format=json"]
        told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False).stdout
        subprocess.run([program, "--stop-server"], env=environment, capture_output=True, check=False)
        cache.statistics = _counts(told)


def _counts(told: str) -> dict[str, int]:
    stats = json.loads(told)["stats"] if told.startswith("{") else {}
    return {
        name: sum(stats.get(key, {}).get("counts", {}).values())
        for name, key in (("hits", "cache_hits"), ("misses", "cache_misses"))
    } | {"errors": sum(stats.get("cache_errors", {}).get("counts", {}).values())}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
