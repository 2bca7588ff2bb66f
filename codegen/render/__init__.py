"""Matrix and variants to files: a pure function to ``{path: text}``. Decisions are made here; templates print."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from codegen.load import digest
from codegen.model import Arch, Matrix, Variant
from codegen.render import abi, cpp, distribution, formats, models, pages, types
from codegen.render.registry import registry
from codegen.render.served import served
from codegen.signature import conversions, python

TEMPLATES = Path(__file__).parents[2] / "templates"
CUDA = "cuda"
SOURCE_SUFFIX = {"cpu": ".cpp", CUDA: ".cu"}
DEFINITIONS = {"cpu": ".h", CUDA: ".cuh"}
"""Of the header that a unit includes: CUDA definitions are kept apart, because the registry is compiled as C++."""


def render(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, str]:
    """Every generated file, as paths relative to ``generated/`` in posix form."""
    payloads = by_payload(matrix, variants)
    functions = python.context(served(matrix, variants))
    files = {
        "include/mla/abi.h": _print("abi.h.j2", abi.context()),
        "include/mla/traits.h": _print("traits.h.j2", {"enums": matrix.enums}),
        "include/mla/bindings.h": _print("bindings.h.j2", abi.context()),
        "include/mla/formats.h": _print("formats.h.j2", formats.context(matrix.formats)),
        "include/mla/conversions.h": _print("conversions.h.j2", conversions.context()),
        "abi_layout.cpp": _print("abi_layout.cpp.j2", abi.context()),
        "python/_launcher.pyi": _print("python/launcher.pyi.j2", functions),
        "python/api/signatures.py": _print("python/signatures.py.j2", functions),
        "python/kernels/ops.py": _print("python/kernels.py.j2", functions),
        "python/api/ops.py": _print("python/ops.py.j2", functions),
        "python/_formats.py": _print("formats.py.j2", formats.context(matrix.formats)),
        "python/_models.py": _print("models.py.j2", models.context(matrix)),
        "python/_types.py": _print("types.py.j2", types.names(matrix)),
        "VARIANTS.md": _print("pages/VARIANTS.md.j2", pages.listing(matrix, payloads)),
        "SUPPORT.md": _print("pages/SUPPORT.md.j2", pages.support(matrix, payloads)),
        "FORMATS.md": _print("pages/FORMATS.md.j2", formats.page(matrix.formats)),
        "MODELS.md": _print("pages/MODELS.md.j2", models.page(matrix, variants)),
        "provenance.json": _text({"matrix_sha256": matrix.sha256, "templates_sha256": digest(TEMPLATES, "*.j2")}),
    }
    for payload, members in payloads.items():
        files |= _payload(matrix, payload, members)
    return files


def by_payload(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, list[Variant]]:
    """The variants of each payload, in the matrix's order."""
    groups: dict[str, list[Variant]] = defaultdict(list)
    for variant in variants:
        groups[matrix.archs[variant.arch].payload].append(variant)
    return dict(groups)


def _payload(matrix: Matrix, payload: str, variants: Sequence[Variant]) -> dict[str, str]:
    arch = arch_of(matrix, payload)
    files = {
        f"{payload}/{unit}{SOURCE_SUFFIX[arch.device]}": _print(
            "unit.j2",
            {
                "header": cpp.header(members[0], DEFINITIONS[arch.device]),
                "types": [cpp.type_of(matrix, variant) for variant in members],
                "elsewhere": [cpp.type_of(matrix, other) for other in _other_schedules(arch, variants, members)],
            },
        )
        for unit, members in _units(variants).items()
    }
    files[f"{payload}/registry.cpp"] = _print("registry.cpp.j2", cpp.operations(matrix, variants))
    files[f"{payload}/sources.cmake"] = _print(
        "sources.cmake.j2",
        {
            "machine": arch.name.removeprefix("sm"),
            "device": arch.device,
            "folder": distribution.folder(payload),
            "paths": sorted(files),
        },
    )
    files[f"{payload}/allowed.h"] = _print("allowed.h.j2", cpp.allowed(matrix, variants))
    files[f"{payload}/registry.json"] = _text(registry(matrix, arch, variants))
    return files | (_distribution(matrix, arch) if payload != distribution.CORE else {})


def _units(variants: Sequence[Variant]) -> dict[str, list[Variant]]:
    units: dict[str, list[Variant]] = defaultdict(list)
    for variant in variants:
        if variant.baked:
            units[variant.unit].append(variant)
    return units


def _other_schedules(arch: Arch, variants: Sequence[Variant], members: Sequence[Variant]) -> list[Variant]:
    """What the variants of a unit may launch and another unit compiles: the same traits with another schedule."""

    def unscheduled(variant: Variant) -> tuple[object, ...]:
        return variant.op, variant.arch, tuple(pair for pair in variant.baked if pair[0] != "schedule")

    own = {unscheduled(variant) for variant in members if variant.op in arch.other_schedules}
    return [variant for variant in variants if unscheduled(variant) in own and variant not in members]


def _distribution(matrix: Matrix, arch: Arch) -> dict[str, str]:
    """The project of a payload's own wheel."""
    payload, context = arch.payload, distribution.project(matrix, arch)
    return {
        **{f"{payload}/licenses/{name}": text for name, text in distribution.licences(arch).items()},
        f"{payload}/pyproject.toml": _print("distribution/pyproject.toml.j2", context),
        f"{payload}/{distribution.folder(payload)}/__init__.py": _print("distribution/__init__.py.j2", context),
    }


def arch_of(matrix: Matrix, payload: str) -> Arch:
    """The arch that a payload is built for."""
    return next(arch for arch in matrix.archs.values() if arch.payload == payload)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _print(template: str, context: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(context)
