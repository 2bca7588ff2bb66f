"""Wheels do not depend on where or how they were built: two clones, a compile cache, parts of a build farm.

A copy of the repository is trimmed to few variants of sm100, whose reduction is CUTLASS's and so includes CuTe.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ci.build.stage import FOLDER

ROOT = Path(__file__).parents[3]
UNITS = {
    "gather_kv", "gather_kv_d320_v256", "gather_kv_d512", "merge_states_reduction", "merge_states_rows", "registry",
    "store_kv", "store_kv_d320_v256", "store_kv_d512",
}  # fmt: skip


def run(folder: Path, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def build(folder: Path, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(folder, sys.executable, "-m", "ci.build", "sm100", *arguments, check=check, **environment)


def wheel(folder: Path) -> Path:
    (path,) = folder.glob("dist/mla_kernels_sm100-*.whl")
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def report(folder: Path) -> dict:
    return json.loads((folder / "dist" / "sm100.build.json").read_text())


def manifest(path: Path) -> dict:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("mla_kernels_sm100/manifest.json"))


def commit(folder: Path, message: str) -> None:
    run(folder, "git", "add", "--all")
    run(folder, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-qm", message)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A repository of this working tree with few variants."""
    folder = tmp_path_factory.mktemp("small")
    listed = run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    matrix = folder / "codegen" / "matrix" / "sm100.toml"
    tables = re.split(r"^(?=\[\[)", matrix.read_text(), flags=re.MULTILINE)
    kept = [table for table in tables if not re.match(r'\[\[kernel\]\]\nop = "(sparse_)?decode"', table)]
    matrix.write_text("".join(kept))
    run(folder, sys.executable, "-m", "codegen", "generate")
    run(folder, "git", "init", "-q")
    commit(folder, "few variants")
    return folder


@pytest.fixture(scope="module")
def clone(small, tmp_path_factory):
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("clones") / name
        run(small, "git", "clone", "-q", str(small), str(folder))
        return folder

    return make


@pytest.fixture(scope="module")
def first(clone) -> Path:
    """A clone whose wheel was built from nothing, but for the compile cache."""
    folder = clone("first")
    build(folder, "--fresh")
    return folder


def test_two_clones_build_the_same_wheel(first, clone, tmp_path):
    """Neither the clone's path nor that of the stage is in it; only the tools are shared."""
    other, elsewhere = clone("second, with another path"), tmp_path / "another_stage"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "tools").symlink_to(FOLDER / "tools")
    build(other, "--fresh", "--no-cache", MLA_KERNELS_STAGE=str(elsewhere))
    compiled = report(other)["units"]
    assert set(compiled) >= UNITS
    assert sha256(wheel(other)) == sha256(wheel(first))
    kernels = manifest(wheel(other))["variants"]["sm100f_merge_states_ifp32_obf16_reduction"]["kernels"]
    assert [kernel for kernel in kernels if "cutlass" in kernel["symbol"]]


def test_three_shards_link_to_the_same_wheel(first, clone):
    farm = clone("farm")
    for part in (1, 2, 3):
        build(farm, "--shard", f"{part}/3", "--fresh")
    parts = sorted(farm.glob("dist/shards/sm100-*-of-3"))
    held = [{path.stem for path in part.glob("*.o")} for part in parts]
    assert len(held) == 3
    assert all(held)
    assert sorted(name for part in held for name in part) == sorted(UNITS)
    build(farm, "--merge", "--fresh")
    assert not set(report(farm)["units"]) & UNITS
    assert sha256(wheel(farm)) == sha256(wheel(first))

    shutil.rmtree(parts[1])
    before = sha256(wheel(farm))
    refused = build(farm, "--merge", check=False)
    assert refused.returncode != 0
    assert "cannot be linked" in refused.stderr
    assert "missing, twice or unknown" in refused.stderr
    assert sha256(wheel(farm)) == before


def test_a_row_added_compiles_its_unit_alone(first):
    point = ["op=merge_states", "arch=sm100f", "in_dtype=bf16", "out_dtype=fp32", "schedule=rows"]
    build(first)
    try:
        added = run(first, sys.executable, "-m", "codegen", "add", *point).stdout.splitlines()
        assert "sm100f_merge_states_ibf16_ofp32_rows" in added
        build(first)
        assert set(report(first)["units"]) == {"merge_states_rows", "registry"}
        made = manifest(wheel(first))
        assert made["dirty"]
        assert made["variants"]["sm100f_merge_states_ibf16_ofp32_rows"]["kernels"]
    finally:
        run(first, "git", "checkout", "-q", ".")


def test_the_machines_own_nvcc_is_not_used(first, tmp_path):
    """A build with another nvcc first on the path is the one without it."""
    trap = tmp_path / "nvcc"
    trap.write_text("#!/bin/sh\nexit 1\n")
    trap.chmod(trap.stat().st_mode | stat.S_IXUSR)
    build(
        first, "--fresh", PATH=f"{tmp_path}:{os.environ['PATH']}", CUDACXX=str(trap), CXXFLAGS="-O0", CPATH="/nowhere"
    )
    made = manifest(wheel(first))
    assert made["compilers"]["cuda"].startswith("13.4.")
    assert made["flags"]["cxx"] == "-O3 -DNDEBUG"


def test_a_failed_build_says_why_and_leaves_the_wheel(first):
    before = sha256(wheel(first))
    unit = first / "package" / "csrc" / "cuda" / "gather_kv" / "gather_kv.cuh"
    text = unit.read_text()
    try:
        unit.write_text(text + "\n#error on purpose\n")
        failed = build(first, check=False)
    finally:
        unit.write_text(text)
    assert failed.returncode != 0
    assert "on purpose" in failed.stderr
    assert sha256(wheel(first)) == before
