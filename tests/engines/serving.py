"""A real vLLM serves a small model with the plug-in and without it: ``nox -s engines`` runs this file.

Its name keeps it out of ``nox -s tests``, whose environment has no engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines import tiny_model
from tests.engines.compare import apart, served
from tests.engines.runs import LENGTHS, ROOT, TOKENS, Run, Told, alone, environment, start

CHUNK = 48
"""Tokens of a prompt that one step takes at most, where a run parts its prompts; three of ``LENGTHS`` are longer."""

RUNS = {
    "without": Run(plugins=""),
    "idle": Run(),
    "with": Run(override="CPU_MLA", separate=True),
    "wrong": Run(override="CPU_MLA", factor=1.01),
    "preempted": Run(override="CPU_MLA", engine={"num_gpu_blocks_override": 24, "max_model_len": 160}),
    "without, one layer": Run(plugins="", model="predicting"),
    "in chunks": Run(
        override="CPU_MLA",
        engine={
            "long_prefill_token_threshold": CHUNK,
            "enable_chunked_prefill": True,
            "enable_prefix_caching": True,
        },
    ),
    "speculating": Run(
        override="CPU_MLA",
        model="predicting",
        engine={
            # Without a name, vLLM chooses AMX_MLA for the draft on CPUs with AMX, which fails in fp32.
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 1, "attention_backend": "CPU_MLA"},
            "long_prefill_token_threshold": 32,  # the last chunk of a prompt of 33 tokens has one
        },
    ),
    "without, bf16": Run(plugins="", dtype="bfloat16"),
    "with, bf16": Run(override="CPU_MLA", dtype="bfloat16"),
    "unknown cache": Run(override="CPU_MLA", engine={"kv_cache_dtype": "fp8_e5m2"}),
}
"""Every engine that is started, by what it is."""

FP32 = 2e-3
"""How far log-probabilities of fp32 may be apart. Measured: 0.0006 of 960 at most; 0.3 where outputs are 1 % off."""
BF16_WORST, BF16_MEAN = 1.2, 0.13
"""The same of bf16, whose logits are so large here that neighbours are 0.125 apart.

