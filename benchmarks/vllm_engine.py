"""A decoding step inside vLLM, by its attention backends and by ours: ``python -m benchmarks.vllm_engine JSON``.

Each backend of a model is an engine in processes of its own, as a server has it, with CUDA graphs of decoding steps.
The engines of a model start at once and bring their prompts into the cache. Then they take turns: one serves a batch,
while the others wait. A step is the time between the first and the last token of a batch, over the steps between them,
by the clock of the engine. Models have random weights and no experts, so that little but attention is in a step. It
needs vLLM, which is not installed with this package.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import requires, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pages import vllm_engine as page
from tests.engines import tiny_model

PROMPT, STEPS = 8193, 64
"""Tokens of a prompt, of which all but the last are whole blocks of the cache, and steps of a batch."""
VOCABULARY, LAYERS = 4096, 24
DENSE = ("MLA_KERNELS", "FLASH_ATTN_MLA", "FLASHMLA")
SPARSE = ("MLA_KERNELS_SPARSE", "FLASHMLA_SPARSE")
SECONDS, LAST = 180, 40
"""Within which an engine must be ready, or serve a batch, and the last lines of one that does not."""


@dataclass(frozen=True)
class Model:
    """One rank's share of a model.

    Attributes
    ----------
    name : str
    heads : int
    cache : str
        vLLM's name of the format of the cache.
    batches : tuple of int
        How many requests decode at a time, the most last.
    backends : tuple of str
        Ours first.
    """

    name: str
    heads: int
    cache: str
    batches: tuple[int, ...]
    backends: tuple[str, ...]

    @property
    def sparse(self) -> bool:
        """Whether an indexer selects tokens."""
        return self.backends == SPARSE

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


MODELS = (
    Model("dense, 128 heads", 128, "auto", (1, 16), DENSE),
    Model("dense, 16 heads", 16, "auto", (1, 64), DENSE),
    Model("sparse, 128 heads", 128, "fp8_ds_mla", (1, 16), SPARSE),
    Model("sparse, 16 heads", 16, "fp8_ds_mla", (1, 64), SPARSE),
)
"""All heads of DeepSeek V3 and V3.2 on one GPU, and the share of one of eight."""


class Engine:
    """An engine in a process of its own, which serves a batch when it is told to."""

    def __init__(self, model: Model, backend: str, folder: Path) -> None:
        self.model, self.backend = model, backend
        self.printed = folder / f"{model.heads}_{backend}.txt"
        self.printed.touch()
        self._end, end = get_context("spawn").Pipe()
        arguments = (end, model, backend, folder, self.printed)
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
        """Let it go, and end every process of it that is left."""
        self._end.close()
        self._process.join(20)
        with suppress(ProcessLookupError, TypeError):  # it is gone, or never was
            os.killpg(self._process.pid, signal.SIGKILL)  # type: ignore[arg-type]


def serve(end: Connection, model: Model, backend: str, folder: Path, printed: Path) -> None:
    """What the process of an engine does, whose output goes to a file; vLLM starts more, which are of its group."""
    os.setsid()
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(1, 2)
    os.environ |= {
        "VLLM_PLUGINS": "mla_kernels" if backend.startswith("MLA_KERNELS") else "",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # requests are greedy
        "OMP_NUM_THREADS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import LLM, SamplingParams

    weights = folder / f"{model.heads}_{backend}"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(model.config()), encoding="utf-8")
    most, longest = model.batches[-1], PROMPT + STEPS + 64
    row = 656 + 132 if model.sparse else 1152  # bytes of a token in a layer, with those of the indexer
    engine = LLM(
        str(weights), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", seed=0, disable_log_stats=False,
        attention_backend=backend, kv_cache_dtype=model.cache, block_size=64, max_model_len=longest,
        kv_cache_memory_bytes=(most + 2) * longest * row * LAYERS, gpu_memory_utilization=0.02,
        max_num_seqs=most, max_num_batched_tokens=8192,
        compilation_config={"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": model.batches},
    )  # fmt: skip
    source = [[(7 * token + 13 * prompt) % (VOCABULARY - 2) + 2 for token in range(PROMPT)] for prompt in range(most)]
    prompts = [{"prompt_token_ids": tokens} for tokens in source]

    def steps(batch: int, count: int) -> float:
        sampling = SamplingParams(temperature=0, max_tokens=count + 1, ignore_eos=True, detokenize=False)
        outputs = engine.generate(prompts[:batch], sampling, use_tqdm=False)
        first, last = (
            max(getattr(each.metrics, name) for each in outputs) for name in ("first_token_ts", "last_token_ts")
        )
        return float((last - first) / count * 1e3)

    end.send(steps(most, 1))
    while True:
        try:
            batch = end.recv()
        except EOFError:
            return
        end.send(steps(batch, STEPS))


def measure(model: Model, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of a step of each backend, a row a batch; each is the median of turns."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        engines = [Engine(model, backend, Path(folder)) for backend in model.backends]
        try:
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


def run(path: Path, models: Sequence[Model], repeats: int) -> int:
    """Measure, and write what was measured; 1 where an engine did not serve, whose model is left out."""
    from mla_kernels.devices import current_arch

    from benchmarks.ops import cuda, run_cuda

    rows: list[dict[str, Any]] = []
    document = {
        "command": f"python -m benchmarks.vllm_engine JSON --repeats {repeats}",
        "machine": cuda.machine(),
        "payload": run_cuda.payload(current_arch()),
        "vllm": version("vllm"),
        "asks for": next((each for each in requires("vllm") or () if each.startswith("torch==")), None),
        "layers": LAYERS,
        "prompt": PROMPT,
        "steps": STEPS,
        "repeats": repeats,
        "rows": rows,
        "left out": (left_out := list[str]()),
    }
    for model in models:
        try:
            rows += measure(model, repeats)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            left_out.append(model.name)
        print(time.strftime("%T"), model.name, [row["ms"] for row in rows if row["model"] == model.name], flush=True)
        path.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    return int(bool(left_out))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_engine", description=__doc__)
    parser.add_argument("data", type=Path, metavar="JSON")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", help="one of them; by default all", choices=[model.name for model in MODELS])
    parser.add_argument("--page", type=Path, help="write the page of JSON, and measure nothing")
    options = parser.parse_args(arguments)
    if options.page is None:
        return run(options.data, [model for model in MODELS if options.model in (None, model.name)], options.repeats)
    document = json.loads(options.data.read_text(encoding="utf-8"))
    options.page.write_text(page.page(document, data=f"data/{options.data.name}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
