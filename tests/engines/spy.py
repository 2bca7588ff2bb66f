"""A plug-in of vLLM and SGLang for tests: it tells a file of each decode of the package, and can make it wrong.

It sits around the kernel's launch, so that it sees only what this package computed, in whatever process of the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "mla_kernels_spy"
LOG, FACTOR = "SPY_LOG", "SPY_FACTOR"
"""Environment variables: the file, and the factor by which every output is multiplied."""


def plugin() -> None:
    """Watch the launches of this process; the engine calls it once."""
    from mla_kernels.kernels.ops import DecodeKernel, SparseDecodeKernel

    for kind in (DecodeKernel, SparseDecodeKernel):
        watched = watch(kind.launch, os.environ[LOG], float(os.environ.get(FACTOR, "1")))
        kind.launch = kind.__call__ = watched  # type: ignore[method-assign, assignment]


def watch(launch: Callable[..., Any], log: str, factor: float) -> Callable[..., Any]:
    """A launch that appends a line to the file: the variant, and the shape of what it wrote."""

    def watched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        out, lse = launch(kernel, *args, **kwargs)
        if factor != 1:
            out.mul_(factor)
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{kernel.variant.name} {' '.join(map(str, out.shape))}\n")
        return out, lse

    return watched


def install(folder: Path) -> Path:
    """Write what makes the interpreter find the plug-in where ``folder`` is on its path."""
    described = folder / f"{NAME}-0.dist-info"
    described.mkdir(parents=True, exist_ok=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n", encoding="utf-8")
    entries = [f"[{group}]\n{NAME} = {__name__}:plugin\n" for group in ("vllm.general_plugins", "sglang.srt.plugins")]
    (described / "entry_points.txt").write_text("".join(entries), encoding="utf-8")
    return folder
