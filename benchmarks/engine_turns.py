"""Decoding steps inside an engine, by its attention backends and by ours, in turns; each engine's command is its own.

Each backend of a model is an engine in processes of its own, as a server has it, with CUDA graphs of decoding steps.
The engines of a model start at once and bring their prompts into the cache. Then they take turns: one serves a batch,
while the others wait. Models have random weights and no experts, so that little but attention is in a step.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import requires, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pages import engine_turns as page
from tests.engines import tiny_model

PROMPT, STEPS = 8193, 64
"""Tokens of a prompt, of which all but the last are whole pages of the cache, and steps of a batch."""
LONGEST = PROMPT + STEPS + 64
VOCABULARY, LAYERS = 4096, 24
SECONDS, LAST = 360, 40
"""Within which an engine must be ready, or serve a batch, and the last lines of one that does not.

SGLang compiles kernels of sparse models for minutes when it first uses them.
"""


@dataclass(frozen=True)
class Model:
    """One rank's share of a model.

    Attributes
    ----------
    name : str
    heads : int
    batches : tuple of int
        How many requests decode at a time, the most last.
    backends : tuple of str
        Ours first.
    cache : str
        The engine's name of the format of the cache.
    sparse : bool
        Whether an indexer selects tokens.
    """

    name: str
    heads: int
    batches: tuple[int, ...]
    backends: tuple[str, ...]
    cache: str = "auto"
    sparse: bool = False

    def config(self) -> dict[str, Any]:
        """``config.json`` of a model of DeepSeek's widths."""
        return (
            tiny_model.SHAPE
            | (tiny_model.V32 | {"index_topk": 2048} if self.sparse else tiny_model.V3)
            | {
                "torch_dtype": "bfloat16",
                "vocab_size": VOCABULARY,
                "hidden_size": 2048,
                "intermediate_size": 2048,
                "moe_intermediate_size": 2048,
                "num_hidden_layers": LAYERS,
                "first_k_dense_replace": LAYERS,
                "num_nextn_predict_layers": 0,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.heads,
                "q_lora_rank": 1536,
                "max_position_embeddings": 16384,
                "rope_scaling": None,
                "initializer_range": 0.02,
            }
        )


Steps = Callable[[int, int], float]
"""Serves a batch for some steps, and returns milliseconds of a step."""
Start = Callable[[Model, str, Path], Steps]
"""Starts an engine of a model, by a backend and the folder of the model's config."""


@dataclass(frozen=True)
class Benchmark:
    """The benchmark of one engine.

    Attributes
    ----------
    engine : str
        The name of its package.
    models : tuple of Model
    start : Start
    """

    engine: str
    models: tuple[Model, ...]
    start: Start


