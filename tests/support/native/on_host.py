"""Rewrite CUDA sources so that the host's compiler takes them, with ``cuda_on_host.h``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[3]
LAUNCH = re.compile(r"(\w+)\s*<<<(.*?)>>>", re.DOTALL)
"""A kernel that a variable names, and the arguments of its launch."""


def rewrite(folder: Path, *trees: str) -> tuple[str, ...]:
    """Copy folders under ``package/csrc`` with each ``kernel<<<...>>>`` made a call; return the compiler's flags.

    A file that is included in quotes is then looked for in ``folder`` first. Units are ``NAME.cu.cpp``.
    """
    for tree in trees:
        shutil.copytree(ROOT / "package" / "csrc" / tree, folder / tree)
        for path in (folder / tree).rglob("*.cu*"):
            text = LAUNCH.sub(r"on_host::launch(\1, \2)", path.read_text())
            path.write_text(text)
            if path.suffix == ".cu":
                path.rename(path.with_suffix(".cu.cpp"))
    shim = Path(__file__).with_name("cuda_on_host.h")
    allowed = ("attributes", "class-memaccess", "sign-compare", "unknown-pragmas")
    return f"-iquote{folder}", f"-include{shim}", *(f"-Wno-{warning}" for warning in allowed)
