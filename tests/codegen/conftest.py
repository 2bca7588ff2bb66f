"""A small matrix on disk that tests change row by row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.expand import expand
from codegen.load import load
from codegen.model import Matrix
from codegen.schema import MATRIX
from codegen.validate import problems

ROW = """
[[kernel]]
op = "store_kv"
arch = "cpu"
in_dtype = "fp32"
kv_dtype = ["fp32", "e4m3"]
page_size = { min = 1 }
"""
ARCH = """
[[arch]]
name = "cpu"
payload = "cpu"
device = "cpu"

[[allow]]
op = "store_kv"
arch = "cpu"

[[allow]]
op = "decode"
arch = "cpu"
load = ["direct", "tma"]
num_heads = { min = 1, max = 128 }
[allow.reasons]
load = "there is no such kernel"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The real domains and formats of caches with one row of kernels."""
    for name in ("domains.toml", "formats.toml"):
        shutil.copy(MATRIX / name, tmp_path)
    (tmp_path / "cpu.toml").write_text(ARCH + ROW)
    return tmp_path


@pytest.fixture
def matrix_of(folder: Path) -> Callable[[str], Matrix]:
    """The matrix with the given text in place of the kernel rows."""

    def build(text: str, arch: str = ARCH) -> Matrix:
        (folder / "cpu.toml").write_text(arch + text)
        return load(folder)

    return build


@pytest.fixture
def problems_of(matrix_of: Callable[..., Matrix]) -> Callable[..., list[str]]:
    """The problems of the matrix with the given kernel rows."""

    def find(text: str, arch: str = ARCH) -> list[str]:
        matrix = matrix_of(text, arch)
        return problems(matrix, expand(matrix))

    return find


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of the project's matrix."""
    folder = tmp_path / "matrix"
    shutil.copytree(MATRIX, folder)
    return folder
