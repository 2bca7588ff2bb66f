"""A real SGLang serves small models on a GPU, by its own attention backends and by this package's.

In an environment with SGLang, this package and the payload of the GPU: ``pytest tests/engines/serving_sglang.py``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from mla_kernels.compat import sglang_plugin

from tests.engines import tiny_model
from tests.engines.compare import LIKE_ANOTHER, LIKE_ANOTHER_SELECTION, require_launches, served
from tests.engines.runs import GPU, LENGTHS, TOKENS, Machine, Run

SGLANG = Machine(
    GPU.variables,
    {
        "sampling_backend": "pytorch",  # requests are greedy, and FlashInfer's would be compiled first
        "grammar_backend": "none",
        "cuda_graph_backend_prefill": "disabled",
        "cuda_graph_max_bs_decode": 8,
        "max_total_tokens": 16384,
        "log_level": "info",
    },
    serve="tests.engines.serve_sglang",
)
ALWAYS_SPARSE = replace(SGLANG, variables={**SGLANG.variables, "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": "0"})
"""Where SGLang prefills short prompts of a sparse model by its sparse kernels, too."""
RETRACTING = replace(SGLANG, variables={**SGLANG.variables, "SGLANG_TEST_RETRACT": "1"})
"""Where SGLang preempts requests for no reason, as its own tests have it."""
EAGER = {"disable_decode_cuda_graph": True}
DRAFTS = {
    "speculative_algorithm": "STANDALONE",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}
"""A model that drafts for itself, two tokens at a time."""
FP8 = {"kv_cache_dtype": "fp8_e4m3"}


def of(backend: str, **more: Any) -> Run:
    """An engine with a named backend."""
    engine = {"attention_backend": backend, **more.pop("engine", {})}
    return replace(Run(machine=SGLANG, dtype="float16", engine=engine), **more)


def after_flashinfer(decode: str, **more: Any) -> Run:
    """An engine that decodes by a backend of SGLang's, and prefills as ours does."""
    engine = {"decode_attention_backend": decode, "prefill_attention_backend": "flashinfer", **more.pop("engine", {})}
    return replace(Run(machine=SGLANG, dtype="float16", plugins="", engine=engine), **more)


LONG = (5, 2900, 4300, 2049, 64, 3000)
"""Tokens of prompts of a sparse model: four have more than the 2,048 that SGLang's indexer can select."""


def sparse(prefill: str, decode: str, cache: str = "bfloat16", **more: Any) -> Run:
    """An engine of a sparse model, with kernels of SGLang's backend ``dsa``."""
    engine = {"max_model_len": 4352, "kv_cache_dtype": cache}
    kernels = {"dsa_prefill_backend": prefill, "dsa_decode_backend": decode}
    run = Run(machine=ALWAYS_SPARSE, dtype="bfloat16", model="sparse, 2048", lengths=LONG, engine=engine | kernels)
    return replace(run, **more)


OURS = {"override": ",".join(sglang_plugin.INSTEAD)}
"""Our kernels in place of FlashMLA's."""


PEERS = ("fa3", "flashmla", "triton")
"""SGLang's own backends of decode on Hopper."""

