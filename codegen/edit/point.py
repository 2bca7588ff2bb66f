"""A point as the command line gives it, with what the matrix says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen import abi
from codegen.model import Matrix, Value, Variant
from codegen.schema import MatrixError


def parse(pairs: Sequence[str]) -> dict[str, Value]:
    """``["op=decode", "page_size=64"]`` as a point; digits become integers."""
    point: dict[str, Value] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise MatrixError([f"{pair!r}: write <field>=<value>"])
        point[name] = int(value) if value.removeprefix("-").isdecimal() else value
    return point


def named(matrix: Matrix, point: Mapping[str, Value], extra: tuple[str, ...] = ()) -> tuple[str, str, dict[str, Value]]:
    """The op and the arch that a point names, and its other fields.

    Raises
    ------
    MatrixError
        It names no op, no arch, or a field that the op has not.
    """
    op, arch = str(point.get("op")), str(point.get("arch"))
    if op not in abi.OP:
        raise MatrixError([f"op: got {op!r}; accepts {', '.join(abi.OP)}"])
    if arch not in matrix.archs:
        raise MatrixError([f"arch: got {arch!r}; accepts {', '.join(matrix.archs)}"])
    fields = {name: value for name, value in point.items() if name not in ("op", "arch")}
    unknown = [name for name in fields if name not in (*matrix.fields(op), *extra)]
    if unknown:
        raise MatrixError([f"unknown field {name!r}; {op} has {', '.join(matrix.fields(op))}" for name in unknown])
    return op, arch, fields


def matches(variant: Variant, op: str, arch: str, traits: Mapping[str, Value]) -> bool:
    """Whether a variant has the traits named."""
    baked = dict(variant.baked)
    return (variant.op, variant.arch) == (op, arch) and all(baked[name] == value for name, value in traits.items())
