"""The check of machine code notices a variant without its kernel, a spill, and a kernel without tensor cores."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("manifest", ROOT / "ci" / "manifest.py")
assert SPEC is not None
assert SPEC.loader is not None
manifest = importlib.util.module_from_spec(SPEC)
sys.modules["manifest"] = manifest
SPEC.loader.exec_module(manifest)

ELEMENTS = [
    ("half_t", "half_t"),
    ("bfloat16_t", "bfloat16_t"),
    ("float_e4m3_t", "half_t"),
    ("float_e4m3_t", "bfloat16_t"),
]


def kernels() -> list:
    """The kernels of a whole sm100 library, as ``cuobjdump`` and ``c++filt`` name them."""
    mla = "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaKernelTmaWarpspecialized<cute::tuple<int>, "
    reduction = "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaReductionKernel<"
    names = [
        f"{mla}cutlass::{element}, float, cutlass::{out}, float, "
        f"cutlass::fmha::kernel::Sm100Mla{schedule}TileScheduler, {cpasync}> >(Params)"
        for element, out in ELEMENTS
        for schedule in ("Individual", "Persistent")
        for cpasync in ("true", "false")
    ]
    names += [f"{reduction}cutlass::{out}, float, float, 128ul, 512ul, 256> >" for out in ("half_t", "bfloat16_t")]
    return [manifest.Machine(name, 255, 0, 1024, 48) for name in names]


@pytest.fixture
def wheel(tmp_path):
    """A wheel with the registry of sm100."""
    path = tmp_path / "mla_kernels_sm100-0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mla_kernels_sm100/libmla_sm100.so", b"")
        archive.write(ROOT / "generated" / "sm100" / "registry.json", "mla_kernels_sm100/registry.json")
    return path


@pytest.fixture
def problems(wheel, monkeypatch):
    """The problems found in a library that holds the given kernels."""

    def find(found: list) -> list[str]:
        monkeypatch.setattr(manifest, "machines", lambda _: found)
        monkeypatch.setattr(manifest, "_run", lambda *_, **__: "no tool\n")
        report = manifest.manifest(wheel)
        json.dumps(report)
        return report["problems"]

    return find


def test_a_whole_library_has_no_problem(problems):
    assert problems(kernels()) == []


def test_every_kernel_is_missed(problems):
    every = kernels()
    for number, kernel in enumerate(every):
        (first, *_) = problems(every[:number] + every[number + 1 :])
        assert "the library holds no kernel" in first, kernel.name


def test_a_spill_is_found(problems):
    found = kernels()
    found[3] = manifest.Machine(found[3].name, 255, 144, 1024, 48)
    assert ["144 bytes of stack" in problem for problem in problems(found)] == [True]


def test_a_kernel_without_tensor_cores_is_found(problems):
    found = kernels()
    found[0] = manifest.Machine(found[0].name, 255, 0, 1024, 0)
    assert ["no tensor-core instruction" in problem for problem in problems(found)] == [True]
