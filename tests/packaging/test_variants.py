"""A row added to a copy of the matrix becomes a kernel that launches; a missing instantiation is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("codegen", "templates", "generated", "package", "pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt")
LAUNCH = """
import mla_kernels as mla, torch
from mla_kernels import reference
q, kv = torch.randn(2, 1, 16, 576), torch.randn(8, 16, 576).bfloat16()
table, lengths = torch.randperm(8).int().view(2, 4), torch.tensor([64, 17], dtype=torch.int32)
kernel = mla.lookup(op="decode", arch="cpu", q_dtype="fp32", kv_dtype="bf16", page_size=16)
assert kernel.variant.name == "cpu_decode_qfp32_kvbf16_ofp32_direct_split", kernel
out, lse = kernel(q, kv, table, lengths, softmax_scale=0.1)
want, want_lse = reference.decode(q, kv, table, lengths, softmax_scale=0.1)
torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-5)
torch.testing.assert_close(lse, want_lse, rtol=1e-5, atol=1e-5)
"""


@pytest.fixture
def copy(tmp_path):
    """The sources in a folder of their own."""
    for name in PARTS:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        elif path.exists():
            shutil.copy(path, tmp_path / name)
    return tmp_path


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Configure and build ``folder`` and install it into ``folder/site``."""
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", f"--target={folder / 'site'}", "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def run(folder: Path, *command: str, site: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "site" if site else folder)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_row_added_is_built_and_launched(copy):
    point = ["op=decode", "arch=cpu", "q_dtype=fp32", "kv_dtype=bf16", "out_dtype=fp32"]
    added = run(copy, "-m", "codegen", "add", *point)
    assert added.stdout.splitlines()[0] == "cpu_decode_qfp32_kvbf16_ofp32_direct_split", added.stderr
    built = build(copy)
    assert built.returncode == 0, built.stderr
    launched = run(copy, "-c", LAUNCH, site=True)
    assert launched.returncode == 0, launched.stderr


def test_a_deleted_instantiation_fails_the_build(copy):
    unit = copy / "generated" / "cpu" / "decode_qfp32_direct_split.cpp"
    line = next(line for line in unit.read_text().splitlines() if "DType::e4m3" in line)
    unit.write_text(unit.read_text().replace(line, ""))
    built = build(copy)
    assert built.returncode != 0
    assert "undefined reference" in built.stderr + built.stdout
