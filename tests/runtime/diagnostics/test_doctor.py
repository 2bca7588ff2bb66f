"""The doctor finds what was broken on purpose, says it by name, and leaves what is sound in use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mla_kernels as mla
import pytest
import torch
from mla_kernels import _launcher, reference
from mla_kernels.diagnostics import doctor, smoke_test
from mla_kernels.diagnostics.cli import main
from mla_kernels.payloads.distributions import reinstall

from tests.runtime.site import CPU, Site, sm90_registry
from tests.support.native.fake_cuda import A100, H200

Checks = dict[str, doctor.Check]
REINSTALL = f"reinstall it: {reinstall('mla-kernels-toy')}"


@pytest.fixture
def examine(rediscover) -> Callable[[], Checks]:
    """Return a function that runs the doctor with nothing cached, and gives its checks by name."""

    def call() -> Checks:
        checks = doctor.examine()
        named = {check.name: check for check in checks}
        assert len(named) == len(checks)
        return named

    return call


@pytest.fixture
def no_driver(use, tmp_path) -> None:
    use(tmp_path / "libcuda.so.1")


pytestmark = pytest.mark.usefixtures("no_driver")


def faults(checks: Checks) -> set[str]:
    return {name for name, check in checks.items() if check.state == "fault"}


def assert_fault(checks: Checks, name: str, *parts: str) -> None:
    assert checks[name].state == "fault", checks[name]
    for part in parts:
        assert part in checks[name].detail


def test_a_sound_installation(examine):
    checks = examine()
    assert {name: check.state for name, check in checks.items()} == {
        "core": "ok",
        "distribution mla-kernels": "ok",
        "files of mla-kernels": "ok",
        "manifest of cpu": "ok",
        "CUDA driver": "not run",
        "payload cpu": "ok",
        "launch of cpu": "ok",
    }
    assert f"mla-kernels {mla.__version__}, launcher of ABI {_launcher.ABI_HASH}" in checks["core"].detail
    assert "the CUDA driver cannot be loaded" in checks["CUDA driver"].detail
    assert "cpu_decode_qbf16_kvbf16_obf16_direct_split on cpu: maximum error " in checks["launch of cpu"].detail
    assert "against the reference (torch inputs)" in checks["launch of cpu"].detail


def test_a_second_payload(examine, site):
    site.install("toy")
    checks = examine()
    assert not faults(checks)
    assert checks["files of mla-kernels-toy"].detail == "4 files have the sha256 that RECORD states"
    assert checks["launch of toy"].detail.startswith(
        "cpu_decode_qbf16_kvbf16_obf16_direct_split on cpu: maximum error "
    )


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("at", [4, 100, CPU.joinpath("libmla_cpu.so").stat().st_size // 2, -1])
def test_a_flipped_bit_of_the_library(examine, site, at):
    library = site.install("toy") / "libmla_toy.so"
    flip(library, at)
    checks = examine()
    assert faults(checks) == {"manifest of toy", "files of mla-kernels-toy"}
    assert_fault(checks, "manifest of toy", f"{library} has sha256 ", "manifest.json states", REINSTALL)
    assert_fault(checks, "files of mla-kernels-toy", f"{library} differs from RECORD", REINSTALL)
    assert checks["payload toy"].state == "not run"
    assert "not loaded" in checks["payload toy"].detail
    assert "launch of toy" not in checks
    assert (checks["payload cpu"].state, checks["launch of cpu"].state) == ("ok", "ok")


def test_a_truncated_library(examine, site):
    library = site.install("toy") / "libmla_toy.so"
    library.write_bytes(library.read_bytes()[:100_000])
    checks = examine()
    assert faults(checks) == {"manifest of toy", "files of mla-kernels-toy"}
    assert checks["payload toy"].state == "not run"


def test_a_tampered_registry(examine, site):
    path = site.install("toy") / "registry.json"
    path.write_text(path.read_text().replace('"priority": 0', '"priority": 9', 1))
    checks = examine()
    assert faults(checks) == {"manifest of toy", "files of mla-kernels-toy"}
    assert_fault(checks, "manifest of toy", f"{path} has sha256 ")


def test_a_tampered_manifest_that_fits_the_tampered_library(examine, site):
    folder = site.install("toy")
    flip(folder / "libmla_toy.so", -1)
    site.manifest("toy")
    checks = examine()
    assert faults(checks) == {"files of mla-kernels-toy"}
    for name in ("libmla_toy.so", "manifest.json"):
        assert_fault(checks, "files of mla-kernels-toy", f"{folder / name} differs from RECORD", REINSTALL)
    assert checks["payload toy"].state == "not run"


def test_a_manifest_of_other_variants(examine, site):
    site.install("toy")
    site.manifest("toy", variants={"toy_other": {}})
    site.record("toy")
    assert_fault(examine(), "manifest of toy", "do not hold the same variants: ", "toy_other", REINSTALL)


def test_a_missing_manifest(examine, site):
    path = site.install("toy") / "manifest.json"
    path.unlink()
    checks = examine()
    assert_fault(checks, "manifest of toy", f"{path} is missing", REINSTALL)
    assert_fault(checks, "files of mla-kernels-toy", f"{path} cannot be read")
    assert checks["payload toy"].state == "not run"


def test_a_missing_folder(examine, site):
    folder = site.install("toy")
    folder.rename(folder.with_name("elsewhere"))
    checks = examine()
    says = f"package mla_toy_payload of distribution mla-kernels-toy is not in {site.path}; {REINSTALL}"
    assert_fault(checks, "manifest of toy", says)
    assert_fault(checks, "payload toy", f"rejected: {says}")


def test_a_registry_that_is_none(examine, site):
    site.install("toy", registry="{}")
    checks = examine()
    assert_fault(checks, "manifest of toy", "registry.json cannot be read: KeyError", REINSTALL)
    assert_fault(checks, "payload toy", "rejected: ", "registry.json cannot be read: KeyError")


def test_another_version(examine, site):
    site.install("toy", version="99.1")
    checks = examine()
    assert faults(checks) == {"payload toy"}
    assert_fault(checks, "payload toy", "rejected: distribution mla-kernels-toy is version 99.1")


def test_a_wrong_abi(examine, site):
    site.install("toy")
    site.manifest("toy", abi_hash="0000000000000000")
    site.record("toy")
    checks = examine()
    assert faults(checks) == {"payload toy"}
    assert_fault(checks, "payload toy", "was built with ABI 0000000000000000")


def test_two_versions(examine, site):
    site.install("toy")
    site.describe("mla-kernels-toy", "0.0.9", toy="mla_toy_payload")
    checks = examine()
    for name in ("distribution mla-kernels-toy", "payload toy"):
        assert_fault(checks, name, "several versions of mla-kernels-toy are installed", "pip uninstall -y")


def test_a_hidden_copy_of_the_same_version_is_said(examine, site, tmp_path_factory, monkeypatch):
    site.install("toy")
    other = Site(tmp_path_factory.mktemp("other"))
    other.install("toy")
    monkeypatch.syspath_prepend(other.path)
    checks = examine()
    assert not faults(checks)
    assert f"the same version in {site.path} is not used" in checks["distribution mla-kernels-toy"].detail


def test_no_record(examine, site):
    site.install("toy")
    (info,) = site.path.glob("*.dist-info")
    (info / "RECORD").unlink()
    checks = examine()
    assert checks["files of mla-kernels-toy"].state == "not run"
    assert "RECORD is missing or states no sha256" in checks["files of mla-kernels-toy"].detail
    assert not faults(checks)


def test_a_record_that_lacks_the_library(examine, site):
    library = site.install("toy") / "libmla_toy.so"
    (info,) = site.path.glob("*.dist-info")
    rows = (info / "RECORD").read_text().splitlines(keepends=True)
    (info / "RECORD").write_text("".join(row for row in rows if library.name not in row))
    assert_fault(examine(), "files of mla-kernels-toy", f"{library} is not in RECORD", REINSTALL)


def test_a_core_that_another_copy_hides(examine, monkeypatch, tmp_path):
    monkeypatch.setattr(_launcher, "__file__", str(tmp_path / "_launcher.abi3.so"))
    assert_fault(
        examine(), "core", f"{tmp_path / '_launcher.abi3.so'} is in use, but the distribution mla-kernels lies in"
    )


def test_a_core_without_entry_points(examine, monkeypatch):
    monkeypatch.setattr(doctor, "installed", dict)
    assert_fault(examine(), "core", "no distribution mla-kernels names a payload; reinstall it: in a clone, nox")


def test_a_wrong_result(examine, site, monkeypatch):
    site.install("toy")
    right = reference.decode
    monkeypatch.setattr(reference, "decode", lambda **arguments: [2 * each for each in right(**arguments)])
    checks = examine()
    assert faults(checks) == {"launch of cpu", "launch of toy"}
    assert_fault(checks, "launch of cpu", "where the reference has", "please report it")


def test_a_launch_that_raises(examine, monkeypatch):
    def bound(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(smoke_test, "bound", bound)
    assert_fault(examine(), "launch of cpu", "RuntimeError: CUDA error: an illegal memory access was encountered")


def test_without_torch_and_numpy_nothing_is_launched(examine, monkeypatch):
    for name in ("torch", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    check = examine()["launch of cpu"]
    assert check.state == "not run"
    assert "pip install torch" in check.detail


def test_a_gpu_payload_without_a_device(examine, site):
    site.install("sm90", registry=sm90_registry())
    checks = examine()
    assert not faults(checks)
    assert checks["CUDA driver"].state == "not run"
    assert checks["payload sm90"].state == "ok"
    assert checks["launch of sm90"].state == "not run"
    needs = "arch sm90a needs a device of compute capability 9.0; the CUDA driver cannot be loaded"
    assert checks["launch of sm90"].detail.startswith(needs)


def test_a_gpu_payload_of_another_arch(examine, site, play):
    site.install("sm90", registry=sm90_registry())
    play(A100)
    checks = examine()
    assert not faults(checks)
    assert checks["CUDA driver"].detail == "it serves CUDA 13.0; device 0 (NVIDIA A100, compute capability 8.0)"
    assert checks["launch of sm90"].state == "not run"
    assert (
        "here is device 0 (NVIDIA A100, compute capability 8.0), served by no arch" in checks["launch of sm90"].detail
    )


def test_a_gpu_payload_whose_device_this_torch_does_not_see(examine, site, play, monkeypatch):
    site.install("sm90", registry=sm90_registry())
    play(H200)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    checks = examine()
    assert not faults(checks)
    assert checks["launch of sm90"].state == "not run"
    assert "finds no CUDA device: pip install a torch that has CUDA" in checks["launch of sm90"].detail
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "its inputs are made by torch (" in examine()["launch of sm90"].detail


@pytest.mark.parametrize(
    ("macros", "part"),
    [({"VERSION": 12080}, "payloads need CUDA 13.0, so driver 580 or later"), ({"INIT": 803}, "cuInit failed with")],
)
def test_a_driver_that_cannot_run_an_installed_gpu_payload(examine, site, play, macros, part):
    play(H200, **macros)
    checks = examine()
    assert checks["CUDA driver"].state == "not run"
    assert part in checks["CUDA driver"].detail
    site.install("sm90", registry=sm90_registry())
    checks = examine()
    assert faults(checks) == {"CUDA driver"}
    assert_fault(checks, "CUDA driver", part, "sm90 cannot run until that is mended")
    assert checks["launch of sm90"].state == "not run"


def test_what_lookups_loaded_is_left_alone(examine, rediscover):
    rediscover()
    kernel = mla.lookup(op="decode", q_dtype="bf16", arch="cpu")
    examine()
    assert mla.lookup(op="decode", q_dtype="bf16", arch="cpu") is kernel


def test_the_command(capsys, site, rediscover, monkeypatch):
    assert main(("doctor",)) == 0
    assert "all checks passed" in capsys.readouterr().out
    flip(site.install("toy") / "libmla_toy.so", -1)
    rediscover()
    assert main(("doctor", "--json")) == 1
    told = json.loads(capsys.readouterr().out)
    assert {check["name"] for check in told if check["state"] == "fault"} == {
        "manifest of toy",
        "files of mla-kernels-toy",
    }
    assert main(("doctor",)) == 1
    assert f"2 of {len(told)} checks found a fault" in capsys.readouterr().out
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(("doctor",)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(told) + 1
    assert any(line.startswith("fault   manifest of toy: ") for line in lines)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(("doctor",)) == 1
    narrow = capsys.readouterr().out.splitlines()
    assert len(narrow) > len(lines)
    assert all(len(line) <= 80 or " " not in line.strip() for line in narrow)


def test_the_command_survives_a_library_that_would_end_the_process(site):
    folder = site.install("toy")
    library = folder / "libmla_toy.so"
    library.write_bytes(library.read_bytes()[:8192])
    code = f"""
import sys
sys.path.insert(0, {str(site.path)!r})
from mla_kernels.diagnostics.cli import main
sys.exit(main(["doctor", "--json"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    states = {check["name"]: check["state"] for check in json.loads(done.stdout)}
    assert states["manifest of toy"] == "fault"
    assert states["launch of cpu"] == "ok"
