"""Runs of engines: each in a process of its own, within a time limit, and what they told."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mla_kernels.compat.vllm_plugin import VARIABLE

from tests.engines import spy, tiny_model

ROOT = Path(__file__).parents[2]
LENGTHS = (5, 17, 64, 33, 128, 96, 1, 77)
TOKENS, LIKELIEST = 24, 5
SECONDS = 180
"""A run takes a fraction of this; one that hangs ends with what it printed."""


@dataclass(frozen=True)
class Run:
    """How to start an engine.

    Attributes
    ----------
    plugins : str
        What ``VLLM_PLUGINS`` lists.
    override : str
        What the plug-in's variable lists.
    factor : float
        By which every output of the package's kernel is multiplied.
    separate : bool
        Whether the engine and its worker are processes of their own, as in a server.
    predicts : bool
        Whether the model is V3's, with a layer for speculative decoding.
    engine : dict
        More arguments of ``vllm.LLM``.
    """

    dtype: str = "float32"
    plugins: str = f"mla_kernels,{spy.NAME}"
    override: str = ""
    factor: float = 1
    separate: bool = False
    predicts: bool = False
    engine: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """What a run gave: its exit status, what it printed, its requests, and the launches of the package's kernel."""

    status: int
    printed: str
    requests: list[dict[str, Any]]
    launches: list[str]
    preemptions: int = 0
    accepted: int = 0

    @property
    def tokens(self) -> list[list[int]]:
        """The tokens of each request."""
        return [each["tokens"] for each in self.requests]


def prompts() -> list[list[int]]:
    """The prompts of every run."""
    source = random.Random(0)
    return [[source.randrange(2, tiny_model.VOCABULARY) for _ in range(length)] for length in LENGTHS]


def start(run: Run, folder: Path) -> Told:
    """Serve the prompts by an engine, and return what it told."""
    model = tiny_model.write(folder / "model", predicts=run.predicts)
    asked, told, log = (folder / name for name in ("asked.json", "told.json", "launches.txt"))
    engine = {"model": str(model), "dtype": run.dtype, "max_model_len": 512, "max_num_seqs": len(LENGTHS)}
    # Where a CPU has AMX, vLLM would choose a backend that serves bf16 only.
    engine |= {"attention_backend": "CPU_MLA", "enforce_eager": True, "kv_cache_memory_bytes": 64 << 20} | run.engine
    request = {"engine": engine, "prompts": prompts(), "max_tokens": TOKENS, "logprobs": LIKELIEST}
    asked.write_text(json.dumps(request), encoding="utf-8")
    log.touch()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.engines.serve", str(asked), str(told)],
            cwd=ROOT, env=environment(run, spy.install(folder / "plugins"), log), timeout=SECONDS, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        printed = (expired.stdout or b"").decode(errors="replace")
        raise AssertionError(f"{run} took more than {SECONDS} s\n{printed}") from expired
    launches = log.read_text(encoding="utf-8").splitlines()
    answers = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {"requests": []}
    return Told(done.returncode, done.stdout, launches=launches, **answers)


def environment(run: Run, plugins: Path, log: Path) -> dict[str, str]:
    """The variables of a run; nothing is fetched."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(plugins)]),
        "VLLM_PLUGINS": run.plugins,
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(run.separate)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        VARIABLE: run.override,
        spy.LOG: str(log),
        spy.FACTOR: str(run.factor),
    }