Measured: 0.35 and 0.05 with AVX512-BF16, 0.56 and 0.07 with AVX2; 1.3 and 0.17 where outputs are 5 % off.
"""


@pytest.fixture(scope="session")
def told(tmp_path_factory) -> Callable[[str], Told]:
    """Start an engine of ``RUNS`` where it is first needed, and return what it told."""
    folder = tmp_path_factory.mktemp("engines")
    known: dict[str, Told] = {}

    def of(name: str) -> Told:
        if name not in known:
            known[name] = start(RUNS[name], folder / name.replace(", ", "-"))
        return known[name]

    return of


def require_equal(a: Told, b: Told) -> None:
    """Demand equal tokens, and log-probabilities as close as fp32 makes them."""
    assert a.tokens == b.tokens
    differences = apart(a, b)
    assert len(differences) > 0.9 * TOKENS * len(LENGTHS)
    assert max(differences) <= FP32


def require_launches(found: Told, dtype: str) -> None:
    """Demand that every layer of every decoding step was this package's, of the model's type."""
    assert len(found.launches) >= (TOKENS - 1) * tiny_model.LAYERS
    assert {line.split()[0] for line in found.launches} == {f"cpu_decode_q{dtype}_kv{dtype}_o{dtype}_direct_split"}


def test_tokens_and_log_probabilities_are_those_of_the_engine_alone(told):
    require_equal(served(told("without")), served(told("with")))


def test_the_engine_ran_in_processes_of_its_own(told):
    """As a server has it: the plug-in is loaded in each of three processes, the kernel runs in the last."""
    require_launches(served(told("with")), "fp32")
    assert "(EngineCore" in told("with").printed


def test_a_plugin_that_does_nothing_is_noticed(told):
    with pytest.raises(AssertionError):
        require_launches(served(told("idle")), "fp32")


def test_a_kernel_that_is_wrong_is_noticed(told):
    """Every decode of every layer was ours, all requests in one launch, and its outputs are what the engine used."""
    found = served(told("wrong"))
    assert set(found.launches) == {f"cpu_decode_qfp32_kvfp32_ofp32_direct_split {len(LENGTHS)} 1 16 512"}
    assert len(found.launches) == (TOKENS - 1) * tiny_model.LAYERS
    with pytest.raises(AssertionError):
        require_equal(told("without"), found)


def test_nothing_changes_unless_it_is_asked_for(told):
    """The package is installed and its plug-in is loaded; results are the same to the last bit."""
    idle, without = served(told("idle")), served(told("without"))
    assert idle.launches == []
    assert idle.requests == without.requests
    for found in (idle, without):
        assert "Using CPU_MLA backend." in found.printed


def test_a_request_that_is_preempted_is_resumed(told):
    found = served(told("preempted"))
    assert found.preemptions > 0
    require_launches(found, "fp32")
    require_equal(told("without"), found)


def test_prompts_come_in_chunks(told):
    """Requests decode by this package while others still bring their prompts, over a cache that it wrote."""
    found = served(told("in chunks"))
    require_launches(found, "fp32")
    batches = [int(line.split()[1]) for line in found.launches[:: tiny_model.LAYERS]]
    assert batches[:3] == [short(1), short(2), len(LENGTHS)]
    require_equal(told("without"), found)


def short(steps: int) -> int:
    """How many prompts are whole after so many steps."""
    return sum(length <= steps * CHUNK for length in LENGTHS)


def test_the_engine_still_overrules_two_options(told):
    """vLLM 0.32 turns both off for ``CPU_MLA``, in ``CpuPlatform.check_and_update_config``, on every CPU.

    Where this fails, vLLM has learnt them: then serve prompts that share a prefix, and say so in
    ``docs/migrating/vllm.md``.
    """
    found = served(told("in chunks"))
    assert (found.chunked_prefill, found.prefix_caching) == (False, False)
    assert "forcing chunked prefill and prefix caching to be disabled" in found.printed


def test_speculated_tokens_are_verified_two_at_a_time(told):
    """By a layer for multi-token prediction, most of whose tokens are right; what the model says stays what it was."""
    found = served(told("speculating"))
    assert found.accepted > TOKENS * len(LENGTHS) / 4  # of at most half of all tokens
    assert any(line.split()[2] == "2" for line in found.launches)
    require_equal(served(told("without, one layer")), found)


def test_requests_with_one_and_two_new_tokens_are_one_launch(told):
    """The last token of a prompt decodes beside tokens that are verified two at a time: 1 + 2 * 3 of one batch."""
    batches = {tuple(map(int, line.split()[1:3])) for line in told("speculating").launches}
    assert {tokens for batch, tokens in batches if batch == 1 and tokens > 2} == {7}


def test_bf16_is_close(told):
    without, found = served(told("without, bf16")), served(told("with, bf16"))
    require_launches(found, "bf16")
    differences = apart(without, found)
    assert max(differences) <= BF16_WORST
    assert sum(differences) / len(differences) <= BF16_MEAN


def test_a_cache_that_no_kernel_reads_is_refused_at_start(told):
    found = told("unknown cache")
    assert found.status != 0
    assert not found.requests
    text = "kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bfloat16, float16, float32, fp8, fp8_e4m3"
    assert text in found.printed, found.printed


def test_a_run_that_hangs_ends(monkeypatch, tmp_path):
    """With every process that it started, and with what they printed."""
    monkeypatch.setattr("tests.engines.runs.SECONDS", 2)
    child = "import os, time; print('child', os.getpid(), flush=True); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    status, printed = alone([sys.executable, "-c", parent], dict(os.environ), tmp_path / "printed.txt")
    assert status is None
    (number,) = (int(line.split()[1]) for line in printed.splitlines() if line.startswith("child"))
    assert ended(number)
    with pytest.raises(AssertionError, match="took more than 2 s"):
        start(Run(), tmp_path / "run")


def test_an_engine_ends_with_the_tests(tmp_path):
    """Also where they are killed, with every process that it started."""
    engine = (
        "import subprocess, sys, time; from tests.engines.child import end_with_parent; end_with_parent(0.1);"
        " subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid; time.sleep(600)"
    )
    tests = (
        "import os, subprocess, sys; engine = subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
        " start_new_session=True); print(engine.pid, flush=True); sys.stdin.read(); os._exit(1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", tests, engine], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        group = int(process.stdout.readline())
        for _ in range(100):
            found = [int(name) for name in os.listdir("/proc") if name.isdigit() and group_of(int(name)) == group]
            if len(found) == 2:
                break
            time.sleep(0.1)
        assert len(found) == 2
        process.stdin.close()
    assert all(ended(each) for each in found)


def group_of(process: int) -> int | None:
    """The group of a process, or None where it is gone."""
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return None


def ended(process: int) -> bool:
    """Whether a process is gone, or nobody has asked how it ended; one that was killed may take a moment."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_a_run_sees_no_variable_of_its_caller(monkeypatch, tmp_path):
    """Such as one that would give the cache 40 GiB, or let a process listen on another interface."""
    given = {"VLLM_CPU_KVCACHE_SPACE": "40", "VLLM_HOST_IP": "192.0.2.1", "VLLM_LOGGING_LEVEL": "ERROR", "HOST_IP": "x"}
    before = environment(Run(), tmp_path, tmp_path / "log")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert environment(Run(), tmp_path, tmp_path / "log") == before
