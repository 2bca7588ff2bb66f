"""Devices come from the CUDA driver, for which a stand-in is compiled; every failure has its own words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.devices import driver, machine
from mla_kernels.diagnostics.cli import main
from mla_kernels.errors import DeviceError, DTypeError, VariantNotFoundError
from mla_kernels.payloads import discovery
from mla_kernels.payloads.registry import Arch
from mla_kernels.tensors import device_of

from tests.runtime.conftest import forget
from tests.runtime.site import sm90_registry
from tests.support.native.fake_cuda import A100, B200, H200

HERE = "device 0 (NVIDIA H200, compute capability 9.0)"
ARCHS = (
    Arch("cpu", "cpu", "cpu", ()),
    Arch("sm90a", "sm90", "cuda", ((9, 0),)),
    Arch("sm100f", "sm100", "cuda", ((10, 0), (10, 3))),
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def refusal(**config: Any) -> str:
    with pytest.raises(VariantNotFoundError) as caught:
        mla.lookup(op="decode", q_dtype="bf16", **config)
    assert str(caught.value) == str(mla.explain(op="decode", q_dtype="bf16", **config))
    return str(caught.value)


def info(capsys) -> dict[str, Any]:
    assert main(("info",)) == 0
    assert driver.driver().reason in capsys.readouterr().out.replace("\n", "")
    assert main(("info", "--json")) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def assert_host_only(capsys, state: str, *parts: str) -> None:
    """Check that the driver is in ``state``, ``info`` and the CPU work, and a lookup for a GPU says why it fails."""
    asked = driver.driver()
    assert asked.state == state
    told = info(capsys)
    assert told["driver"]["state"] == state
    assert [each["device"] for each in told["devices"]] == ["cpu:0"]
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"
    text = refusal(arch="sm90a")
    assert "it cannot run here: arch sm90a needs a device of compute capability 9.0; " in text
    for part in parts:
        assert part in asked.reason
        assert part in text
        assert part in told["driver"]["reason"]


def test_no_library(use, tmp_path, capsys):
    use(tmp_path / "libcuda.so.1")
    assert_host_only(capsys, "missing", "the CUDA driver cannot be loaded", "libcuda.so.1", "not installed")


def test_library_that_is_none(use, tmp_path, capsys):
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(b"no library")
    use(path)
    assert_host_only(capsys, "missing", "the CUDA driver cannot be loaded")


def test_library_that_lacks_a_function(play, capsys):
    play(NO_ERROR_NAME="")
    assert_host_only(capsys, "missing", "lacks cuGetErrorName")


def test_init_finds_no_device(play, capsys, monkeypatch):
    play(INIT=100)
    assert_host_only(capsys, "no device", "the CUDA driver finds no device")
    assert driver.driver().version == "13.0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    forget()
    assert_host_only(capsys, "no device", "the CUDA driver finds no device with CUDA_VISIBLE_DEVICES=''")


def test_no_device(play, capsys):
    play(COUNT=0)
    assert_host_only(capsys, "no device", "the CUDA driver finds no device")


def test_init_fails_after_a_fork(play, capsys):
    play(INIT=3)
    parts = ("cuInit failed with CUDA_ERROR_NOT_INITIALIZED (3)", "CUDA was initialised before this process was forked")
    assert_host_only(capsys, "failed", *parts)


@pytest.mark.parametrize(
    ("status", "name"), [(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"), (12345, "an unknown error (12345)")]
)
def test_init_fails_otherwise(play, capsys, status, name):
    play(INIT=status)
    assert_host_only(capsys, "failed", f"the CUDA driver's cuInit failed with {name}")
    assert "fork" not in driver.driver().reason


def test_old_driver_knows_its_devices_but_runs_no_payload(play, capsys):
    play(H200, VERSION=12080)
    reason = "the CUDA driver serves CUDA 12.8; payloads need CUDA 13.0, so driver 580 or later"
    assert (driver.driver().state, driver.driver().reason) == ("outdated", reason)
    told = info(capsys)
    assert [(each["device"], each["arch"]) for each in told["devices"]] == [("cuda:0", "sm90a"), ("cpu:0", "cpu")]
    for config in ({}, {"arch": "sm90a"}):
        assert f"arch sm90a needs a device of compute capability 9.0; {reason}; arch='cpu' runs" in refusal(**config)
    assert mla.lookup(op="decode", q_dtype="bf16", arch="cpu").variant.arch == "cpu"


def test_one_h200(play, capsys):
    play(H200)
    told = info(capsys)
    assert told["driver"] == {"state": "ready", "reason": None, "cuda": "13.0", "kernel_module": None}
    cuda, cpu = told["devices"]
    assert cuda == {"device": "cuda:0", "arch": "sm90a", "capability": "9.0", "description": "NVIDIA H200"}
    assert (cpu["device"], cpu["arch"], cpu["capability"]) == ("cpu:0", "cpu", None)
    assert "CUDA driver  CUDA 13.0\n" in (main(("info",)), capsys.readouterr().out)[1]


def test_payload_of_the_device_is_not_installed(play):
    play(H200)
    assert machine.current_arch() == "sm90a"
    says = f"{HERE} is served by arch sm90a, whose payload is not installed: in a clone, nox -s wheels -- sm90 && "
    says += "pip install dist/*.whl; where an index has it, pip install 'mla-kernels[sm90]'; "
    asked, obstacle = refusal().split("\n")
    assert asked == "no variant serves op=decode arch=sm90a q_dtype=bf16 kv_dtype=bf16 out_dtype=bf16"
    assert obstacle == f"it cannot run here: {says}arch='cpu' runs on the host"
    assert refusal(arch="sm90a") == refusal()
    assert mla.explain(op="decode").as_dict()["obstacle"] == f"{says}arch='cpu' runs on the host"
    assert mla.lookup(op="decode", q_dtype="bf16", arch="cpu").variant.arch == "cpu"


def test_payload_of_the_device_was_rejected(play, site, rediscover):
    site.install("sm90", version="99.1")
    play(H200)
    rediscover()
    text = refusal()
    says = f"{HERE} is served by arch sm90a, whose payload was rejected: distribution mla-kernels-sm90 is version 99.1"
    assert says in text
    assert text.count("99.1") == text.count("nox -s wheels") == 1


def test_payload_of_the_device_is_in_use(play, site, rediscover):
    site.install("sm90", registry=sm90_registry())
    play(H200)
    rediscover()
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "sm90a"
    explanation = mla.explain(op="decode", q_dtype="bf16")
    assert (explanation.chosen.arch, explanation.obstacle) == ("sm90a", None)
    missing = refusal(kv_dtype="fp32")
    assert "nearest:" in missing
    assert "it cannot run here" not in missing


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ((), "arch sm90a needs a device of compute capability 9.0; the CUDA driver finds no device"),
        (
            (A100, B200),
            "arch sm90a needs a device of compute capability 9.0; here is device 0 (NVIDIA A100, compute capability "
            "8.0), served by no arch; device 1 (NVIDIA B200, compute capability 10.0), served by arch sm100f",
        ),
    ],
)
def test_variants_and_explain_need_no_device_but_a_lookup_does(play, site, rediscover, gpus, why):
    site.install("sm90", registry=sm90_registry())
    play(*gpus, **({} if gpus else {"COUNT": 0}))
    rediscover()
    assert mla.variants(op="decode", arch="sm90a")
    explanation = mla.explain(op="decode", arch="sm90a", q_dtype="bf16")
    assert explanation.chosen.arch == "sm90a"
    assert explanation.obstacle == why
    assert refusal(arch="sm90a").endswith(f"the only match\nbut it cannot run here: {why}")


def test_current_device_decides_where_devices_differ(play):
    library = play(H200, B200, A100)
    assert [each.arch for each in machine.devices()] == ["sm90a", "sm100f", None, "cpu"]
    assert machine.current_arch() == "sm90a"
    for ordinal, arch in enumerate(("sm90a", "sm100f", "cpu")):
        library.fake_set_current(ordinal)
        assert machine.current_arch() == arch
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(machine.current_arch()))
    thread.start()
    thread.join()
    assert found == ["sm90a"]  # the thread has no context


def test_current_device_is_not_asked_for_where_devices_are_alike(play, monkeypatch):
    play(B200, B200)
    monkeypatch.setattr(machine, "current_gpu", lambda: pytest.fail("asked"))
    assert machine.current_arch() == "sm100f"


def test_device_that_no_arch_serves_leaves_the_host(play):
    play(A100)
    assert mla.lookup(op="decode", q_dtype="bf16").variant.arch == "cpu"


def test_forked_process_asks_again(play):
    play(H200)
    assert machine.current_arch() == "sm90a"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, driver.driver().reason.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        assert "CUDA was initialised before this process was forked" in told.read()
    assert driver.driver().state == "ready"


def test_naming_the_cpu_does_not_touch_the_driver(play, problem, monkeypatch):
    play(H200)
    monkeypatch.setattr(driver, "_library", lambda: pytest.fail("asked"))
    mla.lookup(op="decode", q_dtype="bf16", arch="cpu")
    mla.explain(op="decode", arch="cpu")
    mla.variants(op="decode")


def test_import_and_cpu_lookup_load_neither_ctypes_nor_the_driver():
    code = """
