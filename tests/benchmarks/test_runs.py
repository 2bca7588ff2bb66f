"""A run of dense decodes on CUDA, as far as it needs no GPU: launches run on the CPU."""

from __future__ import annotations

import json

import pytest
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.problems import Problem
from mla_kernels.kernels.ops import DecodeKernel

from benchmarks.ops import decode_cuda, run_cuda
from benchmarks.pages import page

from .imagined import CEILINGS, US


def test_measure(run):
    served = Problem("bf16", "bf16", 4, 2, 100, q_len=2, lengths="normal")
    document = run(served, Problem("bf16", "fp32", 4, 2, 100))
    json.dumps(document)
    row, refused = document["rows"]
    assert row["variant"] == "cpu_decode_qbf16_kvbf16_obf16_direct_split"
    assert document["variants"] == [row["variant"]]
    assert [row[name] for name in ("us", "with plan us", "call us")] == pytest.approx([US, US, 3.0])
    assert row["TFLOP/s"] == pytest.approx(served.flop / US / 1e6)
    assert row["TB/s"] == pytest.approx(served.bytes / US / 1e6)
    assert row["of ceiling"] == pytest.approx(max(row["TB/s"] / 4, row["TFLOP/s"] / 800))
    assert (refused["variant"], refused["us"], refused["of ceiling"]) == ("no variant", None, None)
    assert "note" not in row
    assert "note" not in refused
    assert document["payload"]["name"] == "cpu"
    assert len(document["payload"]["library_sha256"]) == 64


def test_only_the_time_with_plan_has_plans(run, monkeypatch):
    timed = []
    plan, replayed = DecodeKernel.plan, timing.replayed
    monkeypatch.setattr(DecodeKernel, "plan", lambda *args, **named: timed.append("plan") or plan(*args, **named))
    monkeypatch.setattr(timing, "replayed", lambda calls, repeats: timed.append("time") or replayed(calls, repeats))
    run(Problem("bf16", "bf16", 4, 2, 100))
    assert timed == ["plan", "time", "time", "plan", "plan"]


def test_a_cell_that_fails_is_a_note(run, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: out of luck\nmore")

    monkeypatch.setattr(DecodeKernel, "plan", fails)
    rows = run(Problem("bf16", "bf16", 4, 2, 100), Problem("bf16", "fp32", 4, 2, 100))["rows"]
    assert [row.get("note") for row in rows] == ["RuntimeError: CUDA error: out of luck", None]
    told = [row["variant"] for row in page.summary({"rows": rows, "method": decode_cuda.METHOD})]
    assert told == ["RuntimeError: CUDA error: out of luck", "no variant"]


def test_compute_bound_and_memory_bound():
    few, many = (Problem("bf16", "bf16", heads, 128, 8192) for heads in (16, 128))
    for cell, us, want in ((few, 400.0, few.bytes / 4e12 / 400e-6), (many, 400.0, many.flop / 800e12 / 400e-6)):
        assert run_cuda.of_attention(cell, us, CEILINGS)["of ceiling"] == pytest.approx(want)
