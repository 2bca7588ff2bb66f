"""Compile a test payload with the system's compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = HERE.parents[2] / "generated" / "include"


def build(folder: Path, source: str = "noop", *macros: str) -> Path:
    """Compile ``<source>.cpp`` into ``folder`` with ``macros`` defined, and return the library's path."""
    library = folder / f"lib{'_'.join((source, *macros)).lower()}.so"
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    command += [f"-D{macro}" for macro in macros]
    command += [f"-I{INCLUDE}", str(HERE / f"{source}.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return library
