"""``info`` tells what a report of a problem needs, on any installation, without importing what it reports on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import mla_kernels as mla
import pytest
from mla_kernels.compat import vllm_plugin
from mla_kernels.diagnostics import info
from mla_kernels.diagnostics.cli import main

from tests.support.native.fake_cuda import H200

ROOT = Path(__file__).parents[3]


@pytest.fixture
def told(capsys):
    """Return a function that runs the command; its text and what it says as JSON."""

    def call() -> tuple[str, dict]:
        assert main(("info",)) == 0
        text = capsys.readouterr().out
        assert main(("info", "--json")) == 0
        return text, json.loads(capsys.readouterr().out)

    return call


def test_what_is_told(told):
    text, found = told()
    assert f"mla-kernels {mla.__version__} (ABI {found['abi_hash']})" in text
    assert (found["version"], found["python"]) == (mla.__version__, platform.python_version())
    assert found["glibc"] in text
    assert [(payload["payload"], payload["distribution"]) for payload in found["payloads"]] == [("cpu", "mla-kernels")]
    assert re.search(r"runs on the host; mla-kernels in \S+/mla_kernels/payloads/cpu$", text, re.MULTILINE)
    assert found["payloads"][0]["variants"] == len(mla.variants())
    assert found["devices"][-1]["arch"] == "cpu"
    assert found["packages"]["torch"] == importlib.metadata.version("torch")
    assert re.search(rf"^  torch +{re.escape(found['packages']['torch'])}$", text, re.MULTILINE)
    assert re.search(r"^  vllm +not installed$", text, re.MULTILINE)
    assert "Rejected" not in text


def test_no_framework_is_imported_and_none_is_needed():
    code = (
        "import sys; sys.modules.update(rich=None, shtab=None)\n"
        "from mla_kernels.diagnostics.cli import main\n"
        "status = main(['info'])\n"
        "assert not {'torch', 'numpy', 'vllm', 'sglang', 'mla_kernels.diagnostics.doctor'} & set(sys.modules)\n"
        "sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("wanted", "isa"), [("baseline", "baseline"), ("z80", None)])
def test_the_instruction_set_is_that_of_the_kernels(wanted, isa):
    environment = {**os.environ, "MLA_KERNELS_CPU_ISA": wanted}
    command = [sys.executable, "-m", "mla_kernels", "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    says = isa or "none: MLA_KERNELS_CPU_ISA names an instruction set that this machine lacks"
    assert f"  CPU kernels  {says}\n" in done.stdout
    assert re.search(rf"^  MLA_KERNELS_CPU_ISA +{re.escape(wanted)} \(", done.stdout, re.MULTILINE)


def test_every_variable_that_the_sources_read_is_explained():
    sources = [*ROOT.glob("package/csrc/**/*.cpp"), *ROOT.glob("package/mla_kernels/**/*.py")]
    read = {name for path in sources for name in re.findall(r'"(MLA_KERNELS_[A-Z_]+)"', path.read_text())}
    explained = {name for name in info.VARIABLES if name.startswith(info.PREFIX)}
    assert read - set(vllm_plugin.NAMES) == explained  # names of backends are no variables


def test_a_variable_that_nothing_reads_is_said(told, monkeypatch):
    name = f"{info.PREFIX}THREADS"
    monkeypatch.setenv(name, "4")
    text, found = told()
    assert re.search(rf"{name} +4 \(nothing reads this variable at run time\)", text)
    assert found["environment"][-1]["value"] == "4"


def test_a_gpu_and_its_driver(told, play, monkeypatch):
    play(H200)
    read = info._read
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23"
    monkeypatch.setattr(info, "_read", lambda path: version if "nvidia" in path else read(path))
    text, found = told()
    assert found["driver"]["kernel_module"] == "580.95.05"
    assert re.search(r"^  CUDA driver  CUDA 13\.\d, driver 580\.95\.05$", text, re.MULTILINE)
    assert re.search(r"^  cuda:0  NVIDIA H200, compute capability 9\.0, arch sm90a$", text, re.MULTILINE)


def test_the_commit_of_each_payload(told, site, rediscover):
    site.install("toy")
    site.manifest("toy", dirty=True)
    site.install("other")
    site.manifest("other", commit=None)
    rediscover()
    text, found = told()
    rows = {row["payload"]: row["commit"] for row in found["payloads"]}
    assert (rows["toy"], rows["other"]) == ("0123456789ab+dirty", None)
    assert "commit 0123456789ab+dirty" in text


def test_rejected_payloads_and_their_reason(told, site, rediscover):
    site.install("toy", version="99.1")
    rediscover()
    text, found = told()
    assert "Rejected payloads\n  toy  distribution mla-kernels-toy is version 99.1" in text
    assert (found["rejected"][0]["payload"], found["rejected"][0]["distribution"]) == ("toy", "mla-kernels-toy")


def test_a_payload_of_a_stranger_is_told_beside_that_of_the_core(told, site, rediscover):
    site.install("cpu", distribution="acme")
    rediscover()
    text, found = told()
    assert [(payload["payload"], payload["distribution"]) for payload in found["payloads"]] == [("cpu", "mla-kernels")]
    assert [(each["payload"], each["distribution"]) for each in found["rejected"]] == [("cpu", "acme")]
    assert text.count("  cpu  distribution acme may not bring it") == 1