RUNS = {
    **{name: after_flashinfer(name) for name in PEERS},
    "graphs": of("mla_kernels"),
    "eager": of("mla_kernels", engine=EAGER),
    "wrong": of("mla_kernels", factor=1.02, engine=EAGER),
    "drafts": of("mla_kernels", engine=DRAFTS | {"speculative_attention_mode": "decode"}),
    "drafts, triton": of("triton", plugins="", engine=DRAFTS),
    "drafts, flashmla": of("flashmla", plugins="", engine=DRAFTS),
    "drafts, eager": of("mla_kernels", engine=DRAFTS | EAGER),
    "twice": of("mla_kernels", times=2),
    **{f"{name}, twice": after_flashinfer(name, times=2) for name in PEERS[:2]},
    "in chunks": of("mla_kernels", engine={"chunked_prefill_size": 64}),
    "preempted": of("mla_kernels", machine=RETRACTING),
    "after triton": of("triton", plugins=Run.plugins, engine={"decode_attention_backend": "mla_kernels"}),
    "not asked for": of("triton"),
    "no plug-in": of("triton", plugins=""),
    **{f"{name}, bf16": after_flashinfer(name, dtype="bfloat16") for name in PEERS},
    "bf16": of("mla_kernels", dtype="bfloat16"),
    "wrong, bf16": of("mla_kernels", dtype="bfloat16", factor=1.1),
    **{f"{name}, fp8": after_flashinfer(name, dtype="bfloat16", engine=FP8) for name in PEERS[:2]},
    "fp8": of("mla_kernels", dtype="bfloat16", engine=FP8),
    "wrong, fp8": of("mla_kernels", dtype="bfloat16", factor=1.2, engine=FP8),
    "flashmla_sparse": sparse("flashmla_sparse", "flashmla_sparse", plugins=""),
    "flashmla_sparse, fa3": sparse("flashmla_sparse", "fa3", plugins=""),
    "sparse": sparse("flashmla_sparse", "flashmla_sparse", **OURS),
    "sparse, flashmla_kv": sparse("flashmla_sparse", "flashmla_kv", **OURS),
    "wrong, sparse": sparse("flashmla_sparse", "flashmla_sparse", factor=1.1, **OURS),
    "flashmla_kv, fp8": sparse("flashmla_kv", "flashmla_kv", "fp8_e4m3", plugins=""),
    "sparse, fp8": sparse("flashmla_kv", "flashmla_kv", "fp8_e4m3", **OURS),
    "wrong, sparse, fp8": sparse("flashmla_kv", "flashmla_kv", "fp8_e4m3", factor=1.1, **OURS),
    "unknown kernel": sparse("flashmla_sparse", "fa3", override="fa3"),
    "unknown cache": of("mla_kernels", engine={"kv_cache_dtype": "fp8_e5m2"}),
}
"""Every engine that is started, by what it is."""


@pytest.mark.parametrize("name", ["graphs", "eager"])
def test_results_are_as_close_as_those_of_other_backends(told, distance, name):
    """fp16 rounds, so that tokens can differ where two are almost equally likely: SGLang's backends do so too."""
    require_launches(served(told(name)), "sm90a_decode_")
    limit = LIKE_ANOTHER * max(distance(told(a), told(b)) for a, b in combinations(PEERS, 2))
    assert max(distance(told(name), told(each)) for each in PEERS) <= limit


def test_a_graph_has_the_launches_of_the_engine_without_one(told):
    """Every step of the eager engine launches a layer after another; a replayed graph tells nothing of its steps."""
    assert len(served(told("eager")).launches) == (TOKENS - 1) * tiny_model.LAYERS
    assert len(served(told("graphs")).launches) < (TOKENS - 1) * tiny_model.LAYERS


def test_a_kernel_that_is_wrong_is_noticed(told, distance):
    assert distance(told("wrong"), told("eager")) > 3 * distance(told("graphs"), told("fa3"))


def test_nothing_changes_unless_it_is_asked_for(told):
    idle, without = served(told("not asked for")), served(told("no plug-in"))
    assert idle.launches == []
    assert idle.requests == without.requests


def test_pages_are_those_of_the_preferred_kernel(told):
    """Where none are named; SGLang's own are of one token."""
    assert served(told("graphs")).page_size == 64
    assert served(told("fa3")).page_size == 1


@pytest.mark.parametrize("name", ["in chunks", "preempted", "after triton"])
def test_requests_that_are_parted(told, distance, name):
    """Prompts in chunks, requests that are preempted, and prefill by another backend."""
    found = served(told(name))
    require_launches(found, "sm90a_decode_")
    assert distance(found, told("fa3")) <= LIKE_ANOTHER * distance(told("flashmla"), told("triton"))
    assert (found.preemptions > 0) == (name == "preempted")


