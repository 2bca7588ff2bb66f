"""The config of a lookup: its fields, the values that they may have, and what is filled in where they are left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import get_args

from mla_kernels import _launcher
from mla_kernels._types import FIELDS, INSTEAD, KV_LAYOUTS, ComputeDType, InDType, KvDType, OutDType, QDType
from mla_kernels._types import Arch as ArchName
from mla_kernels.devices.machine import current_arch, dotted
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import ONLY_WIDTHS, WIDTHS
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Arch, Value
from mla_kernels.scalars import MOST, quoted
from mla_kernels.tensors import element_name

_FIELDS = frozenset(FIELDS)
_ARCHS = get_args(ArchName)
_SAME = "same"
"""What ``extra_kv_dtype`` is where a second cache has the format of the first one."""
_EXACT = "exact"
"""What ``compute_dtype`` is where neither Q nor P is rounded to a type of 8 bits."""
_NAMES: dict[str, Collection[str]] = {
    "op": _launcher.OPS,
    "kv_layout": KV_LAYOUTS,
    "q_dtype": get_args(QDType),
    "kv_dtype": get_args(KvDType),
    "out_dtype": get_args(OutDType),
    "in_dtype": get_args(InDType),
    "extra_kv_dtype": (_SAME, *get_args(KvDType)),
    "compute_dtype": get_args(ComputeDType),
}
DEFAULTS: dict[str, Value] = {**WIDTHS, "extra_kv_dtype": _SAME, "compute_dtype": _EXACT}
"""What configs, names and commands mean that leave out such a trait: a search goes through no others then."""
_ANY_NAME = ("load", "schedule")
_FP8_NAMES = {"e4m3": "fp8 with one scale is e4m3", "fp8_ds_mla": "rows of 656 bytes are fp8_ds_mla"}
"""What users who write ``fp8`` may mean."""


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
    defaults = DEFAULTS | ONLY_WIDTHS.get(str(config.get("kv_dtype")), {})
    return {**{name: value for name, value in defaults.items() if name in fields}, **config}


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
    if field in _NAMES:
        return _name(field, element_name(value) if field.endswith("_dtype") else value, _NAMES[field])
    if field == "arch":
        return _arch(value)
    if field in _ANY_NAME:
        if not isinstance(value, str) or not str.__str__(value):
            raise ValueRangeError(field, quoted(value), "a name")
        return str.__str__(value)
    number = -1 if isinstance(value, bool) or not isinstance(value, int) else int.__index__(value)
    if not 0 <= number <= MOST:
        raise ValueRangeError(field, quoted(value), "an integer from 0 to 2^63 - 1")
    return number


def arch_named(name: str) -> str:
    """The arch of that name, or the one that the payload of that name is built for: ``sm90a`` for ``sm90``."""
    if name in _ARCHS or payloads().arch(name):
        return name
    return next((arch.name for arch in payloads().archs if arch.payload == name), name)


def _arch(value: object) -> str:
    name = arch_named(str.__str__(value)) if isinstance(value, str) else None
    if name is not None and name in _ARCHS:
        return name
    installed = payloads()
    archs = {arch.name: arch for arch in installed.archs}
    if name is None or not (name in archs or name in {each.name for each in installed.rejected}):  # which lookups tell
        raise ValueRangeError("arch", quoted(value), ", ".join(map(_told, archs.values())) or ", ".join(_ARCHS))
    return name


def _told(arch: Arch) -> str:
    """``sm90a (or sm90; compute capability 9.0)``."""
    also = [f"or {arch.payload}"] if arch.payload != arch.name else []
    needs = [f"compute capability {' or '.join(map(dotted, arch.capabilities))}"] if arch.capabilities else []
    return f"{arch.name} ({'; '.join([*also, *needs])})" if also or needs else arch.name


def _name(argument: str, value: object, names: Collection[str]) -> str:
    name = str.__str__(value) if isinstance(value, str) else None  # not what a subclass says that it is
    if name is None or name not in names:
        hints = [said for known, said in _FP8_NAMES.items() if known in names] if "fp8" in str(name) else []
        raise ValueRangeError(argument, quoted(value), "; ".join([", ".join(names), *hints]))
    return name
