"""The registry that travels beside a payload's library; the schema that ``mla_kernels.payloads.registry`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen import abi
from codegen.model import Allow, Arch, Matrix, Range, Values, Variant


def registry(matrix: Matrix, arch: Arch, variants: Sequence[Variant]) -> dict[str, Any]:
    """The document: the variants of one arch, the rules of the matrix for it, and what other archs there are."""
    return {
        "payload": arch.payload,
        "abi_hash": abi.abi_hash(),
        "arch": _arch(arch),
        "archs": [_arch(each) for each in matrix.archs.values()],
        "traits": {op.name: list(op.traits) for op in abi.OPS},
        "accepted": {op: list(names) for op, names in matrix.accepted.items()},
        "enumerators": {name: list(values) for name, values in matrix.enums.items()},
        "domains": {name: _json(domain) for name, domain in matrix.domains.items()},
        "allow": [_allow(matrix, allow) for allow in matrix.allows if allow.arch == arch.name],
        "variants": [
            {
                "name": variant.name,
                "op": variant.op,
                "arch": variant.arch,
                "priority": variant.priority,
                **({"accuracy": variant.accuracy} if variant.accuracy else {}),
                "tensor_cores": variant.op in arch.tensor_cores,
                "baked": dict(variant.baked),
                "accepts": {name: _json(values) for name, values in variant.accepts},
            }
            for variant in variants
        ],
    }


def _arch(arch: Arch) -> dict[str, Any]:
    return {"name": arch.name, "payload": arch.payload, "device": arch.device, "capabilities": list(arch.capabilities)}


def _allow(matrix: Matrix, allow: Allow) -> dict[str, Any]:
    """A table of allowed points; a field of which all values are allowed is left out."""
    rows = [
        {name: _json(values) for name, values in box.values.items() if values != matrix.domains[name]}
        for box in allow.boxes
    ]
    return {"op": allow.op, "rows": rows, "reasons": dict(allow.reasons)}


def _json(values: Values) -> list[str | int] | dict[str, int]:
    return values.stated() if isinstance(values, Range) else list(values)
