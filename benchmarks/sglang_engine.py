"""A decoding step inside SGLang, by its attention backends and by ours: ``python -m benchmarks.sglang_engine JSON``.

A step is the time of a batch of 65 tokens without that of a batch of one, over 64. It needs SGLang, which is not
installed with this package, and DeepGEMM for sparse models.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from mla_kernels.compat import sglang_plugin

from benchmarks import engine_turns
from benchmarks.engine_turns import LONGEST, Benchmark, Model, Steps, prompts

DENSE = ("mla_kernels", "fa3", "flashmla", "flashinfer")
SPARSE = ("mla_kernels", "flashmla_sparse", "fa3")
SPARSE_FP8 = ("mla_kernels", "flashmla_kv")
MODELS = (
    Model("dense, 128 heads", 128, (1, 16), DENSE),
    Model("dense, 16 heads", 16, (1, 64), DENSE),
    Model("sparse, 128 heads", 128, (1, 16), SPARSE, sparse=True),
    Model("sparse, 16 heads", 16, (1, 64), SPARSE, sparse=True),
    Model("sparse, 128 heads, fp8_e4m3", 128, (1, 16), SPARSE_FP8, "fp8_e4m3", sparse=True),
    Model("sparse, 16 heads, fp8_e4m3", 16, (1, 64), SPARSE_FP8, "fp8_e4m3", sparse=True),
)
"""All heads of DeepSeek V3 and V3.2 on one GPU, and the share of one of eight.

A backend of a sparse model is a kernel of SGLang's backend ``dsa``; ours is in place of the first of the others.
"""


def arguments(model: Model, backend: str) -> dict[str, Any]:
    """The arguments of ``sglang.Engine`` that choose the backend."""
    if not model.sparse:  # every one prefills by FlashInfer
        return {"decode_attention_backend": backend, "prefill_attention_backend": "flashinfer"}
    kernel = model.backends[1] if backend == "mla_kernels" else backend
    prefill = "flashmla_sparse" if model.cache == "auto" else "flashmla_kv"
    return {"attention_backend": "dsa", "dsa_decode_backend": kernel, "dsa_prefill_backend": prefill}


def start(model: Model, backend: str, weights: Path) -> Steps:
    """Start an engine, with CUDA graphs of decode."""
    ours = backend == "mla_kernels"
    os.environ["SGLANG_PLUGINS"] = "mla_kernels" if ours else "none"
    os.environ[sglang_plugin.VARIABLE] = ",".join(sglang_plugin.INSTEAD) if ours and model.sparse else ""
    from sglang import Engine

    most = model.batches[-1]
    engine = Engine(
        model_path=str(weights), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", random_seed=0,
        **arguments(model, backend), kv_cache_dtype=model.cache,
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
