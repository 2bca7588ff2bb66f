"""What a payload's wheel, or one object file, holds in machine code: ``manifest.py PATH [--json FILE]``.

Every variant of the registry must have its kernel in the library, without spills, and where it multiplies on
Blackwell's tensor cores, with their instructions. Needs ``cuobjdump`` and ``c++filt`` on the path.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ELEMENT = {"fp16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t", "e4m3": "cutlass::float_e4m3_t"}
MLA_KERNEL = re.compile(
    r"Sm100FmhaMlaKernelTmaWarpspecialized<.*>, (cutlass::\w+), float, (cutlass::\w+), float, "
    r"cutlass::fmha::kernel::Sm100Mla(Individual|Persistent)TileScheduler, (true|false)>"
)
REDUCTION = re.compile(r"Sm100FmhaMlaReductionKernel<(cutlass::\w+),")
TENSOR_CORE = re.compile(r"\bUTC[A-Z]*MMA\b")


@dataclass(frozen=True)
class Machine:
    """One kernel of the library: its demangled name and what ``cuobjdump`` says of it."""

    name: str
    registers: int
    stack: int
    shared: int
    tensor_core_instructions: int

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies it: element, output, scheduler and load of CUTLASS's kernels, otherwise its name."""
        if found := MLA_KERNEL.search(self.name):
            return ("mla", *found.groups())
        if found := REDUCTION.search(self.name):
            return ("reduction", found[1])
        return ("plain", self.name)


def wanted(variant: dict[str, Any]) -> tuple[str, ...] | None:
    """The key of the kernel that a variant launches; None for one of plain CUDA."""
    baked = variant["baked"]
    if baked.get("schedule") == "reduction":
        return ("reduction", ELEMENT[baked["out_dtype"]])
    if baked.get("load") not in ("tma", "cpasync", "gather"):
        return None
    is_async = str(baked["load"] == "cpasync").lower()
    return ("mla", ELEMENT[baked["q_dtype"]], ELEMENT[baked["out_dtype"]], baked["schedule"].capitalize(), is_async)


def machines(library: Path) -> Iterator[Machine]:
    """Every kernel of the library."""
    usage = _run("cuobjdump", "-res-usage", str(library))
    found = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", usage)
    counts: dict[str, int] = {}
    name = ""
    for line in _run("cuobjdump", "-sass", str(library)).splitlines():
        if "Function :" in line:
            name = line.split(":")[1].strip()
        elif TENSOR_CORE.search(line):
            counts[name] = counts.get(name, 0) + 1
    demangled = _run("c++filt", stdin="\n".join(symbol for symbol, *_ in found)).splitlines()
    for (symbol, *numbers), text in zip(found, demangled, strict=True):
        registers, stack, shared = map(int, numbers)
        yield Machine(text, registers, stack, shared, counts.get(symbol, 0))


def problems_of(kernels: list[Machine]) -> list[str]:
    """Kernels that spill, and kernels of CUTLASS that do not multiply on tensor cores."""
    spills = [f"{kernel.name}: {kernel.stack} bytes of stack" for kernel in kernels if kernel.stack]
    plain = [kernel.name for kernel in kernels if kernel.key[0] == "mla" and not kernel.tensor_core_instructions]
    return [*spills, *(f"{name}: no tensor-core instruction" for name in plain)]


def inspect(path: Path) -> dict[str, Any]:
    """The kernels of an object file, and their problems; each stands for itself."""
    kernels = list(machines(path))
    variants = {" ".join(kernel.key)[:100]: _numbers(kernel) for kernel in kernels if kernel.key[0] != "plain"}
    return {"wheel": path.name, "bytes": path.stat().st_size, "variants": variants, "kernels": kernels,
            "problems": problems_of(kernels) or ([] if variants else ["no kernel of CUTLASS"])}  # fmt: skip


def _numbers(kernel: Machine) -> dict[str, int]:
    return {name: value for name, value in asdict(kernel).items() if name != "name"}


def manifest(wheel: Path) -> dict[str, Any]:
    """The manifest of a wheel, with the problems found."""
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        (library,) = Path(folder).glob("*/lib*.so")
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        registry = json.loads(next(Path(folder).glob("*/registry.json")).read_text())
        kernels = list(machines(library))
    by_key = {kernel.key: kernel for kernel in kernels}
    problems = problems_of(kernels)
    variants = {}
    for variant in registry["variants"]:
        key = wanted(variant)
        if key is None:
            continue
        kernel = by_key.get(key)
        if kernel is None:
            problems.append(f"{variant['name']}: the library holds no kernel {' '.join(key)}")
            continue
        variants[variant["name"]] = _numbers(kernel)
    return {
        "payload": registry["payload"],
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "bytes": wheel.stat().st_size,
        "library_sha256": digest,
        "commit": _run("git", "rev-parse", "HEAD").strip(),
        "dirty": bool(_run("git", "status", "--porcelain").strip()),
        "nvcc": _run("nvcc", "--version").strip().splitlines()[-1],
        "variants": variants,
        "kernels": [asdict(kernel) for kernel in kernels],
        "problems": problems,
    }


def _run(*command: str, stdin: str | None = None) -> str:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Print the table and the problems; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = manifest(options.path) if options.path.suffix == ".whl" else inspect(options.path)
    table = Table("variant", "registers", "stack", "shared", "tensor-core instructions")
    for name, kernel in found["variants"].items():
        table.add_row(name, *(str(value) for value in kernel.values()))
    console = Console(width=140)
    console.print(table)
    console.print(f"{found['wheel']}: {found['bytes'] / 1e6:.2f} MB, {len(found['kernels'])} kernels")
    for problem in found["problems"]:
        console.print(problem, style="red")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
