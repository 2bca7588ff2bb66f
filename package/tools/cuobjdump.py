"""Reads the machine code of a library or an object as ``cuobjdump`` prints it; nothing else in the project parses that.

``cuobjdump`` runs ``nvdisasm``, and ``c++filt`` demangles; all three are looked for on the path.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

USAGE = re.compile(r"Function (?P<symbol>\S+):\s+(?P<usage>REG:.*)")
FUNCTION = re.compile(r"\s+Function : (\S+)")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/ +(.+?) *; +/\* (0x[0-9a-f]{16}) \*/")
SECOND_HALF = re.compile(r"\s+/\* (0x[0-9a-f]{16}) \*/")
"""An instruction has 128 bits: the first half stands beside the text, the second on a line of its own."""

TENSOR_CORE = re.compile(r"\b(UTC[A-Z]*MMA|HGMMA|QGMMA|IGMMA)\b")
WGMMA = re.compile(r"\bHGMMA\b")
UNIFORM_MOVE = re.compile(r"\bR2UR\b")
SHORTLY = 12  # so many instructions before a product: four moves, and what the compiler puts between
WGMMA_GROUP = re.compile(r"\bHGMMA\b.*\bgsb0\b")
"""Such an instruction ends a group on Hopper; where the compiler serialises products, with only a remark, all do."""


class CuobjdumpError(Exception):
    """``cuobjdump`` is missing, or finds no machine code: the message says which, and what to do."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a cubin.

    Attributes
    ----------
    symbol, name : str
        As the cubin names it, and as C++ does.
    cubin_sha256 : str
        Kernels of one cubin were compiled together; a library may hold several copies of one kernel.
    usage : str
        What it takes of a multiprocessor: ``REG:128 STACK:0 SHARED:1024 ...``.
    instructions : tuple of str
        ``text ; encoding encoding``, in their order.
    """

    symbol: str
    name: str
    cubin_sha256: str
    usage: str
    instructions: tuple[str, ...] = field(default=(), repr=False)

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self._number("REG")

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        return self._number("SHARED")

    @property
    def stack_bytes(self) -> int:
        """Local memory of a thread; a kernel that spills registers has some."""
        return self._number("STACK")

    @cached_property
    def tensor_core_instructions(self) -> int:
        """How many instructions multiply on tensor cores."""
        return sum(TENSOR_CORE.search(text) is not None for text in self.instructions)

    @cached_property
    def wgmma_groups(self) -> int:
        """How many of them end a group, for which a warpgroup can wait."""
        return sum(WGMMA_GROUP.search(text) is not None for text in self.instructions)

    @cached_property
    def descriptor_moves(self) -> int:
        """How many instructions shortly before products of Hopper's tensor cores move a word to a uniform register.

        Descriptors of operands are in uniform registers; the compiler moves them there for every product where it
        takes a warp for divergent.
        """
        products = (index for index, text in enumerate(self.instructions) if WGMMA.search(text))
        before = {index for product in products for index in range(max(product - SHORTLY, 0), product)}
        return sum(UNIFORM_MOVE.search(self.instructions[index]) is not None for index in before)

    def as_dict(self) -> dict[str, Any]:
        """Return what a manifest says of it; the C++ name follows from the symbol."""
        numbers = ("registers", "shared_bytes", "stack_bytes", "tensor_core_instructions")
        return {name: getattr(self, name) for name in ("symbol", "cubin_sha256", *numbers)}

    def _number(self, resource: str) -> int:
        found = re.search(rf"\b{resource}:(\d+)", self.usage)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Cubin:
    """Machine code for one arch, as ``cuobjdump`` names it (``sm_100`` for ``sm_100f`` too), and its kernels."""

    arch: str
    data: bytes = field(repr=False)
    kernels: tuple[Kernel, ...]

    @property
    def sha256(self) -> str:
        """The hash of the cubin."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class DeviceCode:
    """All that a library holds for GPUs: machine code, and the names of files of PTX."""

    cubins: tuple[Cubin, ...]
    ptx: tuple[str, ...] = ()

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of all cubins."""
        return [kernel for cubin in self.cubins for kernel in cubin.kernels]


def read(path: Path, bin_dir: Path | None = None) -> DeviceCode:
    """Read all machine code of a library or an object.

    Parameters
    ----------
    path : Path
        The library or the object.
    bin_dir : Path, optional
        Where ``cuobjdump`` and ``nvdisasm`` are; on the path by default.

    Raises
    ------
    CuobjdumpError
        ``cuobjdump`` or a program that it runs is missing, or the file holds no machine code.
    """
    tool = _Tool(bin_dir)
    with tempfile.TemporaryDirectory() as name:
        listed = tool.run("cuobjdump", "-all", "-lptx", str(path.resolve()), cwd=name, check=False)
        said = tool.run("cuobjdump", "-all", "-xelf", "all", str(path.resolve()), cwd=name, check=False)
        files = sorted(Path(name).glob("*.cubin"), key=lambda file: int(file.name.split(".")[-3]))
        if not files:
            raise CuobjdumpError(f"cuobjdump finds no machine code in {path.name}: {' '.join(said.split())[-300:]}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            cubins = tuple(pool.map(tool.cubin, files))
    ptx = (line.partition(":")[2].strip() for line in listed.splitlines() if line.startswith("PTX file"))
    return DeviceCode(cubins, tuple(ptx))


class _Tool:
    """Runs ``cuobjdump`` and ``c++filt``."""

    def __init__(self, bin_dir: Path | None) -> None:
        path = os.environ.get("PATH", "")
        self.environment = {**os.environ, "PATH": f"{bin_dir}{os.pathsep}{path}" if bin_dir else path}

    def run(self, *command: str, stdin: str | None = None, cwd: str | None = None, check: bool = True) -> str:
        try:
            done = subprocess.run(
                command, input=stdin, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            hint = "`nox -s check_wheels` installs it" if command[0] == "cuobjdump" else "it is part of GNU binutils"
            raise CuobjdumpError(f"{command[0]} is not installed; {hint}") from error
        if check and done.returncode:
            raise CuobjdumpError(f"{' '.join(command)[:200]} failed: {' '.join(done.stderr.split())[-300:]}")
        return done.stdout if check else done.stdout + done.stderr

    def cubin(self, path: Path) -> Cubin:
        """Read an extracted cubin: ``<library>.<number>.<arch>.cubin``."""
        data = path.read_bytes()
        usage = list(usages(self.run("cuobjdump", "-res-usage", str(path))))
        code = instructions(self.run("cuobjdump", "-sass", str(path)))
        names = self.run("c++filt", stdin="\n".join(symbol for symbol, _ in usage)).splitlines()
        digest = hashlib.sha256(data).hexdigest()
        kernels = (
            Kernel(symbol, name, digest, taken, code.get(symbol, ()))
            for (symbol, taken), name in zip(usage, names, strict=True)
        )
        return Cubin(path.name.split(".")[-2], data, tuple(kernels))


def usages(text: str) -> Iterator[tuple[str, str]]:
    """Find symbols and what they take of a multiprocessor, in what ``cuobjdump -res-usage`` prints."""
    return ((found["symbol"], found["usage"]) for found in USAGE.finditer(text))


def instructions(text: str) -> dict[str, tuple[str, ...]]:
    """Find the instructions of each symbol, in what ``cuobjdump -sass`` prints of one cubin."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if function := FUNCTION.match(line):
            current = found.setdefault(function[1], [])
        elif instruction := INSTRUCTION.match(line):
            current.append(f"{instruction[1]} ; {instruction[2]}")
        elif current and (half := SECOND_HALF.match(line)):
            current[-1] += f" {half[1]}"
    return {symbol: tuple(lines) for symbol, lines in found.items()}
