"""The doctor launches on each device that runs a payload, and asks for a report of what only a report can mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from mla_kernels.diagnostics import doctor, smoke_test
from mla_kernels.errors import InternalError, UnsupportedError

from tests.runtime.site import sm90_registry
from tests.support.native.fake_cuda import A100, H200

REPORT = "please report it"


@pytest.fixture
def launched(rediscover, monkeypatch, use, tmp_path):
    """Return a function that runs the doctor with another launch, and gives its checks of launches by name."""
    use(tmp_path / "libcuda.so.1")

    def call(launch) -> dict[str, doctor.Check]:
        monkeypatch.setattr(smoke_test, "launch", launch)
        return {check.name: check for check in doctor.examine() if check.name.startswith("launch of ")}

    return call


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        ((H200,), ("launch of sm90",)),
        ((A100, H200), ("launch of sm90",)),
        ((H200, A100, H200), ("launch of sm90 on cuda:0", "launch of sm90 on cuda:2")),
    ],
)
def test_each_gpu_that_runs_a_payload(launched, site, play, gpus, names):
    site.install("sm90", registry=sm90_registry())
    play(*gpus)
    checks = launched(lambda payload, ordinal: f"{payload.name} on {ordinal}")
    assert tuple(checks) == ("launch of cpu", *names)
    ordinals = [ordinal for ordinal, gpu in enumerate(gpus) if gpu == H200]
    assert [check.detail for check in checks.values()] == ["cpu on None", *(f"sm90 on {each}" for each in ordinals)]


def test_a_gpu_that_fails_is_named(launched, site, play):
    site.install("sm90", registry=sm90_registry())
    play(H200, H200)

    def launch(payload, ordinal):
        if ordinal == 1:
            raise smoke_test.WrongResultError("out holds 2")
        return "right"

    checks = launched(launch)
    assert [name for name, check in checks.items() if check.state == "fault"] == ["launch of sm90 on cuda:1"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnsupportedError("variable", "'x'", "y"), "UnsupportedError: variable: got 'x'; accepts y"),
        (torch.OutOfMemoryError("CUDA out of memory"), "OutOfMemoryError: CUDA out of memory; free memory"),
        (RuntimeError("CUDA error: out of memory"), "RuntimeError: CUDA error: out of memory; free memory"),
        (RuntimeError("can't allocate memory: 9 bytes"), "can't allocate memory: 9 bytes; free memory"),
        (MemoryError("no room"), "MemoryError: no room; free memory"),
        (InternalError("launch", "cudaErrorMemoryAllocation: out of memory"), "out of memory; free memory"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_report_of_what_the_user_can_mend(launched, error, said):
    def launch(*_):
        raise error

    check = launched(launch)["launch of cpu"]
    assert (check.state, said in check.detail, REPORT in check.detail) == ("fault", True, False), check


def test_an_instruction_set_that_there_is_not():
    command = [sys.executable, "-m", "mla_kernels", "doctor", "--json"]
    environment = {**os.environ, "MLA_KERNELS_CPU_ISA": "z80"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (check,) = (each for each in json.loads(done.stdout) if each["name"] == "launch of cpu")
    assert (done.returncode, check["state"]) == (1, "fault")
    assert "MLA_KERNELS_CPU_ISA: got z80; accepts one of " in check["detail"]
    assert REPORT not in check["detail"]
