"""Reads tables of TOML into the model's types; a table of another shape is refused by its place and what it must be.

Names become paths, symbols and text of generated files, so that they are words: lower case letters, digits and ``_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from codegen.model import Arch, MatrixError, Range, Trait, Value, Values

WORD = re.compile(r"[a-z][a-z0-9_]*")
TYPE = re.compile(r"[A-Z][A-Za-z0-9]*")
CAPABILITY = re.compile(r"\d+\.\d+")
RANGE = ("min", "max", "multiple_of")


def refuse(where: str, got: object, accepts: str) -> NoReturn:
    """Say what stands somewhere, and what may."""
    raise MatrixError([f"{where}: got {got!r}; accepts {accepts}"])


def word(where: str, value: object) -> str:
    """A name."""
    if not isinstance(value, str) or not WORD.fullmatch(value):
        refuse(where, value, "a name of lower case letters, digits and _")
    return value


def words(where: str, value: object) -> tuple[str, ...]:
    """A list of names."""
    if not isinstance(value, list):
        refuse(where, value, "a list of names")
    return tuple(word(where, item) for item in value)


def integer(where: str, value: object) -> int:
    """A number that is no boolean."""
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(where, value, "an integer")
    return value


def value(where: str, stated: object) -> Value:
    """A name or a number."""
    return integer(where, stated) if isinstance(stated, int) else word(where, stated)


def table(where: str, value: object, needs: tuple[str, ...], may: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """A table that has the fields it needs, and no others than those it may have."""
    if not isinstance(value, Mapping):
        refuse(where, value, "a table")
    for name in value:
        if name not in (*needs, *may):
            refuse(f"{where}: field", name, ", ".join((*needs, *may)))
    for name in needs:
        if name not in value:
            raise MatrixError([f"{where}: field {name!r} is missing"])
    return value


def values(where: str, stated: object) -> Values:
    """A value, a list of values, or a range ``{ min, max, multiple_of }``."""
    if isinstance(stated, Mapping):
        limits = {name: integer(f"{where}: {name}", limit) for name, limit in table(where, stated, (), RANGE).items()}
        found = Range(limits.get("min", 0), limits.get("max"), limits.get("multiple_of", 1))
        if found.multiple_of < 1 or (found.max is not None and found.max < found.min):
            refuse(where, dict(stated), "a range with min <= max and multiple_of >= 1")
        return found
    listed = stated if isinstance(stated, list) else [stated]
    if not listed:
        refuse(where, stated, "at least one value")
    return tuple(value(where, item) for item in listed)


def domain(where: str, stated: object) -> Values:
    """What a field may say: ``{ values = [...] }``, or a range."""
    if isinstance(stated, Mapping) and "values" in stated:
        return values(where, table(where, stated, ("values",))["values"])
    return values(where, stated)


def trait(name: str, where: str, stated: object) -> Trait:
    """``{ enum, instead, prefix, unnamed, values }``, of which integers have no ``enum``."""
    fields = table(where, stated, (), ("enum", "instead", "prefix", "unnamed", "values"))
    enum = fields.get("enum")
    if enum is not None and (not isinstance(enum, str) or not TYPE.fullmatch(enum)):
        refuse(f"{where}: enum", enum, "the name of an enumeration, such as DType")
    prefix = word(f"{where}: prefix", fields["prefix"]) if "prefix" in fields else ""
    unnamed = fields.get("unnamed")
    others = fields.get("instead", {})
    if not isinstance(others, Mapping):
        refuse(f"{where}: instead", others, "a table of types")
    instead = {own: word(f"{where}: instead of {own}", other) for own, other in others.items()}
    return Trait(name, enum, prefix, None if unnamed is None else value(f"{where}: unnamed", unnamed), instead)


def arch(where: str, stated: object) -> Arch:
    """What machine code runs on."""
    fields = table(where, stated, ("name", "payload", "device"), ("capabilities", "tensor_cores", "hardware"))
    name, payload, device = (word(f"{where}: {key}", fields[key]) for key in ("name", "payload", "device"))
    if device not in ("cpu", "cuda"):
        refuse(f"{where}: device", device, "cpu, cuda")
    capabilities = fields.get("capabilities", [])
    for capability in capabilities if isinstance(capabilities, list) else [capabilities]:
        if not isinstance(capability, str) or not CAPABILITY.fullmatch(capability):
            refuse(f"{where}: capabilities", capability, 'a list of compute capabilities, such as "9.0"')
    tensor_cores = words(f"{where}: tensor_cores", fields.get("tensor_cores", []))
    hardware = fields.get("hardware", name)
    if not isinstance(hardware, str):
        refuse(f"{where}: hardware", hardware, 'the name of the machines, such as "Hopper: H100"')
    return Arch(name, payload, device, tuple(capabilities), tensor_cores, hardware)


def served(where: str, fields: Mapping[str, Any], archs: Mapping[str, Arch]) -> tuple[str, ...]:
    """The archs that a table is for: those that its ``arch`` names, or all of its ``device``."""
    if "device" in fields:
        if "arch" in fields:
            refuse(f"{where}: device", fields["device"], "an arch or a device, not both")
        device = word(f"{where}: device", fields["device"])
        found = tuple(arch.name for arch in archs.values() if arch.device == device)
        if not found:
            refuse(f"{where}: device", device, ", ".join(dict.fromkeys(arch.device for arch in archs.values())))
        return found
    if "arch" not in fields:
        raise MatrixError([f"{where}: field 'arch' is missing"])
    stated = fields["arch"]
    return words(f"{where}: arch", stated if isinstance(stated, list) else [stated])


def reasons(where: str, stated: object) -> Mapping[str, str]:
    """Sentences by field."""
    if not isinstance(stated, Mapping):
        refuse(where, stated, "a table of reasons")
    for field, reason in stated.items():
        if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
            refuse(f"{where}: {field}", reason, "a reason in words, on one line")
    return stated
