"""A package ``vllm`` of stand-ins, made from the names that ``tests.runtime.compat.read_vllm`` read of a release."""

from __future__ import annotations

import abc
import dataclasses
import enum
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
from mla_kernels.payloads.registry import Registry, Variant

from tests.structure.imports import ROOT

READ = Path(__file__).parent / "vllm"
RELEASES = {path.stem: json.loads(path.read_text()) for path in sorted(READ.glob("*.json"))}
ENUMS = ("AttentionCGSupport", "AttentionBackendEnum", "QueryLenSupport")
RECORDS = ("MLACommonDecodeMetadata", "MultipleOf")
OURS = ("mla_kernels.compat._vllm_backend", *(f"mla_kernels.compat._vllm.{name}" for name in (
    "decoding", "dense", "cpu", "amx",
)))  # fmt: skip
"""Our modules that import vLLM: they are imported anew beside each release."""
BASES = {
    "MLACommonBackend": ("AttentionBackend",), "MLACommonMetadataBuilder": ("AttentionMetadataBuilder",),
    "MLACommonBaseImpl": ("MLAAttentionImpl",), "MLACommonImpl": ("MLACommonBaseImpl",),
    "MLAAttentionImpl": ("AttentionImplBase",), "CPUMLABackend": ("MLACommonBackend",),
    "CPUMLAImpl": ("MLACommonImpl",), "AMXMLABackend": ("MLACommonBackend",),
    "AMXMLAMetadataBuilder": ("MLACommonMetadataBuilder",), "AMXMLAImpl": ("MLACommonImpl",),
}  # fmt: skip


class Overrides(dict[str, str]):
    """The paths that backends were registered with."""

    release = ""
    config: Any = None
    """What ``get_current_vllm_config`` returns."""


def installed(monkeypatch: pytest.MonkeyPatch, release: str) -> Iterator[Overrides]:
    """Install stand-ins of a release, and yield what is registered with them."""
    overrides, modules = Overrides(), dict[str, ModuleType]()
    overrides.release = release
    overrides.config = SimpleNamespace(attention_config=SimpleNamespace(hisparse_config=None))
    made: dict[str, type] = {}
    described = RELEASES[release]["classes"]
    for name in described:
        module = modules.setdefault(described[name]["module"], ModuleType(described[name]["module"]))
        setattr(module, name, stand_in(name, described, made))
    _registry(modules["vllm.v1.attention.backends.registry"], overrides)
    for name in list(modules):
        while name := name.rpartition(".")[0]:
            modules.setdefault(name, ModuleType(name))
    config = modules.setdefault("vllm.config", ModuleType("vllm.config"))
    config.get_current_vllm_config = lambda: overrides.config  # type: ignore[attr-defined]
    modules["vllm"].envs = SimpleNamespace(VLLM_BATCH_INVARIANT=False)  # type: ignore[attr-defined]
    modules["vllm"].__version__ = release  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in OURS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield overrides
    for name in OURS:
        sys.modules.pop(name, None)


def stand_in(name: str, described: dict[str, Any], made: dict[str, type]) -> type:
    """A class with the bases, methods and attributes of vLLM's; its methods do nothing, and it keeps its arguments."""
    if name in made:
        return made[name]
    parts = described[name]
    if name in ENUMS:
        made[name] = enum.Enum(name, {each: index for index, each in enumerate(parts["attributes"])})  # type: ignore[assignment]
    elif name in RECORDS:
        made[name] = dataclasses.make_dataclass(name, parts["attributes"])
    else:
        body: dict[str, Any] = dict.fromkeys(parts["attributes"])
        body |= {each: lambda *_, **__: None for each in parts["methods"] if each != "__new__"}
        if "__init__" in body:
            body["__init__"] = keeper(parts["methods"]["__init__"])
        bases = tuple(stand_in(base, described, made) for base in BASES.get(name, ()))
        made[name] = type(name, bases or (abc.ABC,), body)
    return made[name]


def keeper(parameters: list[str]) -> Any:
    """An ``__init__`` that keeps its arguments as attributes."""
    names = [each.rstrip("=") for each in parameters if each != "self"]

    def keep(self: Any, *args: Any, **kwargs: Any) -> None:
        vars(self).update(dict(zip(names, args, strict=False)) | kwargs)

    return keep


def gpus_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both GPU payloads be installed, as far as their registries say what they serve."""
    read = [Registry.load(ROOT / "generated" / name / "registry.json") for name in ("sm90", "sm100")]

    def variants(**wanted: Any) -> tuple[Variant, ...]:
        op = wanted.pop("op")
        found = [row for registry in read for row in registry.variants if row.op == op]
        return tuple(row for row in found if all(value in (row.domain(name) or ()) for name, value in wanted.items()))

    monkeypatch.setattr(mla, "variants", variants)


def _registry(registry: Any, overrides: Overrides) -> None:
    """Let the stand-in of the registry register, as vLLM's does."""
    backends = registry.AttentionBackendEnum

    def register(name: str, value: str) -> Any:
        member = object.__new__(backends)
        member._name_, member._value_ = name, value
        backends._member_map_[name] = member
        return member

    backends.register = register
    backends.is_overridden = lambda member: member.name in overrides
    registry.register_backend = lambda backend, class_path=None, is_mamba=False: overrides.update(
        {backend.name: class_path}
    )


def ours(path: str) -> Any:
    """One of our classes by its path; to import it is to import vLLM."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def shape_of(function: Any) -> list[str]:
    """Parameters as ``read_vllm`` writes them."""
    return [
        name if each.default is each.empty else f"{name}="
        for name, each in inspect.signature(function).parameters.items()
    ]


def check_overridden(mine: type, theirs: list[str], release: str) -> None:
    """Demand that what a class overrides is what vLLM has, with its parameters; more of ours must have defaults."""
    described = [RELEASES[release]["classes"][name] for name in theirs]
    methods = {name: names for each in reversed(described) for name, names in each["methods"].items()}
    attributes = {name for each in described for name in each["attributes"]}
    overridden = 0
    for name, member in vars(mine).items():
        function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        passed_on = callable(function) and any(
            each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values()
        )
        if name in methods and not passed_on:
            # Subclasses of vLLM's make instances themselves: what may be left out of __init__ is theirs to give.
            wanted = [each for each in methods[name] if name != "__init__" or not each.endswith("=")]
            assert [each for each in shape_of(function) if each in wanted or not each.endswith("=")] == wanted, name
            overridden += 1
        elif not callable(function) and not name.startswith("__") and not isinstance(member, property):
            assert name in attributes or name.startswith("_abc"), f"vLLM has no {name}"
    assert overridden > 0


NOT_ASKED = {
    **dict.fromkeys(("_w_scale", "_w_uk_packed", "_w_uv_packed"), "of vLLM's projections with AMX, which makes them"),
    **dict.fromkeys(
        ("masked_mha_available", "masked_mha_workspace_fits"), "where a sparse layer has metadata of prefill"
    ),
}
"""What vLLM's layers ask only some backends for, and which."""


def check_asked(mine: type, release: str) -> None:
    """Demand that the backend of a layer has what vLLM's layers ask it for."""
    layers = ["any layer", "a sparse layer"] if mine.is_sparse else ["any layer"]  # type: ignore[attr-defined]
    asked = {name for layer in layers for name in RELEASES[release]["asked"][layer]}
    assert {name for name in asked if not hasattr(mine, name)} <= NOT_ASKED.keys()
