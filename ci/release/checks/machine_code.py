"""The GPU code of a payload, held against its registry and its manifest. Needs ``cuobjdump`` on the path."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ci.release.checks.provenance import document
from ci.release.checks.tools import ToolError, run, words
from ci.release.wheelfile import Wheel
from ci.rows import Row


@dataclass(frozen=True)
class Cubin:
    """Machine code for one arch, as ``cuobjdump`` names it (``sm_100`` for ``sm_100f`` too), and its kernels."""

    arch: str
    sha256: str
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class DeviceCode:
    """All that a library holds for GPUs."""

    cubins: tuple[Cubin, ...]
    ptx: tuple[str, ...]


@cache
def device_code(library: bytes) -> DeviceCode:
    """What ``cuobjdump`` finds in a library.

    Raises
    ------
    ToolError
        It is not installed, or finds no cubin.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "library.so").write_bytes(library)
        listed = run("cuobjdump", "-all", "-lptx", "library.so", cwd=folder).stdout.splitlines()
        extracted = run("cuobjdump", "-all", "-xelf", "all", "library.so", cwd=folder)
        found = sorted(folder.glob("*.cubin"))
        if extracted.returncode or not found:
            raise ToolError(f"cuobjdump finds no machine code in the library: {words(extracted)}")
        ptx = tuple(line.partition(":")[2].strip() for line in listed if line.startswith("PTX file"))
        return DeviceCode(tuple(map(cubin, found)), ptx)


def cubin(path: Path) -> Cubin:
    """An extracted cubin: ``<library>.<number>.<arch>.cubin``."""
    usage = run("cuobjdump", "-res-usage", path.name, cwd=path.parent).stdout
    kernels = re.findall(r"^ *Function (\S+):$", usage, re.MULTILINE)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Cubin(path.name.split(".")[-2], digest, tuple(sorted(kernels)))


def arch(wheel: Wheel, row: Row) -> Iterator[str]:
    """Machine code for the registry's arch only, and no PTX that a driver would compile."""
    if row.core or row.library not in wheel.files:
        return
    name = document(wheel, row, "registry.json")["arch"]["name"].removeprefix("sm")
    code = device_code(wheel.files[row.library])
    for file in code.ptx:
        yield f"{row.library} holds PTX: {file}"
    # cuobjdump does not tell a family's cubin from one of its first member: there the flags decide.
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
    there = {(name, cubin.sha256) for cubin in device_code(wheel.files[row.library]).cubins for name in cubin.kernels}
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
