"""Checks the GPU code of a payload against its registry and its manifest; ``cuobjdump`` must be on the path."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cuobjdump
from cuobjdump import DeviceCode
from variant_kernels import VariantKernels

from ci.measure.instructions import problems
from ci.release.checks.provenance import document
from ci.release.wheelfile import Wheel
from ci.rows import Row


@cache
def device_code(library: bytes) -> DeviceCode:
    """Return the machine code of a library.

    Raises
    ------
    CuobjdumpError
        ``cuobjdump`` is not installed, or finds no cubin.
    """
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        return cuobjdump.read(Path(file.name))


def arch(wheel: Wheel, row: Row) -> Iterator[str]:
    """The library holds machine code for the registry's arch only, and no PTX that a driver would compile."""
    if row.core or row.library not in wheel.files:
        return
    name = document(wheel, row, "registry.json")["arch"]["name"].removeprefix("sm")
    code = device_code(wheel.files[row.library])
    for file in code.ptx:
        yield f"{row.library} holds PTX: {file}"
    # cuobjdump does not tell a family's cubin from one of the family's first member, so the flags decide there.
    for found in sorted({cubin.arch for cubin in code.cubins} - {f"sm_{name.removesuffix('f')}"}):
        yield f"{row.library} holds machine code for {found}, the registry is for sm{name}"
    flags = document(wheel, row, "manifest.json").get("flags", {}).get("cuda", "")
    if name.endswith("f") and not re.search(rf"(?<![0-9]){name}\b", flags):
        yield f"the CUDA flags of manifest.json do not name {name}: {flags or 'there are none'}"


def kernels(wheel: Wheel, row: Row) -> Iterator[str]:
    """Every variant's kernels are in the cubins, and every kernel there is a variant's or listed as shared."""
    if row.core or row.library not in wheel.files:
        return
    if f"{row.folder}/manifest.json" not in wheel.files:
        yield "manifest.json is missing: nothing says which kernels a variant has"
        return
    said = document(wheel, row, "manifest.json")
    found = device_code(wheel.files[row.library]).kernels
    there = {(kernel.symbol, kernel.cubin_sha256) for kernel in found}
    names = {name for name, _ in there}
    owners = {
        f"variant {variant['name']}": said["variants"].get(variant["name"], {}).get("kernels", [])
        for variant in document(wheel, row, "registry.json")["variants"]
    }
    for owner, own in owners.items():
        if not own:
            yield f"{owner}: manifest.json names no kernel"
    claimed: set[str] = set()
    for owner, own in {**owners, "shared": said.get("shared", [])}.items():
        for kernel in own:
            symbol, digest = kernel["symbol"], kernel["cubin_sha256"]
            claimed.add(symbol)
            if symbol not in names:
                yield f"{owner}: no cubin holds {symbol}"
            elif (symbol, digest) not in there:
                yield f"{owner}: no cubin that holds {symbol} has hash {digest}"
    for name in sorted(names - claimed):
        yield f"kernel {name} is in {row.library}, but it is no variant's"


def instructions(wheel: Wheel, row: Row) -> Iterator[str]:
    """No kernel spills or waits for every product, and those that must multiply on tensor cores do."""
    if row.core or row.library not in wheel.files:
        return
    found = device_code(wheel.files[row.library]).kernels
    yield from problems(VariantKernels(document(wheel, row, "registry.json"), found))
