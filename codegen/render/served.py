"""What kernels of each op take on any arch, in words, for the docstrings of Python's public functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen import abi
from codegen.formats import Format
from codegen.model import Matrix, Value, Variant


def served(matrix: Matrix, variants: Sequence[Variant]) -> dict[str, dict[str, str]]:
    """Types of elements by trait, such as ``in_dtype``, and of caches: their elements, rows of bytes, and widths."""
    found = {}
    for op in abi.OPS:
        baked = [dict(variant.baked) for variant in variants if variant.op == op.name]
        found[op.name] = {trait: _types(matrix, baked, trait) for trait in op.traits if trait.endswith("_dtype")}
        if "d_qk" in op.traits:
            found[op.name] |= _caches(matrix, baked)
    return found


def _types(matrix: Matrix, baked: Sequence[Mapping[str, Value]], trait: str) -> str:
    values = {each[trait] for each in baked}
    return " ".join(name for name in matrix.enums["DType"] if name in values)


def _caches(matrix: Matrix, baked: Sequence[Mapping[str, Value]]) -> dict[str, str]:
    keys = {(each["kv_dtype"], each["d_qk"], each["d_v"]) for each in baked}
    formats = [row for row in matrix.formats.rows if row.key in keys]
    return {
        "elements": " ".join(dict.fromkeys(row.name for row in formats if not row.is_bytes)),
        "rows": _rows([row for row in formats if row.is_bytes]),
        "widths": _widths([*dict.fromkeys(f"{row.d_qk} and {row.d_v}" for row in formats)]),
    }


def _rows(formats: Sequence[Format]) -> str:
    names: dict[int, list[str]] = {}
    for row in formats:
        names.setdefault(row.token_bytes, []).append(row.name)
    return ", ".join(f"[..., {size}] for {' or '.join(each)}" for size, each in names.items())


def _widths(pairs: Sequence[str]) -> str:
    """Nothing for an op without variants, which only a matrix that is made for tests has."""
    listed = ", or ".join(filter(None, (", ".join(pairs[:-1]), *pairs[-1:])))
    return f"``d_qk`` and ``d_v`` are {listed}." if listed else ""
