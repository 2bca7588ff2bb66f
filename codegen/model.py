"""What the matrix says, typed and frozen; the only definition of a variant's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import TypeAlias

from codegen import abi
from codegen.formats import Formats
from codegen.models import Models
from codegen.models.peers import Peers


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

    def with_value(self, value: int) -> Range:
        """The smallest range that holds this one and ``value``."""
        most = None if self.max is None else max(self.max, value)
        return Range(min(self.min, value), most, gcd(self.multiple_of, value))

    def stated(self) -> dict[str, int]:
        """The range as a table of the matrix or of JSON says it."""
        limits = {"min": self.min, "max": self.max, "multiple_of": self.multiple_of}
        return {key: limit for key, limit in limits.items() if limit is not None and (key, limit) != ("multiple_of", 1)}

    def __str__(self) -> str:
        text = f"{self.min} and up" if self.max is None else f"{self.min} to {self.max}"
        return text if self.multiple_of == 1 else f"{text}, multiples of {self.multiple_of}"


Value: TypeAlias = str | int
Values: TypeAlias = tuple[Value, ...] | Range


def within(inner: Values, outer: Values) -> bool:
    """Whether every value of ``inner`` is one of ``outer``."""
    if isinstance(inner, Range):
        return isinstance(outer, Range) and outer.covers(inner)
    return all(value in outer for value in inner)


def meet(left: Values, right: Values) -> bool:
    """Whether some value is in both."""
    if isinstance(left, Range):
        return left.meets(right) if isinstance(right, Range) else any(value in left for value in right)
    return any(value in right for value in left)


def choices(values: Values) -> tuple[Value, ...]:
    """The values one by one; none of a range."""
    return () if isinstance(values, Range) else values


def text_of(values: Values) -> str:
    """``fp16, bf16``, or ``1 and up``."""
    return str(values) if isinstance(values, Range) else ", ".join(map(str, values))


@dataclass(frozen=True, slots=True)
class Trait:
    """A field that is baked into machine code, and part of a variant's name.

    ``enum`` is the C++ enumeration of its values, or none for integers. A name has ``prefix`` and the value, unless
    that is ``unnamed``. A trait that follows the input's type has another one for those of ``instead``.
    """

    name: str
    enum: str | None
    prefix: str = ""
    unnamed: Value | None = None
    instead: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arch:
    """What machine code runs on: its payload, device type and the compute capabilities that may run it.

    ``tensor_cores`` names the ops whose kernels must multiply on tensor cores, and ``hardware`` is what people call the
    machines: "Hopper: H100, H200". ``one_unit`` has by op the traits in which the variants of one translation unit may
    differ besides those of ``APART``, because they share a kernel that is compiled once. ``other_schedules`` names the
    ops whose variants may launch what another unit compiles: the variant of the same traits with another schedule.
    """

    name: str
    payload: str
    device: str
    capabilities: tuple[str, ...] = ()
    tensor_cores: tuple[str, ...] = ()
    other_schedules: tuple[str, ...] = ()
    hardware: str = ""
    one_unit: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Box:
    """Points that there are kernels for: every combination of the values of its fields."""

    where: str
    values: Mapping[str, Values]
    folder: str
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Allow:
    """An ``[[allow]]`` table, for one of its archs: the points of an op that rows may name.

    ``folder`` is where under ``csrc/`` the kernels are written, and their C++ namespace. ``reasons`` says of a field
    why it has no other values.
    """

    where: str
    op: str
    arch: str
    folder: str
    boxes: tuple[Box, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of kernels with the fields of its table; ``where`` says which file and which line.

    A trait with several values makes a variant of each. A field that a row leaves out is accepted as far as there are
    kernels for it. ``accuracy`` says how far outputs are from exact arithmetic where that is more than rounding.
    ``places`` has the file and the line of each field.
    """

    where: str
    op: str
    archs: tuple[str, ...]
    fields: Mapping[str, Values]
    priority: int = 0
    accuracy: str = ""
    places: Mapping[str, str] = field(default_factory=dict)

    def at(self, name: str) -> str:
        """Where a field stands, which may be the row's table."""
        return self.places.get(name, self.where)


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel: an op on an arch, its baked traits in the order of its name, and what it accepts at run time.

    ``name`` is the exported id: file, symbol, registry key and test id all derive from it. ``unit`` is the translation
    unit that instantiates it, with those that differ only in the traits of ``APART`` and of its arch's ``one_unit``.
    ``folder`` is where under ``csrc/`` its op is written, and its C++ namespace.
    """

    name: str
    unit: str
    op: str
    arch: str
    baked: tuple[tuple[str, Value], ...]
    accepts: tuple[tuple[str, Values], ...]
    priority: int
    accuracy: str
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
    """The whole matrix: traits, domains, fields of ops, archs, formats of caches, points, rows, models and peers."""

    enums: Mapping[str, tuple[str, ...]]
    """The C++ enumerations of traits: their enumerators in the order of their numbers."""
    traits: Mapping[str, Trait]
    domains: Mapping[str, Values]
    accepted: Mapping[str, tuple[str, ...]]
    archs: Mapping[str, Arch]
    formats: Formats
    allows: tuple[Allow, ...]
    rows: tuple[Row, ...]
    version: str
    sha256: str
    """The hash of the tables as they are written."""
    models: Models = field(default_factory=Models)
    peers: Peers = field(default_factory=Peers)

    def fields(self, op: str) -> tuple[str, ...]:
        """The fields of a point of ``op`` beside op and arch: its traits, and what it accepts at run time."""
        return (*abi.OP[op].traits, *self.accepted.get(op, ()))

    def boxes(self, op: str, arch: str) -> tuple[Box, ...]:
        """The points of ``op`` on ``arch`` that rows may name."""
        return tuple(box for allow in self.allows if (allow.op, allow.arch) == (op, arch) for box in allow.boxes)

    def variant_name(self, arch: str, op: str, baked: Mapping[str, Value]) -> str:
        """Join arch, op and the traits in the op's order: ``cpu_decode_qbf16_kvbf16_obf16_direct_split``."""
        named = (self.traits[name] for name in abi.OP[op].traits if name in baked)
        shown = (f"{trait.prefix}{baked[trait.name]}" for trait in named if baked[trait.name] != trait.unnamed)
        return "_".join([arch, op, *shown])

    def unnamed(self, op: str) -> dict[str, Values]:
        """The traits of ``op`` that rows and names leave out, with the value that they then are."""
        found = {name: self.traits[name].unnamed for name in abi.OP[op].traits if name in self.traits}
        return {name: (value,) for name, value in found.items() if value is not None}

    def stated(self, op: str, baked: Mapping[str, Value]) -> dict[str, Value]:
        """The traits of a point of ``op`` that its row and its name say: not those that are left out."""
        return {name: baked[name] for name in abi.OP[op].traits if baked[name] != self.traits[name].unnamed}

    def unit_name(self, arch: str, op: str, baked: Mapping[str, Value]) -> str:
        """The name of the translation unit of a variant, which its payload's folder holds."""
        apart = (*APART, *self.archs[arch].one_unit.get(op, ()))
        together = {trait: value for trait, value in baked.items() if trait not in apart}
        return self.variant_name(arch, op, together).removeprefix(f"{arch}_")
