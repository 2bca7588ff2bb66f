"""A real vLLM serves small models on a GPU, by its own attention backends and by this package's.

In an environment with vLLM, this package and the payload of the GPU: ``pytest tests/engines/serving_cuda.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from tests.engines import tiny_model
from tests.engines.compare import alike, apart, served
from tests.engines.runs import GPU, LENGTHS, TOKENS, Run, Told, start

AT_ONCE = 8
"""Engines that share the GPU; each takes 1 to 2 GiB of it, and most of its time on one core to start."""

DENSE = ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")
"""vLLM's own backends of dense MLA on Hopper."""

LONG = (5, 700, 1300, 513, 64, 1000)
"""Tokens of prompts of a sparse model: four have more than its indexer selects."""
SPARSE: dict[str, Any] = {"model": "sparse", "dtype": "bfloat16", "lengths": LONG}


def of(backend: str | None, **more: Any) -> Run:
    """An engine with a named backend, or with the one that vLLM chooses."""
    options = {**({"attention_backend": backend} if backend else {}), **more.pop("engine", {})}
    return replace(Run(machine=GPU, dtype="float16", engine=options), **more)


RUNS = {
    **{name: of(name, plugins="") for name in DENSE},
    "graphs": of("MLA_KERNELS"),
    "eager": of("MLA_KERNELS", engine={"enforce_eager": True}),
    "separate": of("MLA_KERNELS", separate=True),
    "none chosen, no plug-in": of(None, plugins=""),
    "none chosen": of(None),
    "instead": of(None, override="FLASH_ATTN_MLA"),
    "wrong": of("MLA_KERNELS", factor=1.02, engine={"enforce_eager": True}),
    "preempted": of("MLA_KERNELS", engine={"num_gpu_blocks_override": 12, "max_model_len": 160}),
    "in chunks": of("MLA_KERNELS", engine={"long_prefill_token_threshold": 48}),
    "twice": of("MLA_KERNELS", times=2),
    "FLASH_ATTN_MLA, bf16": of("FLASH_ATTN_MLA", plugins="", dtype="bfloat16"),
    "FLASHMLA, bf16": of("FLASHMLA", plugins="", dtype="bfloat16"),
    "bf16": of("MLA_KERNELS", dtype="bfloat16"),
    "FLASHMLA, fp8": of("FLASHMLA", plugins="", dtype="bfloat16", engine={"kv_cache_dtype": "fp8"}),
    "fp8": of("MLA_KERNELS", dtype="bfloat16", engine={"kv_cache_dtype": "fp8"}),
    "one layer": of("FLASH_ATTN_MLA", plugins="", model="predicting"),
    "speculating": of(
        "MLA_KERNELS",
        model="predicting",
        engine={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
    ),
    **{
        f"{name}{cache}": of(
            backend,
            plugins=plugins,
            engine={"max_model_len": 2048, "kv_cache_dtype": cache.removeprefix(", ") or "auto"},
            **SPARSE,
        )
        for cache in ("", ", fp8_ds_mla")
        for name, backend, plugins in (
            ("sparse", "MLA_KERNELS_SPARSE", Run.plugins),
            ("FLASHMLA_SPARSE", "FLASHMLA_SPARSE", ""),
        )
    },
    "unknown cache": of("MLA_KERNELS", engine={"kv_cache_dtype": "fp8_e5m2"}),
}
"""Every engine that is started, by what it is."""

LIKE_ANOTHER = 1.5
"""How far from vLLM's backends ours may be, in the mean, where 1 is how far these are from each other."""


@pytest.fixture(scope="session")
def told(tmp_path_factory) -> Iterator[Callable[[str], Told]]:
    """Start every engine of ``RUNS``, some at a time, and return what each told."""
    folder = tmp_path_factory.mktemp("engines")
    pool = ThreadPoolExecutor(AT_ONCE)
    begun = {name: pool.submit(start, run, folder / name.replace(", ", "-")) for name, run in RUNS.items()}
    try:
        yield lambda name: begun[name].result()
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def distance(record_property) -> Callable[[Told, Told], float]:
    """The mean difference of log-probabilities of two runs, which the report keeps."""

    def between(a: Told, b: Told) -> float:
        differences = apart(served(a), served(b))
        mean = sum(differences) / len(differences)
        record_property("apart", {"mean": mean, "most": max(differences), "tokens alike": alike(a, b)})
        return mean

    return between


def require_launches(found: Told, start: str, layers: int = tiny_model.LAYERS) -> None:
    """Demand that every layer of a step, or of a graph that was captured, was this package's."""
    assert found.launches
    assert len(found.launches) % layers == 0
    assert {line.split()[0].startswith(start) for line in found.launches} == {True}


@pytest.mark.parametrize("name", ["graphs", "eager", "separate", "instead"])
def test_results_are_as_close_as_those_of_other_backends(told, distance, name):
    """fp16 rounds, so that tokens can differ where two are almost equally likely: vLLM's three backends do so too."""
    require_launches(served(told(name)), "sm90a_decode_")
    theirs = [distance(told(a), told(b)) for a, b in combinations(DENSE, 2)]
    ours = [distance(told(name), told(each)) for each in DENSE]
    assert max(ours) <= LIKE_ANOTHER * max(theirs)


def test_a_graph_has_the_launches_of_the_engine_without_one(told):
    """Every step of the eager engine launches a layer after another; a replayed graph tells nothing of its steps.

    The first step decodes too: a prompt of one token is a request that decodes.
    """
    assert len(served(told("eager")).launches) == TOKENS * tiny_model.LAYERS
    assert len(served(told("graphs")).launches) < TOKENS * tiny_model.LAYERS


def test_a_kernel_that_is_wrong_is_noticed(told, distance):
    assert distance(told("wrong"), told("eager")) > 3 * distance(told("graphs"), told("FLASH_ATTN_MLA"))


def test_nothing_changes_unless_it_is_asked_for(told):
    idle, without = served(told("none chosen")), served(told("none chosen, no plug-in"))
    assert idle.launches == []
    assert idle.requests == without.requests
    for found in (idle, without):
        assert "Using FLASH_ATTN_MLA attention backend" in found.printed


@pytest.mark.parametrize("name", ["preempted", "in chunks", "twice"])
def test_requests_that_are_parted_or_served_again(told, distance, name):
    """A request that is preempted, prompts that come in chunks, and prompts whose beginning is in the cache already."""
    found = served(told(name))
    require_launches(found, "sm90a_decode_")
    assert distance(found, told("FLASHMLA")) <= LIKE_ANOTHER * distance(told("FLASH_ATTN_MLA"), told("TRITON_MLA"))
    assert (found.preemptions > 0) == (name == "preempted")
    if name == "in chunks":  # beside a chunk, requests decode without a graph
        assert len(found.launches) > len(told("graphs").launches)
    if name == "twice":
        assert found.hits >= sum((length - 1) // 64 * 64 for length in LENGTHS)


def test_bf16(told, distance):
    """Tokens differ early in bf16: only gross errors are noticed, here and below."""
    require_launches(served(told("bf16")), "sm90a_decode_qbf16_kvbf16_")
    theirs = distance(told("FLASH_ATTN_MLA, bf16"), told("FLASHMLA, bf16"))
    for each in ("FLASH_ATTN_MLA, bf16", "FLASHMLA, bf16"):
        assert distance(told("bf16"), told(each)) <= LIKE_ANOTHER * theirs


def test_fp8_is_as_close_to_bf16_as_that_of_vllm(told, distance):
    """vLLM's multiplies in e4m3, this package's exactly; most of the distance is the cache's, which vLLM wrote."""
    require_launches(served(told("fp8")), "sm90a_decode_qbf16_kve4m3_")
    exact = told("FLASHMLA, bf16")
    assert distance(told("fp8"), exact) <= LIKE_ANOTHER * distance(told("FLASHMLA, fp8"), exact)


def test_speculated_tokens_are_verified(told, distance):
    found = served(told("speculating"))
    require_launches(found, "sm90a_decode_", layers=1)
    assert found.accepted > TOKENS * len(LENGTHS) / 4  # of at most half of all tokens
    assert any(line.split()[2] == "2" for line in found.launches)
    assert distance(found, told("one layer")) <= LIKE_ANOTHER * distance(told("FLASH_ATTN_MLA"), told("TRITON_MLA"))


@pytest.mark.parametrize("cache", ["", ", fp8_ds_mla"])
def test_a_sparse_model(told, distance, cache):
    """Beside the indexer of vLLM, which selects other tokens where rounding differs: only gross errors are noticed."""
    found, theirs = served(told(f"sparse{cache}")), served(told(f"FLASHMLA_SPARSE{cache}"))
    require_launches(found, "sm90a_sparse_decode_")
    assert distance(found, theirs) <= LIKE_ANOTHER * distance(told("FLASH_ATTN_MLA, bf16"), told("FLASHMLA, bf16"))


def test_a_cache_that_no_kernel_reads_is_refused_at_start(told):
    found = told("unknown cache")
    assert found.status != 0
    assert not found.requests
    assert "kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bfloat16, float16" in found.printed, found.printed
