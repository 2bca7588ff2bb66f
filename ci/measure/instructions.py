"""What only the instructions show: no spills, and tensor cores where a variant multiplies, without a wait for each.

``python -m ci.measure.instructions PATH... [--json FILE]`` reads payload wheels and objects, by ``cuobjdump`` and
``c++filt``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

TENSOR_CORE = re.compile(r"\b(UTC[A-Z]*MMA|HGMMA|QGMMA|IGMMA)\b")
WGMMA_GROUP = re.compile(r"\bHGMMA\b.*\bgsb0\b")
"""An instruction of Hopper that ends a group. Where the compiler serialises them, with only a remark, each one does."""
MULTIPLIES = re.compile(
    r"Sm100FmhaMlaKernelTmaWarpspecialized<|mla::sm90::decode::attend<|mla::sm90::sparse::attend_selected<"
)
"""Kernels that must multiply on tensor cores."""
USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class Kernel:
    """One kernel: its C++ name, what it takes of a multiprocessor, and how often it multiplies on tensor cores."""

    name: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    tensor_core_instructions: int
    wgmma_groups: int = 0


def kernels(path: Path) -> dict[str, Kernel]:
    """The kernels of a library or object by symbol; of several copies of one, the one that takes most."""
    instructions, groups = _tensor_core_instructions(path)
    usage = sorted(USAGE.findall(_run("cuobjdump", "-res-usage", str(path))), key=lambda row: [int(n) for n in row[1:]])
    names = _run("c++filt", stdin="\n".join(symbol for symbol, *_ in usage)).splitlines()
    return {
        symbol: Kernel(name, int(registers), int(shared), int(stack), instructions[symbol], groups[symbol])
        for (symbol, registers, stack, shared), name in zip(usage, names, strict=True)
    }


def _tensor_core_instructions(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Of the first copy of each kernel, by symbol: all of them, and those that end a group."""
    counts, groups = Counter[str](), Counter[str]()
    symbol, seen, counted = "", set[str](), False
    for line in _run("cuobjdump", "-sass", str(path)).splitlines():
        if "Function :" in line:
            symbol = line.split(":")[1].strip()
            counted = symbol not in seen
            seen.add(symbol)
        elif counted and TENSOR_CORE.search(line):
            counts[symbol] += 1
            groups[symbol] += WGMMA_GROUP.search(line) is not None
    return counts, groups


def _run(*command: str, stdin: str | None = None) -> str:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def problems(found: Iterable[Kernel]) -> list[str]:
    """Kernels that spill, that should multiply on tensor cores and do not, or that wait for every product."""
    wrong = []
    for kernel in found:
        if kernel.stack_bytes:
            wrong.append(f"{kernel.name}: {kernel.stack_bytes} bytes of stack: it spills")
        if MULTIPLIES.search(kernel.name) and not kernel.tensor_core_instructions:
            wrong.append(f"{kernel.name}: no tensor-core instruction")
        if 2 * kernel.wgmma_groups > kernel.tensor_core_instructions:
            wrong.append(
                f"{kernel.name}: {kernel.tensor_core_instructions} wgmma instructions in {kernel.wgmma_groups} groups: "
                "the compiler has serialised them"
            )
    return wrong


def of_object(path: Path) -> dict[str, Any]:
    """The kernels of an object, each for itself, and their problems."""
    found = kernels(path)
    shown = {kernel.name[:100]: _numbers(kernel) for kernel in found.values()}
    return {"name": path.name, "kernels": shown, "problems": problems(found.values()) or _none(found)}


def of_wheel(path: Path) -> dict[str, Any]:
    """The kernels of a payload by variant, as its manifest names them, of each the one that takes most registers."""
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(path).extractall(folder)
        (library,) = Path(folder).glob("*/lib*.so")
        manifest = json.loads((library.parent / "manifest.json").read_text())
        found = kernels(library)
    own = {
        name: [found[kernel["symbol"]] for kernel in variant["kernels"]]
        for name, variant in manifest["variants"].items()
    }
    return {
        "name": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        **{key: manifest[key] for key in ("payload", "commit", "dirty", "compilers", "files")},
        "kernels": {name: _numbers(max(each, key=lambda kernel: kernel.registers)) for name, each in own.items()},
        "problems": problems(found.values()) or _none(found),
    }


def _numbers(kernel: Kernel) -> dict[str, int]:
    return {column: getattr(kernel, column) for column in COLUMNS}


def _none(found: Collection[object]) -> list[str]:
    return [] if found else ["it holds no kernel"]


COLUMNS = ("registers", "shared_bytes", "stack_bytes", "tensor_core_instructions")


def main() -> int:
    """Print a table a path and every problem; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--json", type=Path, help="write what was found of the last path")
    options = parser.parse_args()
    console = Console(width=150)
    wrong = 0
    for path in options.paths:
        found = of_wheel(path) if path.suffix == ".whl" else of_object(path)
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
