"""A real vLLM serves a small model on two GPUs, each with a part of every request's cache, by its backends and by ours.

In an environment with vLLM, this package and the payload of the GPUs: ``pytest tests/engines/serving_ranks.py``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.engines.compare import LIKE_ANOTHER, require_launches, served
from tests.engines.runs import GPU, LENGTHS, TOKENS, Run

VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:2]
TWO = replace(
    GPU,
    variables={**GPU.variables, "CUDA_VISIBLE_DEVICES": ",".join(VISIBLE), "VLLM_ALLREDUCE_USE_SYMM_MEM": "0"},
    engine={
        **GPU.engine,
        "tensor_parallel_size": 2,
        "decode_context_parallel_size": 2,
        "distributed_executor_backend": "mp",
        "disable_custom_all_reduce": True,
    },
)
"""Two GPUs, whose ranks have half of a layer's heads and half of the cache, token by token in turns."""


def of(backend: str, **more: Any) -> Run:
    """An engine on two GPUs, as a server has it."""
    options = {"attention_backend": backend, **more.pop("engine", {})}
    return replace(Run(machine=TWO, dtype="float16", separate=True, engine=options), **more)


RUNS = {
    **{name: of(name, plugins="") for name in ("FLASH_ATTN_MLA", "FLASHMLA")},
    "graphs": of("MLA_KERNELS"),
    "eager": of("MLA_KERNELS", engine={"enforce_eager": True}),
    "blocks in turns": of("MLA_KERNELS", engine={"cp_kv_cache_interleave_size": 64}),
    "wrong": of("MLA_KERNELS", factor=1.02, engine={"enforce_eager": True}),
    "one layer": of("FLASH_ATTN_MLA", plugins="", model="predicting"),
    "speculating": of(
        "MLA_KERNELS",
        model="predicting",
        engine={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
    ),
}
"""Every engine that is started, by what it is."""


@pytest.mark.parametrize("name", ["graphs", "eager", "blocks in turns"])
def test_results_are_as_close_as_those_of_other_backends(told, distance, name):
    require_launches(served(told(name)), "sm90a_decode_")
    limit = LIKE_ANOTHER * distance(told("FLASH_ATTN_MLA"), told("FLASHMLA"))
    for each in ("FLASH_ATTN_MLA", "FLASHMLA"):
        assert distance(told(name), told(each)) <= limit


def test_a_kernel_that_is_wrong_is_noticed(told, distance):
    assert distance(told("wrong"), told("eager")) > 3 * distance(told("graphs"), told("FLASH_ATTN_MLA"))


def test_speculated_tokens_are_verified(told, distance):
    found = served(told("speculating"))
    require_launches(found, "sm90a_decode_", layers=1)
    assert found.accepted > TOKENS * len(LENGTHS) / 4  # of at most half of all tokens
    assert distance(found, told("one layer")) <= LIKE_ANOTHER * distance(told("FLASH_ATTN_MLA"), told("FLASHMLA"))
