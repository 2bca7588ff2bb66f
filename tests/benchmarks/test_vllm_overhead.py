"""The program that measures vLLM's plug-in, tried out on the host: its two kinds of calls compute the same."""

from __future__ import annotations

import pytest
import torch

from benchmarks import vllm_overhead
from tests.runtime.compat.stand_ins import installed
from tests.runtime.compat.steps.stub_engine import DenseStep, SparseStep


@pytest.mark.parametrize("cache", ["auto", "fp8", "sparse", "sparse fp8_ds_mla"])
def test_a_row(monkeypatch, cache):
    monkeypatch.setattr(vllm_overhead, "TOPK", 8)
    cell = {"batch": 2, "heads": 3, "q_len": 2, "cache": cache}
    row = vllm_overhead.measure(cell, 1, "cpu", seq=70)
    assert row.items() >= cell.items()
    assert all(value > 0 for value in row["host us"].values())
    assert row["overhead us"] == row["host us"]["plug-in"] - row["host us"]["ops"]
    assert "graph us" not in row


@pytest.mark.parametrize(
    ("kind", "calls", "more"),
    [(DenseStep, vllm_overhead.of_dense, {}), (SparseStep, vllm_overhead.of_sparse, {"topk": 8})],
)
def test_what_is_compared_computes_the_same(monkeypatch, kind, calls, more):
    for overrides in installed(monkeypatch, "0.33.0"):
        plugin, alone = calls(kind(overrides, "cpu", layers=2, heads=3, lengths=[70, 5], **more))
    for mine, theirs in zip(plugin, alone, strict=True):
        out, _ = mine()
        theirs()
        keywords = (theirs.args[1] if kind is SparseStep else theirs).keywords
        assert torch.equal(out.flatten(), keywords["out"].flatten())
