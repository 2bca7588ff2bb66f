"""Checks of a wheel's libraries: their GLIBC, what they need, and the GPU code in them."""

from __future__ import annotations

import shutil
import sys

import pytest
from cuobjdump import CuobjdumpError, DeviceCode

from ci.release.checks import machine_code
from tests.packaging.release.conftest import ARCH, cubin
from tests.packaging.release.fake_wheels import CUBIN_SHA256, KERNEL, MACHINE, files_of, library


def test_device_code_of_another_arch_is_caught(case, device):
    for payload, arch in (("sm90", "sm_90"), ("sm90", "sm_100"), ("sm100", "sm_100a")):
        good = case(payload)
        device["code"] = DeviceCode((cubin(arch, KERNEL), cubin(ARCH[payload], KERNEL)))
        (problem,) = good.own_faults()["arch"]
        assert f"machine code for {arch}, the registry is for" in problem


def test_ptx_is_caught(case, device):
    good = case("sm90")
    device["code"] = DeviceCode((cubin("sm_90a", KERNEL),), ("libmla_sm90.1.sm_90a.ptx",))
    assert good.own_faults()["arch"] == ["mla_kernels_sm90/libmla_sm90.so holds PTX: libmla_sm90.1.sm_90a.ptx"]


def test_a_kernel_of_no_variant_is_caught_unless_it_is_listed_as_shared(case, device):
    good = case("sm90")
    device["code"] = DeviceCode((cubin("sm_90a", KERNEL, "_Z4more"),))
    assert good.own_faults()["kernels"] == [
        "kernel _Z4more is in mla_kernels_sm90/libmla_sm90.so, but it is no variant's"
    ]
    shared = [{"symbol": "_Z4more", "cubin_sha256": CUBIN_SHA256}]
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
    with pytest.raises(CuobjdumpError, match="cuobjdump is not installed"):
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
elif Path(arguments[-1]).read_bytes() == b"one" and "-res-usage" in arguments:
    print(" Common:\\n  GLOBAL:0\\n Function _Z1bv:\\n  REG:29 STACK:0 SHARED:16\\n Function _Z1av:\\n  REG:32 STACK:8")
elif Path(arguments[-1]).read_bytes() == b"one":
    print("\\t\\tFunction : _Z1bv\\n        /*0000*/  {instruction} ;  /* 0x0000000000000001 */")
    print("                                       /* 0x0000000000000002 */")
"""


def test_the_output_of_cuobjdump_is_read(monkeypatch, tmp_path):
    tool = tmp_path / "cuobjdump"
    tool.write_text(
        CUOBJDUMP.format(python=sys.executable, instruction="HGMMA.64x64x16.F32 R24, R56, gdesc[UR4], gsb0")
    )
    tool.chmod(0o755)
    (tmp_path / "c++filt").symlink_to(shutil.which("c++filt"))
    monkeypatch.setenv("PATH", str(tmp_path))
    machine_code.device_code.cache_clear()
    code = machine_code.device_code(b"\x7fELF, two cubins")
    one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert code.ptx == ("library.1.sm_90a.ptx",)
    assert [(cubin.arch, len(cubin.kernels)) for cubin in code.cubins] == [("sm_90a", 2), ("sm_90a", 0)]
    b, a = code.kernels
    assert (b.symbol, b.name, b.cubin_sha256) == ("_Z1bv", "b()", one)
    assert (b.registers, b.stack_bytes, b.shared_bytes, a.registers, a.stack_bytes) == (29, 0, 16, 32, 8)
    assert (b.tensor_core_instructions, b.wgmma_groups, a.instructions) == (1, 1, ())
    (instruction,) = b.instructions
    assert instruction.endswith("gsb0 ; 0x0000000000000001 0x0000000000000002")


def test_a_wheel_whose_kernel_lost_its_tensor_cores_is_caught(case, device):
    good = case("sm90")
    assert good.own_faults() == {}
    device["code"] = DeviceCode((cubin("sm_90a", KERNEL, code=("IMAD R0, R1, R2, R3 ;",)),))
    (problem,) = good.own_faults()["instructions"]
    assert problem.startswith("decode: void mla::sm90::decode::kernel<")
    assert problem.endswith("no tensor-core instruction")
