"""Tables of TOML, which have the form of the schema, as the model's types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from codegen.model import Arch, Range, Trait, Values
from codegen.schema import MatrixError


def refuse(where: str, got: object, accepts: str) -> NoReturn:
    """Say what stands somewhere, and what may."""
    raise MatrixError([f"{where}: got {got!r}; accepts {accepts}"])


def values(stated: Any) -> Values:
    """A value, a list of values, or a range ``{ min, max, multiple_of }``."""
    if isinstance(stated, Mapping):
        return Range(stated.get("min", 0), stated.get("max"), stated.get("multiple_of", 1))
    return tuple(stated) if isinstance(stated, list) else (stated,)


def domain(stated: Mapping[str, Any]) -> Values:
    """What a field may say: ``{ values = [...] }``, or a range."""
    return values(stated.get("values", stated))


def trait(name: str, stated: Mapping[str, Any]) -> Trait:
    """``{ enum, instead, prefix, unnamed, values }``, of which integers have no ``enum``."""
    return Trait(name, **{"enum": None, **{key: value for key, value in stated.items() if key != "values"}})


def arch(stated: Mapping[str, Any]) -> Arch:
    """What machine code runs on."""
    listed = {key: tuple(value) if isinstance(value, list) else value for key, value in stated.items()}
    one_unit = {op: tuple(traits) for op, traits in stated.get("one_unit", {}).items()}
    return Arch(**{"hardware": stated["name"], **listed, "one_unit": one_unit})


def served(where: str, fields: Mapping[str, Any], archs: Mapping[str, Arch]) -> tuple[str, ...]:
    """The archs that a table is for: those that its ``arch`` names, or all of its ``device``."""
    if "device" in fields:
        device = fields["device"]
        if "arch" in fields:
            refuse(f"{where}: device", device, "an arch or a device, not both")
        found = tuple(arch.name for arch in archs.values() if arch.device == device)
        if not found:
            refuse(f"{where}: device", device, ", ".join(dict.fromkeys(arch.device for arch in archs.values())))
        return found
    if "arch" not in fields:
        raise MatrixError([f"{where}: field 'arch' is missing"])
    return tuple(fields["arch"]) if isinstance(fields["arch"], list) else (fields["arch"],)
