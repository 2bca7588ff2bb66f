"""Matrix and variants to files: a pure function to ``{path: text}``. Decisions are made here; templates print."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from codegen import abi, render_abi, render_formats
from codegen.load import digest
from codegen.model import Arch, Matrix, Range, Values, Variant
from codegen.signature import conversions, python

TEMPLATES = Path(__file__).parent.parent / "templates"
LICENCES = Path(__file__).parent.parent / "licenses"
CUDA = "cuda"
SOURCE_SUFFIX = {"cpu": ".cpp", CUDA: ".cu"}
DEFINITIONS = {"cpu": ".h", CUDA: ".cuh"}
"""Of the header that a unit includes: CUDA definitions are kept apart, because the registry is compiled as C++."""


def render(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, str]:
    """Every generated file, as paths relative to ``generated/`` in posix form."""
    files = {
        "include/mla/abi.h": _print("abi.h.j2", render_abi.context()),
        "include/mla/traits.h": _print("traits.h.j2", {"enums": matrix.enums}),
        "include/mla/bindings.h": _print("bindings.h.j2", render_abi.context()),
        "include/mla/formats.h": _print("formats.h.j2", render_formats.context(matrix.formats)),
        "include/mla/conversions.h": _print("conversions.h.j2", conversions.context()),
        "abi_layout.cpp": _print("abi_layout.cpp.j2", render_abi.context()),
        "python/_launcher.pyi": _print("python/launcher.pyi.j2", python.context()),
        "python/api/signatures.py": _print("python/signatures.py.j2", python.context()),
        "python/kernels/ops.py": _print("python/kernels.py.j2", python.context()),
        "python/api/ops.py": _print("python/ops.py.j2", python.context()),
        "python/_formats.py": _print("formats.py.j2", render_formats.context(matrix.formats)),
        "python/_types.py": _print("types.py.j2", _types(matrix)),
        "VARIANTS.md": _print("VARIANTS.md.j2", _listing(matrix, variants)),
        "provenance.json": _text({"matrix_sha256": matrix.sha256, "templates_sha256": digest(TEMPLATES, "*.j2")}),
    }
    for payload, members in by_payload(matrix, variants).items():
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
    units: dict[str, list[Variant]] = defaultdict(list)
    for variant in variants:
        if variant.baked:
            units[variant.unit].append(variant)
    files = {
        f"{payload}/{unit}{SOURCE_SUFFIX[arch.device]}": _print(
            "unit.j2",
            {
                "header": _header(members[0], DEFINITIONS[arch.device]),
                "types": [_type(matrix, variant) for variant in members],
            },
        )
        for unit, members in units.items()
    }
    files[f"{payload}/registry.cpp"] = _print(
        "registry.cpp.j2",
        {
            "headers": sorted({_header(variant, ".h") for variant in variants}),
            "templates": [_type(matrix, variant) for variant in variants if variant.baked],
            "operations": [
                {"name": variant.name, "type": _type(matrix, variant), "op": f"MLA_OP_{variant.op.upper()}"}
                for variant in variants
            ],
        },
    )
    files[f"{payload}/sources.cmake"] = _print(
        "sources.cmake.j2",
        {
            "machine": arch.name.removeprefix("sm"),
            "folder": f"mla_kernels_{payload}" if arch.device == CUDA else f"mla_kernels/payloads/{payload}",
            "paths": sorted(files),
        },
    )
    files[f"{payload}/registry.json"] = _text(registry(matrix, payload, variants))
    if arch.device == CUDA:
        licences = [LICENCES.parent / "LICENSE", *sorted(LICENCES.iterdir())]
        files |= {f"{payload}/licenses/{path.name}": path.read_text(encoding="utf-8") for path in licences}
        context = {"payload": payload, "arch": arch, "version": matrix.version}
        files[f"{payload}/pyproject.toml"] = _print("cuda/pyproject.toml.j2", context)
        files[f"{payload}/mla_kernels_{payload}/__init__.py"] = _print("cuda/__init__.py.j2", context)
    return files


def arch_of(matrix: Matrix, payload: str) -> Arch:
    """The arch that a payload is built for."""
    return next(arch for arch in matrix.archs.values() if arch.payload == payload)


def _arch(arch: Arch) -> dict[str, Any]:
    return {"name": arch.name, "payload": arch.payload, "device": arch.device, "capabilities": list(arch.capabilities)}


def registry(matrix: Matrix, payload: str, variants: Sequence[Variant]) -> dict[str, Any]:
    """The registry that travels beside a payload's library; the schema that ``mla_kernels.payloads.registry`` reads."""
    return {
        "payload": payload,
        "abi_hash": abi.abi_hash(),
        "arch": _arch(arch_of(matrix, payload)),
        "archs": [_arch(arch) for arch in matrix.archs.values()],
        "traits": {op.name: list(op.traits) for op in abi.OPS},
        "accepted": {op: list(names) for op, names in matrix.accepted.items()},
        "enumerators": {name: list(values) for name, values in matrix.enums.items()},
        "domains": {name: _json(domain) for name, domain in matrix.domains.items()},
        "excludes": [
            {
                "match": {name: list(values) for name, values in exclude.match.items()},
                "reason": exclude.reason,
            }
            for exclude in matrix.excludes
        ],
        "variants": [
            {
                "name": variant.name,
                "op": variant.op,
                "arch": variant.arch,
                "priority": variant.priority,
                "tensor_cores": variant.op in matrix.archs[variant.arch].tensor_cores,
                "baked": dict(variant.baked),
                "accepts": {name: _json(values) for name, values in variant.accepts},
            }
            for variant in variants
        ],
    }


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _json(values: Values) -> list[str | int] | dict[str, int]:
    if not isinstance(values, Range):
        return list(values)
    limits = {"min": values.min, "max": values.max, "multiple_of": values.multiple_of}
    return {name: limit for name, limit in limits.items() if limit is not None and (name, limit) != ("multiple_of", 1)}


def _header(variant: Variant, suffix: str) -> str:
    return f"{variant.folder}/{variant.op}/{variant.op}{suffix if variant.baked else '.h'}"


def _type(matrix: Matrix, variant: Variant) -> str:
    """``mla::cpu::Decode<DType::bf16, ..., Schedule::split>``: the op's class with the baked traits in their order."""
    name = "".join(word.capitalize() for word in variant.op.split("_"))
    enums = {trait: matrix.traits[trait].enum for trait, _ in variant.baked}
    arguments = ", ".join(
        f"mla::{enums[trait]}::{value}" if enums[trait] else str(value) for trait, value in variant.baked
    )
    return f"mla::{variant.folder}::{name}" + (f"<{arguments}>" if arguments else "")


def _listing(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, Any]:
    return {
        "total": len(variants),
        "payloads": [
            {
                "name": payload,
                "variants": [
                    {"name": variant.name, "accepts": accepts_text(variant), "priority": variant.priority}
                    for variant in members
                ],
            }
            for payload, members in by_payload(matrix, variants).items()
        ],
        "excludes": [{"match": match_text(exclude.match), "reason": exclude.reason} for exclude in matrix.excludes],
    }


def accepts_text(variant: Variant) -> str:
    """``page_size 1 and up; kv_layout contiguous, paged``."""
    texts = (
        f"{name} {values if isinstance(values, Range) else ', '.join(map(str, values))}"
        for name, values in variant.accepts
    )
    return "; ".join(texts)


def match_text(match: Mapping[str, Sequence[object]]) -> str:
    """``op = decode, kv_dtype = fp16 or bf16``."""
    return ", ".join(f"{name} = {' or '.join(map(str, values))}" for name, values in match.items())


def _types(matrix: Matrix) -> dict[str, Any]:
    """Names for type checkers, and the lists that the package checks a config against."""
    fields = ("op", "arch", *matrix.traits, *(name for name in matrix.domains if name not in matrix.traits))
    named = {name: values for name, values in matrix.domains.items() if not isinstance(values, Range)}
    return {
        "abi_hash": abi.abi_hash(),
        "constants": {
            "STATUSES": abi.STATUS,
            "FIELDS": dict.fromkeys(fields),
            "DTYPES": matrix.enums["DType"],
            "KV_LAYOUTS": matrix.domains["kv_layout"],
        },
        "aliases": {_alias(name): values for name, values in named.items()},
    }


def _alias(field: str) -> str:
    """``QDType`` for ``q_dtype``: what the package calls the names that a field may have."""
    return "OpName" if field == "op" else "".join(map(str.capitalize, field.split("_"))).replace("Dtype", "DType")


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
