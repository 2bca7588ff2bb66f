"""A decoding step inside vLLM, by its attention backends and by ours: ``python -m benchmarks.vllm_engine JSON``.

A step is the time between the first and the last token of a batch, over the steps between them, by the clock of the
engine. It needs vLLM, which is not installed with this package.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks import engine_turns
from benchmarks.engine_turns import LAYERS, LONGEST, Benchmark, Model, Steps, prompts

DENSE = ("MLA_KERNELS", "FLASH_ATTN_MLA", "FLASHMLA")
SPARSE = ("MLA_KERNELS_SPARSE", "FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE")
SPARSE_FP8 = ("MLA_KERNELS_SPARSE", "FLASHMLA_SPARSE")
MODELS = (
    Model("dense, 128 heads", 128, (1, 16), DENSE),
    Model("dense, 16 heads", 16, (1, 64), DENSE),
    Model("sparse, 128 heads", 128, (1, 16), SPARSE, sparse=True),
    Model("sparse, 16 heads", 16, (1, 64), SPARSE, sparse=True),
    Model("sparse, 128 heads, fp8_ds_mla", 128, (1, 16), SPARSE_FP8, "fp8_ds_mla", sparse=True),
    Model("sparse, 16 heads, fp8_ds_mla", 16, (1, 64), SPARSE_FP8, "fp8_ds_mla", sparse=True),
)
"""All heads of DeepSeek V3 and V3.2 on one GPU, and the share of one of eight."""


def start(model: Model, backend: str, weights: Path) -> Steps:
    """Start an engine, with CUDA graphs and without ``torch.compile``."""
    os.environ |= {
        "VLLM_PLUGINS": "mla_kernels" if backend.startswith("MLA_KERNELS") else "",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # requests are greedy
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    from vllm import LLM, SamplingParams

    most = model.batches[-1]
    row = (1152 if model.cache == "auto" else 656) + 132 * model.sparse  # bytes of a token in a layer
    engine = LLM(
        str(weights), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", seed=0, disable_log_stats=False,
        attention_backend=backend, kv_cache_dtype=model.cache, block_size=64, max_model_len=LONGEST,
        kv_cache_memory_bytes=(most + 2) * LONGEST * row * LAYERS, gpu_memory_utilization=0.02,
        max_num_seqs=most, max_num_batched_tokens=8192,
        compilation_config={"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": model.batches},
    )  # fmt: skip
    given = [{"prompt_token_ids": tokens} for tokens in prompts(model)]

    def steps(batch: int, count: int) -> float:
        sampling = SamplingParams(temperature=0, max_tokens=count + 1, ignore_eos=True, detokenize=False)
        outputs = engine.generate(given[:batch], sampling, use_tqdm=False)
        first, last = (
            max(getattr(each.metrics, name) for each in outputs) for name in ("first_token_ts", "last_token_ts")
        )
        return float((last - first) / count * 1e3)

    return steps


BENCHMARK = Benchmark("vllm", MODELS, start)

if __name__ == "__main__":
    sys.exit(engine_turns.main(BENCHMARK, __doc__))
