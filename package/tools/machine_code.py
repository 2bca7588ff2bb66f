"""The kernels in a library, and which of them a variant launches. Needs ``cuobjdump`` and ``c++filt``."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENUMERATORS = {
    "DType": ("fp32", "fp16", "bf16", "e4m3", "fp8_ds_mla"),
    "Load": ("direct", "tma", "cpasync", "gather"),
    "Schedule": ("split", "rows", "individual", "persistent", "reduction", "rows_m64", "swap_ab"),
}
"""Of the C++ types of traits, in their order: names of our kernels hold them as numbers."""

CUTLASS_TYPE = {"fp16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t", "e4m3": "cutlass::float_e4m3_t"}

SHARED = {"rows": ("decode", "sparse_decode"), "schedule": ("decode",), "partials": ("decode",)}
"""Namespaces of kernels that all variants of some ops launch."""
FAMILIES = {"sparse": ("sparse_decode", "sparse_prefill")}
"""Namespaces of kernels that variants of several ops launch, each those of its own traits."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of a cubin: its symbol, its C++ name and what it takes of a multiprocessor.

    A kernel that spills registers has a stack.
    """

    symbol: str
    name: str
    cubin_sha256: str
    registers: int
    shared_bytes: int
    stack_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """The kernel without its C++ name, which follows from the symbol."""
        return {field: value for field, value in vars(self).items() if field != "name"}


def kernels(path: Path, bin_dir: Path | None = None) -> list[Kernel]:
    """Every kernel of a library or object, in the order of its cubins.

    Parameters
    ----------
    path : Path
        A library, an object or a cubin.
    bin_dir : Path, optional
        Where ``cuobjdump`` is; on the path by default.
    """
    tool = str(bin_dir / "cuobjdump") if bin_dir else "cuobjdump"
    found = []
    with tempfile.TemporaryDirectory() as folder:
        _run(tool, "-xelf", "all", str(path.resolve()), cwd=folder)
        cubins = sorted(
            Path(folder).iterdir(), key=lambda cubin: [int(n) for n in re.findall(r"\.(\d+)\.", cubin.name)]
        )
        for cubin in cubins:
            digest = hashlib.sha256(cubin.read_bytes()).hexdigest()
            usage = _run(tool, "-res-usage", str(cubin))
            found += [(digest, *row) for row in re.findall(USAGE, usage)]
    names = _run("c++filt", stdin="\n".join(symbol for _, symbol, *_ in found)).splitlines()
    return [
        Kernel(symbol, name, digest, int(registers), int(shared), int(stack))
        for (digest, symbol, registers, stack, shared), name in zip(found, names, strict=True)
    ]


USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


def launched(variant: Mapping[str, Any], found: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that a variant of the registry launches: its own, and those that its op shares.

    A kernel of ours is in a namespace of the op's name, or of several ops, and says in its template arguments what is
    baked. CUTLASS's
    are told by their types; its reduction counts where it was compiled together with the variant's own kernel.
    """
    own = [kernel for kernel in found if _is_own(variant, kernel.name)]
    cubins = {kernel.cubin_sha256 for kernel in own}
    baked = variant["baked"]
    merged = f"Sm100FmhaMlaReductionKernel<{CUTLASS_TYPE.get(baked.get('out_dtype', ''), '?')},"
    shared = [
        kernel
        for kernel in found
        if (kernel.cubin_sha256 in cubins and merged in kernel.name)
        or (own and variant["op"] in SHARED.get(_namespace(kernel.name), ()))
    ]
    return [kernel for kernel in found if kernel in own or kernel in shared]


def unclaimed(variants: Iterable[Mapping[str, Any]], found: Sequence[Kernel]) -> list[Kernel]:
    """Kernels that no variant launches, and that are not for all."""
    claimed = {kernel for variant in variants for kernel in launched(variant, found)}
    return [kernel for kernel in found if kernel not in claimed and not is_shared(kernel)]


def is_shared(kernel: Kernel) -> bool:
    """Whether all variants of some ops launch it."""
    return _namespace(kernel.name) in SHARED


OURS = re.compile(r"mla::(\w+)::(\w+)::\w+(?:<(.*)>)?\(")
MLA_KERNEL = re.compile(
    r"Sm100FmhaMlaKernelTmaWarpspecialized<.*>, (cutlass::\w+), float, (cutlass::\w+), float, "
    r"cutlass::fmha::kernel::Sm100Mla(Individual|Persistent)TileScheduler, (true|false)>"
)


def _namespace(name: str) -> str:
    found = OURS.search(name)
    return found[2] if found and "cutlass::" not in name.partition("(")[0] else ""


def _is_own(variant: Mapping[str, Any], name: str) -> bool:
    baked = variant["baked"]
    if found := MLA_KERNEL.search(name):
        if variant["op"] not in ("decode", "sparse_decode") or baked["load"] not in ("tma", "cpasync", "gather"):
            return False
        element, out, scheduler, is_async = found.groups()
        return (element, out, scheduler.lower(), is_async == "true") == (
            CUTLASS_TYPE[baked["q_dtype"]],
            CUTLASS_TYPE[baked["out_dtype"]],
            baked["schedule"],
            baked["load"] == "cpasync",
        )
    found = OURS.search(name)
    if not found or variant["op"] not in FAMILIES.get(found[2], (found[2],)):
        return False
    if variant["op"] == "merge_states" and (found[1] == "sm100") != (baked["schedule"] == "reduction"):
        return False  # two schedules, two classes of one name
    named = {kind: _enumerators(kind, found[3] or "") for kind in ENUMERATORS}
    types = [value for trait, value in baked.items() if trait.endswith("_dtype")]
    return (
        named["DType"] == types
        and named["Load"] in ([], [baked.get("load")])
        and named["Schedule"] in ([], [baked.get("schedule")])
    )


def _enumerators(kind: str, arguments: str) -> list[str]:
    return [ENUMERATORS[kind][int(number)] for number in re.findall(rf"\(mla::{kind}\)(\d+)", arguments)]


def _run(*command: str, stdin: str | None = None, cwd: str | None = None) -> str:
    return subprocess.run(command, input=stdin, cwd=cwd, capture_output=True, text=True, check=True).stdout
