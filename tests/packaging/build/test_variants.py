"""A variant whose instantiation is missing fails the build; ``test_guide`` builds one that was added."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = ("codegen", "templates", "generated", "package", "pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt")


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


def test_a_deleted_instantiation_fails_the_build(copy):
    unit = copy / "generated" / "cpu" / "decode_qfp32_direct_split.cpp"
    line = next(line for line in unit.read_text().splitlines() if "DType::e4m3" in line)
    unit.write_text(unit.read_text().replace(line, ""))
    built = build(copy)
    assert built.returncode != 0
    assert "undefined reference" in built.stderr + built.stdout
