"""The config of a lookup: its fields, the values that they may have, and what is filled in where they are left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mla_kernels import _launcher
from mla_kernels._types import DTYPES, FIELDS, KV_LAYOUTS
from mla_kernels.devices.machine import current_arch
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import WIDTHS
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Value


def completed(config: Mapping[str, object]) -> dict[str, Value]:
    """Check a config that names its op, and fill in the arch and the element types that follow from the input's."""
    op = _name("op", config.get("op"), _launcher.OPS)
    wanted = checked(config)
    index = payloads().indices[op]
    for field in wanted if index.variants else ():
        _name(f"config field of {op}", field, ("op", *index.fields))
    if "arch" not in wanted:
        wanted["arch"] = current_arch()
    own = wanted.get("q_dtype", wanted.get("in_dtype"))
    if own is not None:
        for field, value in {"kv_dtype": own, "out_dtype": "bf16" if own == "e4m3" else own}.items():
            if field in index.fields:
                wanted.setdefault(field, value)
    return {field: wanted[field] for field in FIELDS if field in wanted}


def with_widths(config: Mapping[str, Value], fields: Collection[str]) -> dict[str, Value]:
    """Fill in the default widths, of an op that has such fields: a config leaves them out, a search must not."""
    return {**{name: width for name, width in WIDTHS.items() if name in fields}, **config}


def checked(config: Mapping[str, object]) -> dict[str, Value]:
    """Refuse names and values that no variant could have; drop what is ``None``, and order the rest."""
    for field in config:
        _name("config field", field, FIELDS)
    return {field: _value(field, config[field]) for field in FIELDS if config.get(field) is not None}


def _value(field: str, value: object) -> Value:
    if field == "op":
        return _name(field, value, _launcher.OPS)
    if field.endswith("_dtype"):
        return _name(field, value, DTYPES)
    if field == "kv_layout":
        return _name(field, value, KV_LAYOUTS)
    if field in ("arch", "load", "schedule"):
        if not isinstance(value, str):
            raise ValueRangeError(field, repr(value), "a name")
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueRangeError(field, repr(value), "an integer from 0")
    return value


def _name(argument: str, value: object, names: Collection[str]) -> str:
    if not isinstance(value, str) or value not in names:
        raise ValueRangeError(argument, repr(value), ", ".join(names))
    return value
