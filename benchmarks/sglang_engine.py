"""A decoding step inside SGLang, by its attention backends and by ours: ``python -m benchmarks.sglang_engine JSON``.

A step is the time of a batch of 65 tokens without that of a batch of one, over 64. It needs SGLang, which is not
installed with this package.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks import engine_turns
from benchmarks.engine_turns import LONGEST, Benchmark, Model, Steps, prompts

BACKENDS = ("mla_kernels", "fa3", "flashmla", "flashinfer")
MODELS = (
    Model("dense, 128 heads", 128, (1, 16), BACKENDS),
    Model("dense, 16 heads", 16, (1, 64), BACKENDS),
)
"""All heads of DeepSeek V3 on one GPU, and the share of one of eight."""


def start(model: Model, backend: str, weights: Path) -> Steps:
    """Start an engine, with CUDA graphs of decode; every one prefills by FlashInfer."""
    os.environ["SGLANG_PLUGINS"] = "mla_kernels" if backend == "mla_kernels" else "none"
    from sglang import Engine

    most = model.batches[-1]
    engine = Engine(
        model_path=str(weights), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", random_seed=0,
        decode_attention_backend=backend, prefill_attention_backend="flashinfer", kv_cache_dtype=model.cache,
        context_length=LONGEST, max_running_requests=most, max_total_tokens=(most + 2) * LONGEST,
        chunked_prefill_size=8192, cuda_graph_bs_decode=list(model.batches), cuda_graph_backend_prefill="disabled",
        sampling_backend="pytorch", grammar_backend="none", skip_server_warmup=True, log_level="error",
    )  # fmt: skip
    given = prompts(model)

    def seconds(batch: int, tokens: int) -> float:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        began = time.perf_counter()
        engine.generate(input_ids=given[:batch], sampling_params=sampling)
        return time.perf_counter() - began

    def steps(batch: int, count: int) -> float:
        return (seconds(batch, count + 1) - seconds(batch, 1)) / count * 1e3

    return steps


BENCHMARK = Benchmark("sglang", MODELS, start)

if __name__ == "__main__":
    sys.exit(engine_turns.main(BENCHMARK, __doc__))
