"""A run of the bench of CUDA without a GPU: launches run on the CPU, and each is imagined to take ``US``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels.devices import Device
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.problems import Problem

from benchmarks.command import main
from benchmarks.ops import cuda, decode_cuda, run_cuda

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"
US = 100.0
CEILINGS = {"read TB/s": 4.0, "GEMM TFLOP/s": 800.0}
COPY = 3.0
MACHINE = {
    "gpu": "Imagined GPU", "memory_gib": 1.0, "sms": 3, "driver": "580.1", "cuda": "13.0", "torch": "2.11",
    "torch_cuda": "13.0", "date": "2026-01-31",
}  # fmt: skip


def imagine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """``run_cuda.measure`` of an op and cells."""

    def replayed(calls: Any, repeats: int) -> float:
        for call in calls:
            call()
        return US / 1e6

    monkeypatch.setattr(timing, "replayed", replayed)
    monkeypatch.setattr(cuda, "on_host", lambda call, repeats: call() and 3e-6)
    monkeypatch.setattr(cuda, "read_rate", lambda repeats: CEILINGS["read TB/s"] * 1e12)
    monkeypatch.setattr(cuda, "gemm_rate", lambda repeats: CEILINGS["GEMM TFLOP/s"] * 1e12)
    monkeypatch.setattr(cuda, "copy_rate", lambda repeats: COPY * 1e12)
    monkeypatch.setattr(cuda, "machine", lambda: MACHINE)
    monkeypatch.setattr(run_cuda.Bench, "on", torch.device("cpu"))
    monkeypatch.setattr(run_cuda, "device_of_arch", lambda arch: Device(arch, "cpu", 0, "imagined"))
    monkeypatch.setattr(torch.cuda, "device", lambda ordinal: nullcontext())
    monkeypatch.setattr(run_cuda, "count", lambda input_bytes: 2)

    def measure(op: run_cuda.Op, *cells: Any) -> dict[str, Any]:
        return run_cuda.measure(op, cells, "cpu", 3, lambda items, _: items)

    return measure


def shell(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Calls ``python -m benchmarks`` with arguments, and tells its status and what it printed."""

    def call(*arguments: str) -> SimpleNamespace:
        status = main(arguments)
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out, err=captured.err)

    return call


def cell_row(**changes: Any) -> dict[str, Any]:
    cell = Problem("bf16", "bf16", 128, 128, 8192)
    return {
        **cell.fields, **cell.counts, "variant": "sm90a_decode", "us": 500.0,
        "with plan us": 505.0, "call us": 4.0, **run_cuda.of_attention(cell, 500.0, CEILINGS),
        **changes,
    }  # fmt: skip


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "command": "python -m benchmarks", "op": "decode", "arch": "sm90a", "machine": MACHINE,
        "payload": {"name": "sm90", "version": "0.1.0", "commit": "0123456789ab", "library_sha256": "f" * 64},
        "variants": ["sm90a_decode"], "method": decode_cuda.METHOD, "repeats": 7, "ceilings": CEILINGS,
        "rows": list(rows),
    }  # fmt: skip


def suite_document(suite: str, *cells: dict[str, Any]) -> dict[str, Any]:
    """A measurement of a suite in one run."""
    run = {
        "command": "python -m benchmarks.side_by_side", "machine": MACHINE, "ceilings": CEILINGS, "libraries": ["a"],
        "payload": {"name": "sm90", "commit": "0123456789ab", "library_sha256": "f" * 64}, "apart": False,
    }  # fmt: skip
    return {"suite": suite, "method": {"graph": "G.", "rested": "R."}, "runs": [run], "cells": list(cells)}
