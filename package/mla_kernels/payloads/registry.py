"""Reads a payload's ``registry.json``: its variants, and what the matrix that they came from allows beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from mla_kernels.payloads.json_fields import typed

Value: TypeAlias = str | int
Item = TypeVar("Item")

Limits: TypeAlias = Mapping[str, tuple[int, int, int] | tuple[int, int, int, bool]]
"""Minimum, maximum and step of dimensions and integers, and whether a plan sets them."""

Capability: TypeAlias = tuple[int, int]
"""A compute capability, such as ``(9, 0)``."""


@dataclass(frozen=True, slots=True)
class Arch:
    """What machine code runs on, the payload that holds it, and the compute capabilities that it was built for."""

    name: str
    payload: str
    device: str
    capabilities: tuple[Capability, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """A finite set of values."""

    values: tuple[Value, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


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

    def __str__(self) -> str:
        text = f"{self.min} and up" if self.max is None else f"{self.min} to {self.max}"
        return text if self.multiple_of == 1 else f"{text}, multiples of {self.multiple_of}"


Domain: TypeAlias = Choices | Range


class Fields(dict[str, Item]):
    """What the lookups of a process share, so that nobody can change it; unlike ``MappingProxyType`` it is pickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dict(self),)

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("the fields of a variant cannot be changed; change a copy: dict(fields)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled kernel: what is baked into its machine code, and what it accepts at run time.

    ``accuracy`` says how far outputs are from exact arithmetic where that is more than rounding; elsewhere it is
    empty.
    """

    name: str
    op: str
    arch: str
    payload: str
    priority: int
    baked: Mapping[str, Value]
    accepts: Mapping[str, Domain]
    accuracy: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    def domain(self, field: str) -> Domain | None:
        """What this variant says of one field of a config; ``None`` for a field it does not have."""
        if field == "arch":
            return Choices((self.arch,))
        if field in self.baked:
            return Choices((self.baked[field],))
        return self.accepts.get(field)

    def as_dict(self) -> dict[str, Any]:
        """The variant in plain types, for JSON."""
        accepts = {field: str(domain) for field, domain in self.accepts.items()}
        return {
            "name": self.name,
            "op": self.op,
            "arch": self.arch,
            "payload": self.payload,
            "priority": self.priority,
            **({"accuracy": self.accuracy} if self.accuracy else {}),
            "baked": dict(self.baked),
            "accepts": accepts,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Allow:
    """Points of an op that there are kernels for, on the registry's arch.

    Each of ``rows`` is every combination of the values of its fields; a field that it leaves out has all of its domain.
    ``reasons`` says of a field why it has no other values.
    """

    op: str
    rows: tuple[Mapping[str, Domain], ...]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Registry:
    """What one payload's ``registry.json`` says; ``archs`` are all of the matrix, the payload's own among them."""

    payload: str
    arch: str
    device: str
    capabilities: tuple[Capability, ...]
    archs: tuple[Arch, ...]
    abi_hash: str
    traits: Mapping[str, tuple[str, ...]]
    accepted: Mapping[str, tuple[str, ...]]
    domains: Mapping[str, Domain]
    allow: tuple[Allow, ...]
    variants: tuple[Variant, ...]

    def fields(self, op: str) -> tuple[str, ...]:
        """What a config of an op may name beside op and arch: its traits, and what is accepted at run time."""
        return (*self.traits[op], *self.accepted[op])

    @classmethod
    def load(cls, path: Path) -> Registry:
        """Read and parse a file.

        Raises
        ------
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
            The file cannot be read, is no JSON, or has another form: ``document.BROKEN``.
        """
        return cls.parse(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Registry:
        """Build a registry from parsed JSON. Equal domains are shared, so a wide table stays small."""
        shared: dict[str, Domain] = {}

        def domain(stated: Any) -> Domain:
            key = repr(stated)
            if key not in shared:
                shared[key] = _domain(stated)
            return shared[key]

        payload = typed(document["payload"], str)
        own = _arch({**document["arch"], "payload": payload})
        archs = {row["name"]: _arch(row) for row in document.get("archs", ())} | {own.name: own}
        return cls(
            payload=payload,
            arch=own.name,
            device=own.device,
            capabilities=own.capabilities,
            archs=tuple(archs.values()),
            abi_hash=document["abi_hash"],
            traits={op: tuple(names) for op, names in document["traits"].items()},
            accepted={op: tuple(names) for op, names in document["accepted"].items()},
            domains={field: domain(stated) for field, stated in document["domains"].items()},
            allow=tuple(
                Allow(
                    op=typed(table["op"], str),
                    rows=tuple({field: domain(stated) for field, stated in row.items()} for row in table["rows"]),
                    reasons=dict(table["reasons"]),
                )
                for table in document["allow"]
            ),
            variants=tuple(
                Variant(
                    name=typed(row["name"], str),
                    op=typed(row["op"], str),
                    arch=typed(row["arch"], str),
                    payload=payload,
                    priority=typed(row["priority"], int),
                    baked=Fields({trait: _value(value) for trait, value in row["baked"].items()}),
                    accepts=Fields({field: domain(stated) for field, stated in row["accepts"].items()}),
                    accuracy=typed(row.get("accuracy", ""), str),
                )
                for row in document["variants"]
            ),
        )


def _value(stated: object) -> Value:
    return stated if isinstance(stated, int) else typed(stated, str)


def _arch(stated: Mapping[str, Any]) -> Arch:
    capabilities = (capability.split(".") for capability in stated.get("capabilities", ()))
    pairs = tuple((int(major), int(minor)) for major, minor in capabilities)
    return Arch(typed(stated["name"], str), stated["payload"], stated["device"], pairs)


def _domain(stated: Sequence[Value] | Mapping[str, int]) -> Domain:
    if isinstance(stated, Mapping):
        return Range(stated["min"], stated.get("max"), stated.get("multiple_of", 1))
    return Choices(tuple(stated))
