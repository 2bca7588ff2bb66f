"""Compile parts of a payload without nvcc, with a test's stand-ins for CUDA, and run them."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def check(folder: Path, *sources: str, cuda: bool = True, flags: tuple[str, ...] = ()) -> None:
    """Build a program of ``sources``, paths from the root, in ``folder``, and fail with what it prints."""
    program = folder / "host"
    folders = [ROOT, ROOT / "package/csrc", ROOT / "generated/include", *([cuda_headers()] if cuda else [])]
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program)]
    command += [f"-I{folder}" for folder in folders] + [str(ROOT / source) for source in sources]
    subprocess.run([*command, *flags, "-lpthread"], check=True)
    done = subprocess.run([str(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def cuda_headers() -> Path:
    """Return where pip or the system put the runtime's headers."""
    spec = find_spec("nvidia.cu13") if find_spec("nvidia") else None
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        folders.append(Path(nvcc).resolve().parents[1])
    for folder in folders:
        if (folder / "include" / "cuda_runtime_api.h").exists():
            return folder / "include"
    reason = "no CUDA headers (nox -s units installs them)"
    if os.environ.get("MLA_KERNELS_HEADERS") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(f"not run: {reason}")
