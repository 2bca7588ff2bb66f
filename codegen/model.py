"""What the matrix says, typed and frozen; the only definition of a variant's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from codegen import abi
from codegen.formats import Formats


@dataclass(frozen=True, slots=True)
class Range:
    """The integers from ``min`` to ``max`` (``None``: no end) that ``multiple_of`` divides."""

    min: int
    max: int | None = None
    multiple_of: int = 1

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.min <= value and (self.max is None or value <= self.max) and value % self.multiple_of == 0

    def covers(self, other: Range) -> bool:
        """Whether every integer of ``other`` is in this range."""
        ends = self.max is None or (other.max is not None and other.max <= self.max)
        return self.min <= other.min and ends and other.multiple_of % self.multiple_of == 0

    def meets(self, other: Range) -> bool:
        """Whether the two ranges overlap, judged by their ends: steps are taken to meet."""
        highest = min((end for end in (self.max, other.max) if end is not None), default=None)
        return highest is None or max(self.min, other.min) <= highest

    def __str__(self) -> str:
        text = f"{self.min} and up" if self.max is None else f"{self.min} to {self.max}"
        return text if self.multiple_of == 1 else f"{text}, multiples of {self.multiple_of}"


Value: TypeAlias = str | int
Values: TypeAlias = tuple[Value, ...] | Range


@dataclass(frozen=True, slots=True)
class Trait:
    """A field that is baked into machine code, and part of a variant's name.

    ``enum`` is the C++ enumeration of its values, or none for integers. A name has ``prefix`` and the value, unless
    that is ``unnamed``.
    """

    name: str
    enum: str | None
    prefix: str = ""
    unnamed: Value | None = None


@dataclass(frozen=True, slots=True)
class Arch:
    """What machine code runs on: its payload, device type and the compute capabilities that may run it.

    ``tensor_cores`` names the ops whose kernels must multiply on tensor cores.
    """

    name: str
    payload: str
    device: str
    capabilities: tuple[str, ...] = ()
    tensor_cores: tuple[str, ...] = ()
    limits: Mapping[str, Range] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exclude:
    """Points that no row may name, and why. A field absent from ``match`` matches every value."""

    match: Mapping[str, tuple[Value, ...]]
    reason: str

    def covers(self, point: Mapping[str, object]) -> bool:
        """Whether ``point`` is one of the points excluded."""
        return all(point.get(name) in values for name, values in self.match.items())


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the matrix as written; ``where`` says which file and which row."""

    where: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel: an op on an arch, its baked traits in the order of its name, and what it accepts at run time.

    ``name`` is the exported id: file, symbol, registry key and test id all derive from it. ``unit`` is the translation
    unit that instantiates it, with those that differ in the traits of ``APART`` only. ``folder`` is where under
    ``csrc/`` its op is written, and its C++ namespace.
    """

    name: str
    unit: str
    op: str
    arch: str
    baked: tuple[tuple[str, Value], ...]
    accepts: tuple[tuple[str, Values], ...]
    priority: int
    folder: str
    where: str

    @property
    def dtypes(self) -> tuple[Value, ...]:
        """The element types in the order of the op's traits."""
        return tuple(value for trait, value in self.baked if trait.endswith("_dtype"))


APART = ("in_dtype", "kv_dtype", "out_dtype")
"""Traits in which the variants of one translation unit may differ."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """The whole matrix: domains of fields, fields of ops, archs, formats of caches, kernel rows and excludes."""

    enums: Mapping[str, tuple[str, ...]]
    """The C++ enumerations of traits: their enumerators in the order of their numbers."""
    traits: Mapping[str, Trait]
    domains: Mapping[str, Values]
    accepted: Mapping[str, tuple[str, ...]]
    archs: Mapping[str, Arch]
    formats: Formats
    rows: tuple[Row, ...]
    excludes: tuple[Exclude, ...]
    version: str
    sha256: str
    """Of the tables as they are written."""

    def fields(self, op: str) -> tuple[str, ...]:
        """The fields a row of ``op`` must give: op, arch, its traits, and what it accepts at run time."""
        return ("op", "arch", *abi.OP[op].traits, *self.accepted.get(op, ()))

    def variant_name(self, arch: str, op: str, baked: Mapping[str, Value]) -> str:
        """Join arch, op and the traits in the op's order: ``cpu_decode_qbf16_kvbf16_obf16_direct_split``."""
        named = (self.traits[name] for name in abi.OP[op].traits if name in baked)
        shown = (f"{trait.prefix}{baked[trait.name]}" for trait in named if baked[trait.name] != trait.unnamed)
        return "_".join([arch, op, *shown])

    def unit_name(self, arch: str, op: str, baked: Mapping[str, Value]) -> str:
        """The name of the translation unit of a variant, which its arch's folder holds."""
        together = {trait: value for trait, value in baked.items() if trait not in APART}
        return self.variant_name(arch, op, together).removeprefix(f"{arch}_")

    def excluded(self, point: Mapping[str, object]) -> Exclude | None:
        """The first exclude that matches, if any."""
        return next((exclude for exclude in self.excludes if exclude.covers(point)), None)
