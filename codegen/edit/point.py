"""A point as the command line gives it, with what the matrix says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from codegen import abi
from codegen.model import Matrix, Value, Values, Variant, text_of
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
    op, arch = _op(point), _arch(matrix, point)
    fields = {name: value for name, value in point.items() if name not in ("op", "arch")}
    unknown = [name for name in fields if name not in (*matrix.fields(op), *extra)]
    if unknown:
        raise MatrixError([f"unknown field {name!r}; {op} has {', '.join(matrix.fields(op))}" for name in unknown])
    return op, arch, fields


def asked(matrix: Matrix, point: Mapping[str, Value]) -> dict[str, Value]:
    """A part of a point, which may leave out its op and its arch.

    Raises
    ------
    MatrixError
        A name or a value of it is none of the matrix's, or the op that it names has no such field.
    """
    stated = dict(point)
    if "op" in point:
        stated["op"] = _op(point)
    if "arch" in point:
        stated["arch"] = _arch(matrix, point)
    ops = [stated["op"]] if "op" in stated else list(abi.OP)
    known = dict.fromkeys(["op", "arch", *(name for op in ops for name in matrix.fields(str(op)))])
    problems = [f"unknown field {name!r}; accepts {', '.join(known)}" for name in stated if name not in known]
    problems += [
        f"{name}: got {value!r}; accepts {text_of(matrix.domains[name])}"
        for name, value in stated.items()
        if name in known and value not in matrix.domains[name]
    ]
    if problems:
        raise MatrixError(problems)
    return stated


def _op(point: Mapping[str, Value]) -> str:
    return str(_one_of("op", point.get("op"), abi.OP))


def _arch(matrix: Matrix, point: Mapping[str, Value]) -> str:
    """The arch of that name, or the one that the payload of that name is built for: ``sm90a`` for ``sm90``."""
    named = point.get("arch")
    built = next((arch.name for arch in matrix.archs.values() if arch.payload == named), named)
    return str(_one_of("arch", named if named in matrix.archs else built, matrix.archs))


def _one_of(name: str, value: Value | None, accepted: Iterable[str]) -> Value:
    names = list(accepted)
    if value is None:
        raise MatrixError([f"{name} is missing; accepts {', '.join(names)}"])
    if value not in names:
        raise MatrixError([f"{name}: got {value!r}; accepts {', '.join(names)}"])
    return value


def serves(variant: Variant, point: Mapping[str, Value]) -> bool:
    """Whether a variant has every value of a point: op, arch, traits, and what is accepted at run time."""
    traits = {name: (value,) for name, value in variant.baked}
    held: dict[str, Values] = {"op": (variant.op,), "arch": (variant.arch,), **traits, **dict(variant.accepts)}
    return all(name in held and value in held[name] for name, value in point.items())


def matches(variant: Variant, op: str, arch: str, traits: Mapping[str, Value]) -> bool:
    """Whether a variant has the traits named."""
    baked = dict(variant.baked)
    return (variant.op, variant.arch) == (op, arch) and all(baked[name] == value for name, value in traits.items())