import sys
import mla_kernels
mla_kernels.lookup(op="decode", q_dtype="bf16", arch="cpu")
print("ctypes" in sys.modules, mla_kernels.devices.driver.driver.cache_info().currsize)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0"]


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((9, 0), "sm90a"), ((10, 0), "sm100f"), ((10, 3), "sm100f"), ((10, 1), None), ((8, 0), None), ((12, 0), None)],
)
def test_arch_of_the_matrix(capability, arch):
    assert machine.arch_of(capability, ARCHS) == arch


def test_exact_before_family_before_baseline():
    exact = Arch("sm103a", "x", "cuda", ((10, 3),))
    family = Arch("sm100f", "x", "cuda", ((10, 0), (10, 3)))
    old, new = Arch("sm100", "x", "cuda", ((10, 0),)), Arch("sm102", "x", "cuda", ((10, 2),))
    archs = (old, family, new, exact)
    assert machine.arch_of((10, 3), archs) == "sm103a"
    assert machine.arch_of((10, 0), archs) == "sm100f"
    assert machine.arch_of((10, 3), (old, family, new)) == "sm100f"
    assert machine.arch_of((10, 3), (old, new)) == "sm102"
    assert machine.arch_of((10, 1), archs) == "sm100"
    assert machine.arch_of((11, 0), archs) is None
    assert machine.arch_of((9, 0), (exact, family, old)) is None


