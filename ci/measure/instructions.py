"""Checks what only instructions show: no spills, tensor cores where a variant multiplies, and products that overlap.

``python -m ci.measure.instructions PATH...`` reads payload wheels, and objects together with the registry of their
payload (``--registry``), and prints a table of each; ``--json FILE`` keeps what was found of the last.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuobjdump
from cuobjdump import Kernel
from rich.console import Console
from rich.table import Table
from variant_kernels import VariantKernels

DOCUMENTS = ("manifest", "registry")
COLUMNS = ("registers", "shared_bytes", "stack_bytes", "tensor_core_instructions")


def problems(found: VariantKernels) -> Iterator[str]:
    """Name kernels that spill, that should multiply on tensor cores and do not, or wait or move words for each."""
    if not found.kernels:
        yield "it holds no kernel"
    for kernel in found.kernels:
        if kernel.stack_bytes:
            yield f"{kernel.name}: {kernel.stack_bytes} bytes of stack: it spills"
        if 2 * kernel.wgmma_groups > kernel.tensor_core_instructions:
            yield (
                f"{kernel.name}: {kernel.tensor_core_instructions} wgmma instructions in {kernel.wgmma_groups} groups: "
                "the compiler has serialised them"
            )
        if kernel.descriptor_moves > kernel.tensor_core_instructions:
            yield (
                f"{kernel.name}: {kernel.descriptor_moves} moves to uniform registers before "
                f"{kernel.tensor_core_instructions} wgmma instructions: a branch has made the warps divergent"
            )
    yield from found.without_tensor_cores()


def of_object(path: Path, registry: Path) -> dict[str, Any]:
    """Return the kernels of an object, each for itself, and their problems.

    An object may have none: Blackwell's sparse decode launches those of its dense decode.
    """
    found = VariantKernels(json.loads(registry.read_text()), cuobjdump.read(path).kernels)
    shown = {kernel.name[:100]: _numbers(kernel) for kernel in found.kernels}
    return {"name": path.name, "kernels": shown, "problems": list(problems(found)) if found.kernels else []}


def of_wheel(path: Path) -> dict[str, Any]:
    """Return for each variant of a payload the kernel that takes most registers, and the problems of all."""
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(path).extractall(folder)
        (library,) = Path(folder).glob("*/lib*.so")
        manifest, registry = (json.loads((library.parent / f"{name}.json").read_text()) for name in DOCUMENTS)
        found = VariantKernels(registry, cuobjdump.read(library).kernels)
    largest = {name: max(each, key=lambda kernel: kernel.registers) for name, each in found.launched.items() if each}
    return {
        "name": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        **{key: manifest[key] for key in ("payload", "commit", "dirty", "sources_sha256", "compilers", "files")},
        "kernels": {name: _numbers(kernel) for name, kernel in largest.items()},
        "problems": list(problems(found)),
    }


def _numbers(kernel: Kernel) -> dict[str, int]:
    return {column: getattr(kernel, column) for column in COLUMNS}


def main() -> int:
    """Print a table for each path and every problem, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--registry", type=Path, help="registry.json of the payload that objects are of")
    parser.add_argument("--json", type=Path, help="write what was found of the last path")
    options = parser.parse_args()
    console = Console(width=150)
    wrong = 0
    for path in options.paths:
        found = of_wheel(path) if path.suffix == ".whl" else of_object(path, options.registry)
        table = Table(found["name"], "registers", "shared", "stack", "tensor-core instructions")
        for name, kernel in found["kernels"].items():
            table.add_row(name, *(str(kernel[column]) for column in COLUMNS))
        console.print(table)
        for problem in found["problems"]:
            console.print(problem, style="red", markup=False)
        wrong += len(found["problems"])
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
