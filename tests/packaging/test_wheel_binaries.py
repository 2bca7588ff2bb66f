"""Checks of a wheel's libraries: their GLIBC, what they need, and the GPU code in them."""

from __future__ import annotations

import sys

import pytest

from ci.release.checks import machine_code, tools
from ci.release.checks.machine_code import Cubin, DeviceCode
from tests.packaging.conftest import ARCH
from tests.packaging.fake_wheels import CUBIN, KERNEL, MACHINE, files_of, library


def test_device_code_of_another_arch_is_caught(case, device):
    for payload, arch in (("sm90", "sm_90"), ("sm90", "sm_100"), ("sm100", "sm_100a")):
        good = case(payload)
        device["code"] = DeviceCode((Cubin(arch, CUBIN, (KERNEL,)), Cubin(ARCH[payload], CUBIN, (KERNEL,))), ())
        (problem,) = good.own_faults()["arch"]
        assert f"machine code for {arch}, the registry is for" in problem


def test_ptx_is_caught(case, device):
    good = case("sm90")
    device["code"] = DeviceCode((Cubin("sm_90a", CUBIN, (KERNEL,)),), ("libmla_sm90.1.sm_90a.ptx",))
    assert good.own_faults()["arch"] == ["mla_kernels_sm90/libmla_sm90.so holds PTX: libmla_sm90.1.sm_90a.ptx"]


def test_a_kernel_of_no_variant_is_caught_unless_it_is_listed_as_shared(case, device):
    good = case("sm90")
    device["code"] = DeviceCode((Cubin("sm_90a", CUBIN, (KERNEL, "_Z4more")),), ())
    assert good.own_faults()["kernels"] == [
        "kernel _Z4more is in mla_kernels_sm90/libmla_sm90.so, but it is no variant's"
    ]
    shared = [{"symbol": "_Z4more", "cubin_sha256": CUBIN}]
    good.change("manifest.json", lambda said: said.update(shared=shared))
    assert good.own_faults() == {}


@pytest.fixture
def bound(tmp_path):
    """A library bound to ``soname``, from which it uses a symbol of ``version``."""

    def make(soname: str, version: str) -> bytes:
        script = tmp_path / "versions.map"
        script.write_text(f"{version} {{ global: used; }};")
        library(tmp_path, "int used(void) { return 1; }", soname=soname, links=(f"-Wl,--version-script={script}",))
        return library(tmp_path, "int used(void); int f(void) { return used(); }", links=(tmp_path / soname,))

    return make


@pytest.mark.parametrize(
    ("version", "tag", "problem"),
    [
        ("GLIBC_2.28", "manylinux_2_28", None),
        ("GLIBC_2.29", "manylinux_2_28", "needs GLIBC_2.29, which"),
        ("GLIBC_2.34", "manylinux_2_28", "needs GLIBC_2.34, which"),
        ("GLIBC_2.34", "manylinux_2_34", None),
        ("GLIBC_2.28", "manylinux_2_17", "needs GLIBC_2.28, which"),
        ("GLIBC_2.28", "manylinux2014", "needs GLIBC_2.28, which"),
        ("GLIBCXX_3.4.30", "manylinux_2_28", "needs GLIBCXX_3.4.30, which"),
        ("GLIBC_2.28", "manylinux_9_99", "is no platform of manylinux"),
    ],
)
def test_a_library_too_new_for_the_tag_is_caught(tmp_path, case, bound, version, tag, problem):
    good = case("sm90")
    good.files = files_of(good.row, bound("libc.so.6", version))
    good.retag(f"{tag}_{MACHINE}")
    found = good.own_faults()
    assert found.keys() == ({"GLIBC"} if problem else set()), found
    assert problem is None or problem in found["GLIBC"][0]


def test_the_oldest_platform_of_a_compressed_tag_counts(case, bound):
    good = case("sm90")
    good.files = files_of(good.row, bound("libc.so.6", "GLIBC_2.28"))
    good.retag(f"manylinux_2_17_{MACHINE}.manylinux_2_28_{MACHINE}")
    assert good.own_faults()["GLIBC"][0].endswith(f"needs GLIBC_2.28, which manylinux_2_17_{MACHINE} does not have")


def test_a_library_of_another_machine_is_caught(case):
    good = case("sm90")
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]
    good.retag(f"manylinux_2_28_{other}")
    assert "is no platform of manylinux" in good.own_faults()["GLIBC"][0]


@pytest.mark.parametrize(
    "soname", ["libcuda.so.1", "libcudart.so.13", "libtorch.so", "libc10.so", "libpython3.10.so.1.0", "libnvrtc.so.13"]
)
def test_a_forbidden_library_is_caught(case, bound, soname):
    good = case("sm90")
    good.files = files_of(good.row, bound(soname, "V_1"))
    assert good.own_faults() == {"NEEDED": [f"mla_kernels_sm90/libmla_sm90.so needs {soname}"]}


def test_a_missing_cuobjdump_is_a_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    machine_code.device_code.cache_clear()
    with pytest.raises(tools.ToolError, match="cuobjdump is not installed"):
        machine_code.device_code(b"\x7fELF")


CUOBJDUMP = """#!{python}
import sys
from pathlib import Path
arguments = sys.argv[1:]
if "-lptx" in arguments:
    print("PTX file    1: library.1.sm_90a.ptx")
elif "-xelf" in arguments:
    Path("library.1.sm_90a.cubin").write_bytes(b"one")
    Path("library.2.sm_90a.cubin").write_bytes(b"two")
elif Path(arguments[-1]).read_bytes() == b"one":
    print(" Common:\\n  GLOBAL:0\\n Function _Z1bv:\\n  REG:29\\n Function _Z1av:\\n  REG:32")
"""


def test_the_output_of_cuobjdump_is_read(monkeypatch, tmp_path):
    tool = tmp_path / "cuobjdump"
    tool.write_text(CUOBJDUMP.format(python=sys.executable))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    machine_code.device_code.cache_clear()
    code = machine_code.device_code(b"\x7fELF, two cubins")
    one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert code.ptx == ("library.1.sm_90a.ptx",)
    assert code.cubins[0] == Cubin("sm_90a", one, ("_Z1av", "_Z1bv"))
    assert [cubin.kernels for cubin in code.cubins] == [("_Z1av", "_Z1bv"), ()]
