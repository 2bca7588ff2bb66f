"""FlashMLA's sparse functions on a GPU: every variant behind them, and a CUDA graph over other indices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from mla_kernels.compat.flash_mla import flash_mla_with_kvcache

from tests.gpu.support.availability import require_arch
from tests.gpu.support.tensors import set_all_bits
from tests.support.flash_mla_sparse import SparseFwd, WithKvcache, past_the_end, served
from tests.support.rows import Row
from tests.support.sparse import SparseDecode, SparsePrefill

DECODE, PREFILL = served("sparse_decode", "cuda"), served("sparse_prefill", "cuda")
OPTIONS: list[dict[str, Any]] = [{}, {"counts": True}, {"absent": 1.0}]
"""Options that the variants of every arch serve."""
MORE: list[dict[str, Any]] = [{"sink": True}, {"counts": True, "sink": True, "extra_topk": 11}]
HOPPER = [row for row in DECODE if row.arch == "sm90a"]

each = pytest.mark.parametrize("row", DECODE, ids=[row.name for row in DECODE])


@pytest.fixture(autouse=True)
def arch_under_test(request: pytest.FixtureRequest) -> None:
    """Skip variants of an arch that is not under test."""
    row: Row = request.getfixturevalue("row")
    require_arch(row.arch)


@each
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("q_len", [1, 3])
def test_decode(row: Row, options: dict[str, Any], q_len: int) -> None:
    WithKvcache(SparseDecode(row.name, q_len=q_len, **options)).check()


@pytest.mark.parametrize("row", HOPPER, ids=[row.name for row in HOPPER])
@pytest.mark.parametrize("options", MORE)
def test_sinks_and_a_second_cache(row: Row, options: dict[str, Any]) -> None:
    WithKvcache(SparseDecode(row.name, q_len=3, num_heads=row.heads(64), **options)).check()


@pytest.mark.parametrize("row", PREFILL, ids=[row.name for row in PREFILL])
@pytest.mark.parametrize("rope", [True, False])
@pytest.mark.parametrize("num_heads", [16, 64, 128])
def test_prefill(row: Row, num_heads: int, rope: bool) -> None:
    SparseFwd(SparsePrefill(row.name, num_heads=num_heads, counts=True, sink=True), rope).check()


@each
def test_a_graph_over_other_indices(row: Row) -> None:
    """An engine replays this: queries, cache and indices change in place, metadata is copied in."""
    call = WithKvcache(SparseDecode(row.name, q_len=2))
    given = call.given()
    given["indices"] = past_the_end(given["indices"], 9 * 64)
    given |= call.ahead(given)
    flash_mla_with_kvcache(**given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = flash_mla_with_kvcache(**given)
    for seed in (0, 1, 2):
        step = WithKvcache(replace(call.problem, seed=seed))
        fresh = step.given()
        for name in ("q", "k_cache", "indices"):
            given[name].copy_(fresh[name])
        set_all_bits(out, lse)
        graph.replay()
        torch.cuda.synchronize()
        step.compare(out, lse)
