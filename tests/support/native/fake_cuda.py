"""A CUDA driver that finds the devices it is told of."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
H200 = '{"NVIDIA H200", 9, 0}'
B200 = '{"NVIDIA B200", 10, 0}'
A100 = '{"NVIDIA A100", 8, 0}'


def build(library: Path, *gpus: str, **macros: object) -> None:
    """Compile a driver of ``gpus``, whose functions answer as the macros of ``fake_cuda.c`` say."""
    if gpus:
        macros["DEVICES"] = ", ".join(gpus)
    options = [f"-D{name}={value}" for name, value in macros.items()]
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *options]
    subprocess.run([*command, str(SOURCE), "-o", str(library)], check=True)