class Elsewhere:
    """A tensor that tells only its device, as ``torch`` or as DLPack does."""

    def __init__(self, code: int, ordinal: int) -> None:
        self.__dlpack_device__ = lambda: (code, ordinal)


def test_device_of_tensors():
    assert device_of("q", torch.zeros(1)) == ("cpu", 0)
    assert device_of("q", torch.zeros(1).numpy()) == ("cpu", 0)
    assert device_of("q", torch.zeros(1, device="meta")) == ("meta", 0)
    assert device_of("q", SimpleNamespace(is_cuda=True, get_device=lambda: 3)) == ("cuda", 3)
    assert device_of("q", Elsewhere(2, 1)) == ("cuda", 1)
    assert device_of("q", Elsewhere(13, 1)) == ("cuda", 1)
    assert device_of("q", Elsewhere(3, 0)) == ("cpu", 0)
    assert device_of("q", Elsewhere(10, 0)) == ("DLPack device 10", 0)
    with pytest.raises(DTypeError, match="q: got list; accepts a tensor"):
        device_of("q", [1])


def test_arch_for_tensors(play, use, tmp_path):
    play(H200, B200, A100)
    assert machine.arch_for("q", torch.zeros(1)) == "cpu"
    assert [machine.arch_for("q", Elsewhere(2, ordinal)) for ordinal in (0, 1)] == ["sm90a", "sm100f"]
    with pytest.raises(DeviceError) as caught:
        machine.arch_for("q", Elsewhere(2, 2))
    assert caught.value.got == "device 2 (NVIDIA A100, compute capability 8.0)"
    assert "an arch serves by compute capability: " in caught.value.accepts
    assert {"sm90a (9.0)", "sm100f (10.0 or 10.3)"} <= set(caught.value.accepts.split(": ")[1].split(", "))
    play(H200, H200)
    assert machine.arch_for("q", Elsewhere(2, 1)) == "sm90a"
    use(tmp_path / "absent.so")
    with pytest.raises(
        DeviceError, match=r"q: got cuda:0; accepts a tensor of the host, because the CUDA driver cannot"
    ):
        machine.arch_for("q", Elsewhere(2, 0))


@pytest.mark.parametrize(
    ("tensor", "place"), [(torch.zeros(1, device="meta"), "meta"), (Elsewhere(10, 0), "DLPack device 10")]
)
def test_a_tensor_of_neither_the_host_nor_cuda_is_not_taken_for_the_hosts(tensor, place):
    """Otherwise an argument that lies where it should would be the one that is refused."""
    with pytest.raises(DeviceError, match=f"q: got a tensor on {place}; accepts a tensor of the host"):
        machine.arch_for("q", tensor)


def test_a_tensor_that_no_arch_serves_names_the_rejected_payloads(play, site, rediscover):
    site.install("sm80", version="99.1")
    play(A100)
    rediscover()
    with pytest.raises(DeviceError, match=r"payload sm80 was rejected: distribution mla-kernels-sm80 is version 99.1"):
        machine.arch_for("q", Elsewhere(2, 0))


def test_registry_of_the_core_lists_every_arch():
    archs = {arch.name: arch for arch in discovery.payloads().archs}
    assert {name: archs.get(name) for name in ("cpu", "sm90a", "sm100f")} == {arch.name: arch for arch in ARCHS}
    assert discovery.payloads().found["cpu"].registry.capabilities == ()
