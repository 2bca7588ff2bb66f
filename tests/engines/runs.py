"""Runs of engines: each in a process of its own, within a time limit, and what they told."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mla_kernels.compat import sglang_plugin, vllm_plugin

from tests.engines import spy, tiny_model

ROOT = Path(__file__).parents[2]
LENGTHS = (5, 17, 64, 33, 128, 96, 1, 77)
TOKENS, LIKELIEST = 24, 5
SECONDS = 360
"""A run takes a twentieth of this on two idle cores; SGLang compiles kernels of sparse models when it first uses them.

One that hangs ends with what it printed.
"""

MULTICAST = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "USER", "LOGNAME", *MULTICAST)
"""The only variables of a caller that a run sees: any of vLLM's, torch's or OpenMP's would change what it does.

Those of multicast say what a machine's GPUs must not be used for.
"""

APART = {
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOOPBACK_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
"""What keeps an engine to the loopback interface, to files that are there, and to one thread of the CPU."""


@dataclass(frozen=True)
class Machine:
    """Where engines run: what their processes' environments have more, and the arguments that all of them get.

    ``serve`` is the module that starts one.
    """

    variables: Mapping[str, str]
    engine: Mapping[str, Any]
    serve: str = "tests.engines.serve"


CPU = Machine(
    {"CUDA_VISIBLE_DEVICES": "", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    # Where a CPU has AMX, vLLM would choose a backend that serves bf16 only.
    {"attention_backend": "CPU_MLA", "enforce_eager": True, "kv_cache_memory_bytes": 64 << 20},
)
GPU = Machine(
    {
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # requests are greedy, and a sampler of FlashInfer would be compiled first
    },
    {
        "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
        "kv_cache_memory_bytes": 256 << 20,
        "gpu_memory_utilization": 0.1,  # of a GPU that several engines share
    },
)


@dataclass(frozen=True)
class Run:
    """How to start an engine.

    Attributes
    ----------
    machine : Machine
    dtype : str
        The engine's name of the model's type.
    plugins : str
        What ``VLLM_PLUGINS`` or ``SGLANG_PLUGINS`` lists.
    override : str
        What the plug-in's variable of the engine lists.
    factor : float
        By which every output of the package's kernel is multiplied.
    separate : bool
        Whether the engine and its worker are processes of their own, as in a server.
    model : str
        The kind of ``tiny_model``.
    lengths : tuple
        Tokens of the prompts.
    times : int
        How often the prompts are served; what is told is of the last time.
    engine : dict
        More arguments of ``vllm.LLM`` or ``sglang.Engine``.
    """

    machine: Machine = CPU
    dtype: str = "float32"
    plugins: str = f"mla_kernels,{spy.NAME}"
    override: str = ""
    factor: float = 1
    separate: bool = False
    model: tiny_model.Kind = "dense"
    lengths: tuple[int, ...] = LENGTHS
    times: int = 1
    engine: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """What a run gave: its exit status, what it printed, its requests, and the launches of the package's kernel.

    ``hits`` counts tokens of prompts that were in the cache. The two switches are what the engine made of the options
    of these names.
    """

    status: int
    printed: str
    requests: list[dict[str, Any]]
    launches: list[str]
    preemptions: int = 0
    accepted: int = 0
    hits: int = 0
    page_size: int = 0
    chunked_prefill: bool = False
    prefix_caching: bool = False

    @property
    def tokens(self) -> list[list[int]]:
        """The tokens of each request."""
        return [each["tokens"] for each in self.requests]


def prompts(lengths: tuple[int, ...]) -> list[list[int]]:
    """The same prompts for every run of these lengths."""
    source = random.Random(0)
    return [[source.randrange(2, tiny_model.VOCABULARY) for _ in range(length)] for length in lengths]


def start(run: Run, folder: Path) -> Told:
    """Serve the prompts by an engine, and return what it told."""
    model = tiny_model.write(folder / "model", run.model)
    asked, told, log = (folder / name for name in ("asked.json", "told.json", "launches.txt"))
    engine = {"model": str(model), "dtype": run.dtype, "max_model_len": 512, "max_num_seqs": len(run.lengths)}
    request = {
        "engine": engine | run.machine.engine | run.engine,
        "prompts": prompts(run.lengths),
        "times": run.times,
        "max_tokens": TOKENS,
        "logprobs": LIKELIEST,
    }
    asked.write_text(json.dumps(request), encoding="utf-8")
    log.touch()
    command = [sys.executable, "-m", run.machine.serve, str(asked), str(told)]
    status, printed = alone(command, environment(run, folder, log), folder / "printed.txt")
    assert status is not None, f"{run} took more than {SECONDS} s\n{printed}"
    launches = log.read_text(encoding="utf-8").splitlines()
    answers = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {"requests": []}
    return Told(status, printed, launches=launches, **answers)


def alone(command: list[str], variables: dict[str, str], output: Path) -> tuple[int | None, str]:
    """Run a command, and end it with every process that it started.

    Returns
    -------
    status : int or None
        None where it took longer than ``SECONDS``.
    printed : str
    """
    # What an engine that is killed leaves running would hold a pipe open: a file ends with its last line.
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        status = None
        try:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return status, output.read_text(encoding="utf-8", errors="replace")


def environment(run: Run, folder: Path, log: Path) -> dict[str, str]:
    """The variables of a run."""
    plugins = spy.install(folder / "plugins")
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "HOME": str(folder.parent),  # caches and settings of vLLM and torch, which runs share
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(plugins)]),
        "PYTHONUNBUFFERED": "1",
        "VLLM_PLUGINS": run.plugins,
        "SGLANG_PLUGINS": run.plugins or "none",  # an empty list would be all
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(run.separate)),
        **APART,
        **run.machine.variables,
        vllm_plugin.VARIABLE: run.override,
        sglang_plugin.VARIABLE: run.override,
        spy.LOG: str(log),
        spy.FACTOR: str(run.factor),
    }
