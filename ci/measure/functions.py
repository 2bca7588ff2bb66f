"""Reads the functions of a library as normalised instructions, so that those of two libraries can be compared.

Instructions of a GPU are compared with their encodings, which hold what the text leaves out: waits and stalls. What
depends on where the linker puts things is taken out: addresses become offsets within the function, and symbols lose
their names.
"""

from __future__ import annotations

import bisect
import hashlib
import io
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cuobjdump
from cuobjdump import Cubin, DeviceCode
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

PREDICATE = re.compile(r"^@!?U?P\w+ +")
SYMBOL = re.compile(r"`\(.*?\)|c\[0x4\]\[0x[0-9a-f]+\]")
"""Instructions refer to symbols by name, and through the constant bank that holds their addresses."""

HOST = re.compile(r" *(?P<address>[0-9a-f]+):\t(?P<text>.+)")
JUMP = re.compile(r"(?P<opcode>(?:bnd |notrack )?(?:j|call|loop|xbegin)\S* +)(?P<target>[0-9a-f]+) <(?P<name>[^>]+)>")
FROM_HERE = re.compile(r"-?0x[0-9a-f]+\(%rip\)")


@dataclass(frozen=True)
class Function:
    """A function: its C++ name, its normalised instructions, and what else belongs to it.

    ``usage`` is what a kernel takes of a multiprocessor, and the hashes of its constants. ``instruction_set`` is the
    widest one of a CPU that a function uses, and empty for one without arithmetic of packed floats.
    """

    name: str
    instructions: tuple[str, ...]
    usage: str = ""
    instruction_set: str = ""

    @cached_property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs, predicates aside."""
        return Counter(PREDICATE.sub("", line).partition(" ")[0] for line in self.instructions)


def of_library(path: Path) -> list[Function]:
    """Return the kernels of a library that has any, otherwise its functions for the CPU."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        if elf.get_section_by_name(".nv_fatbin"):
            return gpu_functions(cuobjdump.read(path))
        return cpu_functions(_run("objdump", "-d", "--no-show-raw-insn", str(path)), *_extents(elf))


def gpu_functions(code: DeviceCode) -> list[Function]:
    """Return the kernels of a library."""
    return [
        Function(kernel.name, tuple(map(_gpu_instruction, kernel.instructions)), " ".join([kernel.usage, *constants]))
        for cubin in code.cubins
        for kernel in cubin.kernels
        for constants in [list(_constants(cubin, kernel.symbol))]
    ]


def _gpu_instruction(line: str) -> str:
    """Return text and encoding; of a reference to a symbol the text alone, because the encoding holds an address."""
    normalised, symbols = SYMBOL.subn("symbol", line)
    return normalised.partition(" ; ")[0] + " ; symbol" if symbols else line


def _constants(cubin: Cubin, symbol: str) -> Iterator[str]:
    """Return the hashes of the constants that the compiler put beside a kernel, and of those of its whole cubin."""
    if cubin.data:
        elf = ELFFile(io.BytesIO(cubin.data))
        for name in (f".nv.constant2.{symbol}", ".nv.constant3"):
            if section := elf.get_section_by_name(name):
                yield f"{name.split('.')[2]}:{hashlib.sha256(section.data()).hexdigest()[:12]}"


def cpu_functions(disassembly: str, extents: list[tuple[int, int]], names: dict[int, str]) -> list[Function]:
    """Return the functions that lie at ``extents``, start and end, in what ``objdump -d --no-show-raw-insn`` prints."""
    starts = [start for start, _ in extents]
    code: list[list[str]] = [[] for _ in extents]
    for line in disassembly.splitlines():
        if found := HOST.match(line):
            address = int(found["address"], 16)
            index = bisect.bisect(starts, address) - 1
            if index >= 0 and address < extents[index][1]:
                code[index].append(_cpu_instruction(found["text"], *extents[index]))
    return [
        Function(names.get(start, f"at {start:#x}"), tuple(each), instruction_set=_instruction_set(each))
        for start, each in zip(starts, code, strict=True)
    ]


def _cpu_instruction(text: str, start: int, end: int) -> str:
    """Give jumps by their distance from the function's start, calls by their name in the PLT, and no other address."""

    def target(found: re.Match[str]) -> str:
        to = int(found["target"], 16)
        other = found["name"] if found["name"].endswith("@plt") else "another function"
        return f"{found['opcode'].strip()} {f'+{to - start:#x}' if start <= to < end else other}"

    return FROM_HERE.sub("constant", JUMP.sub(target, text)).split("#")[0].strip()


INSTRUCTION_SETS = {
    "amx_bf16": re.compile(r"tdpbf16ps|tileload"),
    "avx512_bf16": re.compile(r"vdpbf16ps|vcvtne2?ps2?bf16"),
    "avx512": re.compile(r".*%zmm|.*%k[1-7]"),
    "avx2": re.compile(r".*%ymm|vfn?m(add|sub)"),
    "baseline": re.compile(r"(add|sub|mul|div|max|min|sqrt)ps|f(mla|add|mul|div|max|min)\s+v"),
}
"""Such an instruction shows that a function is one of an instruction set's row kernels; the first match counts."""


def _instruction_set(instructions: list[str]) -> str:
    return next((name for name, of in INSTRUCTION_SETS.items() if any(map(of.match, instructions))), "")


def _extents(elf: ELFFile) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """Return where functions start and end, and their names where symbols tell them.

    The unwind tables say the former, which a stripped library keeps.
    """
    entries = elf.get_dwarf_info().EH_CFI_entries()
    located = (entry.header for entry in entries if isinstance(entry, FDE))
    extents = sorted((each["initial_location"], each["initial_location"] + each["address_range"]) for each in located)
    tables = (section for section in elf.iter_sections() if isinstance(section, SymbolTableSection))
    named = {symbol["st_value"]: symbol.name for table in tables for symbol in table.iter_symbols()}
    starts = {start for start, _ in extents}
    found = {start: name for start, name in named.items() if start in starts}
    return extents, dict(zip(found, _demangled(found.values()), strict=True))


def _demangled(symbols: Iterable[str]) -> Iterator[str]:
    return iter(_run("c++filt", stdin="\n".join(symbols)).splitlines())


def _run(*command: str, stdin: str | None = None) -> str:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout
