"""What a page says of the sources and of the machine that it was measured on."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def git_commit() -> str:
    """The commit of the working tree, marked where it differs."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def processor() -> str:
    """The processor's name and the instruction sets that matter here."""
    lines = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    sets = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in fields.get("flags", "").split()]
    return f"{fields.get('model name', platform.machine())} ({', '.join(sets)})"
