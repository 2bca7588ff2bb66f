"""A real vLLM serves small models on a GPU, by its own attention backends and by this package's.

In an environment with vLLM, this package and the payload of the GPU: ``pytest tests/engines/serving_cuda.py``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from tests.engines import tiny_model
from tests.engines.compare import LIKE_ANOTHER, LIKE_ANOTHER_SELECTION, require_launches, served
from tests.engines.runs import GPU, LENGTHS, TOKENS, Run

DENSE = ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")
"""vLLM's own backends of dense MLA on Hopper."""

LONG = (5, 700, 1300, 513, 64, 1000)
"""Tokens of prompts of a sparse model: four have more than its indexer selects."""
FP8 = {"kv_cache_dtype": "fp8"}
COMPILED: dict[str, Any] = {"compilation_config": {}}
"""vLLM's defaults: ``torch.compile``, and CUDA graphs of steps and of their pieces."""

TOO_LARGE = 1.1
"""A kernel whose outputs are wrong by this factor must be noticed in every format."""


def of(backend: str | None, **more: Any) -> Run:
    """An engine with a named backend, or with the one that vLLM chooses."""
    options = {**({"attention_backend": backend} if backend else {}), **more.pop("engine", {})}
    return replace(Run(machine=GPU, dtype="float16", engine=options), **more)


def sparse(backend: str, cache: str = "auto", **more: Any) -> Run:
    """An engine of a sparse model."""
    options = {"max_model_len": 2048, "kv_cache_dtype": cache}
    return of(backend, model="sparse", dtype="bfloat16", lengths=LONG, engine=options, **more)


def with_wrong(name: str, run: Run) -> dict[str, Run]:
    """An engine, and the same with a kernel whose outputs are too large."""
    return {name: run, f"wrong, {name}": replace(run, factor=TOO_LARGE)}


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
    "compiled": of("MLA_KERNELS", engine=COMPILED),
    **{f"{name}, compiled": of(name, plugins="", engine=COMPILED) for name in DENSE},
    **{f"{name}, bf16": of(name, plugins="", dtype="bfloat16") for name in DENSE[:2]},
    "TRITON_MLA, fp8": of("TRITON_MLA", plugins="", dtype="bfloat16", engine=FP8),
    **with_wrong("bf16", of("MLA_KERNELS", dtype="bfloat16")),
    **with_wrong("fp8", of("MLA_KERNELS", dtype="bfloat16", engine=FP8)),
    "one layer": of("FLASH_ATTN_MLA", plugins="", model="predicting"),
    "speculating": of(
        "MLA_KERNELS",
        model="predicting",
        engine={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
    ),
    **{name: sparse(name, plugins="") for name in ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE")},
    "FLASHMLA_SPARSE, fp8_ds_mla": sparse("FLASHMLA_SPARSE", "fp8_ds_mla", plugins=""),
    **with_wrong("sparse", sparse("MLA_KERNELS_SPARSE")),
    **with_wrong("sparse, fp8_ds_mla", sparse("MLA_KERNELS_SPARSE", "fp8_ds_mla")),
    "unknown cache": of("MLA_KERNELS", engine={"kv_cache_dtype": "fp8_e5m2"}),
}
"""Every engine that is started, by what it is."""


class Format(NamedTuple):
    """What an engine of a format is compared with.

    Attributes
    ----------
    launches : str
        How names of its kernels begin.
    beside : tuple of str
        The engines of vLLM's that it is compared with.
    like : tuple of str
        Two engines of vLLM's: how far they are from each other is the measure.
    """

    launches: str
    beside: tuple[str, ...]
    like: tuple[str, str]


IN_BF16, IN_SPARSE = ("FLASH_ATTN_MLA, bf16", "FLASHMLA, bf16"), ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE")
FORMATS = {
    "bf16": Format("sm90a_decode_qbf16_kvbf16_", IN_BF16, IN_BF16),
    # Triton's multiplies in bf16, as ours does; FlashMLA's multiplies in e4m3.
    "fp8": Format("sm90a_decode_qbf16_kve4m3_", ("TRITON_MLA, fp8",), IN_BF16),
    "sparse": Format("sm90a_sparse_decode_", IN_SPARSE, IN_SPARSE),
    "sparse, fp8_ds_mla": Format("sm90a_sparse_decode_", ("FLASHMLA_SPARSE, fp8_ds_mla",), IN_SPARSE),
}


@pytest.mark.parametrize("name", ["graphs", "eager", "separate", "instead", "compiled"])
def test_results_are_as_close_as_those_of_other_backends(told, distance, name):
    """fp16 rounds, so that tokens can differ where two are almost equally likely: vLLM's three backends do so too."""
    require_launches(served(told(name)), "sm90a_decode_")
    peers = [f"{each}, compiled" for each in DENSE] if name == "compiled" else DENSE
    theirs = [distance(told(a), told(b)) for a, b in combinations(peers, 2)]
    ours = [distance(told(name), told(each)) for each in peers]
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


def is_far(told, distance, name: str, prefix: str = "") -> bool:
    """Whether an engine of a format is farther from vLLM's than it may be."""
    most = LIKE_ANOTHER_SELECTION if FORMATS[name].like == IN_SPARSE else LIKE_ANOTHER
    limit = most * distance(*map(told, FORMATS[name].like))
    return max(distance(told(prefix + name), told(each)) for each in FORMATS[name].beside) > limit


@pytest.mark.parametrize("name", FORMATS)
def test_a_format(told, distance, name):
    """In these, tokens differ early, and a sparse model's indexer selects other tokens where rounding differs."""
    require_launches(served(told(name)), FORMATS[name].launches)
    assert not is_far(told, distance, name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_kernel_of_a_format_that_is_wrong_is_noticed(told, distance, name):
    assert is_far(told, distance, name, "wrong, ")


def test_speculated_tokens_are_verified(told, distance):
    found = served(told("speculating"))
    require_launches(found, "sm90a_decode_", layers=1)
    assert found.accepted > TOKENS * len(LENGTHS) / 4  # of at most half of all tokens
    assert any(line.split()[2] == "2" for line in found.launches)
    assert distance(found, told("one layer")) <= LIKE_ANOTHER * distance(told("FLASH_ATTN_MLA"), told("TRITON_MLA"))


def test_a_cache_that_no_kernel_reads_is_refused_at_start(told):
    found = told("unknown cache")
    assert found.status != 0
    assert not found.requests
    assert "kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bfloat16, float16" in found.printed, found.printed