def test_prompts_that_are_in_the_cache(told, distance):
    found, theirs = served(told("twice")), told("flashmla, twice")
    require_launches(found, "sm90a_decode_")
    assert found.hits >= sum((length - 1) // 64 * 64 for length in LENGTHS)
    assert distance(found, theirs) <= LIKE_ANOTHER * distance(told("fa3, twice"), theirs)


@pytest.mark.parametrize("name", ["drafts", "drafts, eager"])
def test_drafts_are_made_and_verified(told, distance, record_property, name):
    """As many are right as by SGLang's own backends."""
    found, theirs = served(told(name)), [served(told(f"drafts, {each}")).accepted for each in ("triton", "flashmla")]
    record_property("accepted", {"ours": found.accepted, "triton, flashmla": theirs})
    require_launches(found, "sm90a_decode_")
    assert {"1", "3"} <= {line.split()[2] for line in found.launches}
    assert found.accepted >= 0.9 * min(theirs)
    assert distance(found, told("fa3")) <= LIKE_ANOTHER * distance(told("flashmla"), told("triton"))


def bf16_is_far(told, distance, name: str) -> bool:
    """Whether an engine is farther from SGLang's than it may be; in bf16 tokens differ early."""
    limit = LIKE_ANOTHER * max(distance(told(f"{a}, bf16"), told(f"{b}, bf16")) for a, b in combinations(PEERS, 2))
    return max(distance(told(name), told(f"{each}, bf16")) for each in PEERS) > limit


def fp8_is_far(told, distance, name: str) -> bool:
    """Whether an engine is not nearer to FA3, which multiplies in bf16 as ours does, than FlashMLA by far.

    SGLang's FlashMLA multiplies in e4m3. Triton's backend is as far from FA3 as FlashMLA's is.
    """
    exact = told("fa3, fp8")
    return distance(told(name), exact) > distance(told("flashmla, fp8"), exact) / 2


def sparse_is_far(told, distance, name: str) -> bool:
    """Whether an engine is farther from SGLang's of the same cache than it may be, by how far two over bf16 are."""
    beside = ["flashmla_kv, fp8"] if name.endswith("fp8") else ["flashmla_sparse", "flashmla_sparse, fa3"]
    limit = LIKE_ANOTHER_SELECTION * distance(told("flashmla_sparse"), told("flashmla_sparse, fa3"))
    return max(distance(told(name), told(each)) for each in beside) > limit


@pytest.mark.parametrize(
    ("name", "start", "is_far"),
    [
        ("bf16", "decode_qbf16_kvbf16_", bf16_is_far),
        ("fp8", "decode_qbf16_kve4m3_", fp8_is_far),
        ("sparse", "sparse_decode_", sparse_is_far),
        ("sparse, flashmla_kv", "sparse_decode_", sparse_is_far),
        ("sparse, fp8", "sparse_decode_", sparse_is_far),
    ],
)
def test_a_format(told, distance, name, start, is_far):
    require_launches(served(told(name)), f"sm90a_{start}")
    assert not is_far(told, distance, name)


@pytest.mark.parametrize(
    ("name", "is_far"),
    [("bf16", bf16_is_far), ("fp8", fp8_is_far), ("sparse", sparse_is_far), ("sparse, fp8", sparse_is_far)],
)
def test_a_kernel_of_a_format_that_is_wrong_is_noticed(told, distance, name, is_far):
    assert is_far(told, distance, f"wrong, {name}")


def test_a_cache_that_no_kernel_reads_is_refused_at_start(told):
    found = told("unknown cache")
    assert found.status != 0
    assert not found.requests
    assert "kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bf16, bfloat16" in found.printed, found.printed


def test_a_kernel_that_is_not_replaced_is_refused_at_start(told):
    found = told("unknown kernel")
    assert found.status != 0
    assert not found.requests
    assert f"{sglang_plugin.VARIABLE}: got 'fa3'; accepts flashmla_sparse, flashmla_kv" in found.printed, found.printed