class Engine:
    """An engine in a process of its own, which serves a batch when it is told to."""

    def __init__(self, benchmark: Benchmark, model: Model, backend: str, folder: Path) -> None:
        self.model, self.backend = model, backend
        self.printed = printed(folder, backend)
        self.printed.touch()
        self._end, end = get_context("spawn").Pipe()
        arguments = (end, benchmark.start, model, backend, folder)
        self._process = get_context("spawn").Process(target=serve, args=arguments)
        self._process.start()
        end.close()

    def ready(self) -> None:
        """Wait until its prompts are in the cache."""
        self._told()

    def step(self, batch: int) -> float:
        """Milliseconds of a decoding step of a batch."""
        return self._told(batch)

    def _told(self, batch: int | None = None) -> float:
        try:
            if batch is not None:
                self._end.send(batch)
            if self._end.poll(SECONDS):
                return float(self._end.recv())
        except (EOFError, OSError):  # it ended
            pass
        last = "\n".join(self.printed.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST:])
        raise RuntimeError(f"{self.model.name}, {self.backend}: it ended, or took more than {SECONDS} s\n{last}")

    def end(self) -> None:
        """End every process of it."""
        self._end.close()
        with suppress(ProcessLookupError, TypeError):  # it is gone, or has no group of its own yet
            os.killpg(self._process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        self._process.kill()
        self._process.join()


def printed(folder: Path, backend: str) -> Path:
    """The file that an engine prints to."""
    return folder / f"{backend}.txt"


def serve(end: Connection, start: Start, model: Model, backend: str, folder: Path) -> None:
    """What the process of an engine does; the engine starts more processes, which are of its group."""
    os.setsid()
    os.dup2(os.open(printed(folder, backend), os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(1, 2)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    weights = folder / backend
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(model.config()), encoding="utf-8")
    steps = start(model, backend, weights)
    end.send(steps(model.batches[-1], 1))
    while True:
        try:
            batch = end.recv()
        except EOFError:
            return
        end.send(steps(batch, STEPS))


def prompts(model: Model) -> list[list[int]]:
    """As many prompts as a model's largest batch has."""
    count = model.batches[-1]
    return [[(7 * token + 13 * prompt) % (VOCABULARY - 2) + 2 for token in range(PROMPT)] for prompt in range(count)]


def measure(benchmark: Benchmark, model: Model, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of a step of each backend, a row a batch; each is the median of turns."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        engines: list[Engine] = []
        try:
            for backend in model.backends:
                engines.append(Engine(benchmark, model, backend, Path(folder)))
            for engine in engines:
                engine.ready()
            for batch in model.batches:
                turns = [{each.backend: each.step(batch) for each in engines} for _ in range(repeats)]
                times = {name: sorted(turn[name] for turn in turns) for name in model.backends}
                row = {"model": model.name, "cache": model.cache, "batch": batch, "times": times}
                rows.append(row | {"ms": {name: median(each) for name, each in times.items()}})
        finally:
            for engine in engines:
                engine.end()
    return rows


def run(benchmark: Benchmark, path: Path, models: Sequence[Model], repeats: int) -> int:
    """Measure, and write what was measured; 1 where an engine did not serve.

    What the file has of other models stays, and of a model that is measured again until it has served.

    Raises
    ------
    ValueError
        What the file has is of another machine, engine, library or plug-in.
    """
    from mla_kernels.devices import current_arch

    from benchmarks.ops import cuda, run_cuda

    document: dict[str, Any] = {
        "command": f"python -m benchmarks.{benchmark.engine}_engine JSON --repeats {repeats}",
        "machine": cuda.machine(),
        "payload": run_cuda.payload(current_arch()),
        "plug-in": plugin_sha256(),
        "engine": {"name": benchmark.engine, "version": version(benchmark.engine), "asks for": asks_for(benchmark)},
        "layers": LAYERS,
        "prompt": PROMPT,
        "steps": STEPS,
    }
    kept, failed = known(path, document), False
    for model in models:
        try:
            kept[model.name] = measure(benchmark, model, repeats)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            failed = True
        print(time.strftime("%T"), model.name, [row["ms"] for row in kept.get(model.name, [])], flush=True)
        document["rows"] = [row for each in benchmark.models for row in kept.get(each.name, [])]
        document["left out"] = [each.name for each in benchmark.models if each.name not in kept]
        path.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    return int(failed)


def asks_for(benchmark: Benchmark) -> str | None:
    """The release of torch that the engine's package asks for, where it is one."""
    return next((each for each in requires(benchmark.engine) or () if each.startswith("torch==")), None)


def plugin_sha256() -> str:
    """The digest of our code for engines, which may be newer than the library."""
    from mla_kernels import compat

    digest = hashlib.sha256()
    for path in sorted(Path(compat.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def known(path: Path, document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a file, by their models; none where there is no file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    for key in ("machine", "payload", "plug-in", "engine", "layers", "prompt", "steps"):
        if alike(found.get(key)) != alike(document[key]):
            raise ValueError(f"{path}: {key} is {found.get(key)}, and now {document[key]}; measure into another file")
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        rows.setdefault(row["model"], []).append(row)
    return rows


def alike(value: Any) -> Any:
    """A machine without what changes from one hour to the next."""
    return {k: v for k, v in value.items() if k not in {"date", "sm_clock_mhz"}} if isinstance(value, dict) else value


def main(benchmark: Benchmark, about: str | None, arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of what was measured."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark.engine}_engine", description=about)
    parser.add_argument("data", type=Path, metavar="JSON", help="what it has of other models stays")
    parser.add_argument("--repeats", type=int, default=15)
    names = [model.name for model in benchmark.models]
    parser.add_argument("--model", action="append", help="one of them, or more; by default all", choices=names)
    parser.add_argument("--page", type=Path, help="write the page of JSON, and measure nothing")
    options = parser.parse_args(arguments)
    if options.page is None:
        models = [model for model in benchmark.models if model.name in (options.model or names)]
        return run(benchmark, options.data, models, options.repeats)
    document = json.loads(options.data.read_text(encoding="utf-8"))
    options.page.write_text(page.page(document, data=f"data/{options.data.name}"), encoding="utf-8")
    return 0
