"""The config of a lookup: its fields, the values that they may have, and what is filled in where they are left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import get_args

from mla_kernels import _launcher
from mla_kernels._types import DTYPES, FIELDS, INSTEAD, KV_LAYOUTS, Arch, ComputeDType
from mla_kernels.devices.machine import current_arch
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import WIDTHS
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Value
from mla_kernels.scalars import MOST, quoted
from mla_kernels.tensors import element_name

_FIELDS = frozenset(FIELDS)
_ARCHS = frozenset(get_args(Arch))
_SAME = "same"
"""What ``extra_kv_dtype`` is where a second cache has the format of the first one."""
_EXACT = "exact"
"""What ``compute_dtype`` is where neither Q nor P is rounded to a type of 8 bits."""
_NAMES: dict[str, Collection[str]] = {
    "op": _launcher.OPS,
    "kv_layout": KV_LAYOUTS,
    "extra_kv_dtype": (_SAME, *DTYPES),
    "compute_dtype": get_args(ComputeDType),
}
DEFAULTS: dict[str, Value] = {**WIDTHS, "extra_kv_dtype": _SAME, "compute_dtype": _EXACT}
"""What configs, names and commands mean that leave out such a trait: a search goes through no others then."""
_ANY_NAME = ("arch", "load", "schedule")


def completed(config: Mapping[str, object]) -> dict[str, Value]:
    """Check a config that names its op, and fill in the arch and the element types that follow from the input's."""
    op = _name("op", config.get("op"), _launcher.OPS)
    wanted = checked(config)
    index = payloads().indices[op]
    if index.variants and not wanted.keys() <= index.known:
        for field in wanted:
            _name(f"config field of {op}", field, ("op", *index.fields))
    if "arch" not in wanted:
        wanted["arch"] = current_arch()
    own = wanted.get("q_dtype", wanted.get("in_dtype"))
    if own is not None:
        for field in ("kv_dtype", "out_dtype"):
            if field in index.fields:
                wanted.setdefault(field, INSTEAD.get(field, {}).get(str(own), own))
    return {field: wanted[field] for field in FIELDS if field in wanted}


def with_defaults(config: Mapping[str, Value], fields: Collection[str]) -> dict[str, Value]:
    """Fill in the traits that a config may leave out, of an op that has such fields: a search must not."""
    return {**{name: value for name, value in DEFAULTS.items() if name in fields}, **config}


def checked(config: Mapping[str, object]) -> dict[str, Value]:
    """Refuse names and values that no variant could have; drop what is ``None``, and order the rest."""
    if not config.keys() <= _FIELDS:
        for field in config:
            _name("config field", field, FIELDS)
    wanted = {field: _value(field, config[field]) for field in FIELDS if config.get(field) is not None}
    if "extra_kv_dtype" in wanted and wanted["extra_kv_dtype"] == wanted.get("kv_dtype"):
        wanted["extra_kv_dtype"] = _SAME
    return wanted


def _value(field: str, value: object) -> Value:
    if field.endswith("_dtype"):
        return _name(field, element_name(value), _NAMES.get(field, DTYPES))
    if field in _NAMES:
        return _name(field, value, _NAMES[field])
    if field in _ANY_NAME:
        if not isinstance(value, str) or not str.__str__(value):
            raise ValueRangeError(field, quoted(value), "a name")
        return arch_named(str.__str__(value)) if field == "arch" else str.__str__(value)
    number = -1 if isinstance(value, bool) or not isinstance(value, int) else int.__index__(value)
    if not 0 <= number <= MOST:
        raise ValueRangeError(field, quoted(value), "an integer from 0 to 2^63 - 1")
    return number


def arch_named(name: str) -> str:
    """The arch of that name, or the one that the payload of that name is built for: ``sm90a`` for ``sm90``."""
    if name in _ARCHS or payloads().arch(name):
        return name
    return next((arch.name for arch in payloads().archs if arch.payload == name), name)


def _name(argument: str, value: object, names: Collection[str]) -> str:
    name = str.__str__(value) if isinstance(value, str) else None  # not what a subclass says that it is
    if name is None or name not in names:
        raise ValueRangeError(argument, quoted(value), ", ".join(names))
    return name
