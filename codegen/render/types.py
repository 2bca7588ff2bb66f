"""The template context of ``_types.py``: what type checkers and the checks of a config know of the matrix."""

from __future__ import annotations

from typing import Any

from codegen import abi
from codegen.model import Matrix, Range


def names(matrix: Matrix) -> dict[str, Any]:
    """The lists that the package checks a config against, and a type for each field that has names as values."""
    fields = ("op", "arch", *matrix.traits, *(name for name in matrix.domains if name not in matrix.traits))
    domains = {name: values for name, values in matrix.domains.items() if not isinstance(values, Range)}
    named = {name: values for name, values in domains.items() if all(isinstance(value, str) for value in values)}
    return {
        "abi_hash": abi.abi_hash(),
        "constants": {
            "FIELDS": tuple(dict.fromkeys(fields)),
            "DTYPES": matrix.enums["DType"],
            "KV_LAYOUTS": matrix.domains["kv_layout"],
        },
        "instead": {name: trait.instead for name, trait in matrix.traits.items() if trait.instead},
        "aliases": {_alias(name): values for name, values in named.items()},
    }


def _alias(field: str) -> str:
    """``QDType`` for ``q_dtype``: what the package calls the names that a field may have."""
    return "OpName" if field == "op" else "".join(map(str.capitalize, field.split("_"))).replace("Dtype", "DType")
