"""What an op's signature is made of: tensors, scalars and options, and the struct fields that they become.

A problem struct is laid out as header, tensors (a pointer followed by its element strides), dimensions, integers
(``int64``), then floats and flags (4 bytes each). Wide fields come first, so that no compiler inserts padding.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from codegen import formats
from codegen.schema import MATRIX

_TEXT = (MATRIX / "formats.toml").read_text(encoding="utf-8")
FORMATS, CACHES = tomllib.loads(_TEXT), formats.parse(_TEXT)
LATENT, ROPE = CACHES.latent, CACHES.rope
HEAD_DIM = LATENT + ROPE
WIDTHS = {"mla": HEAD_DIM, "latent": LATENT, "rope": ROPE, "d_v": LATENT}
"""Rows whose extent the format of the op's cache gives, and what they have by default."""

CType = Literal["pointer", "int64", "int32", "float"]
SIZE: dict[CType, int] = {"pointer": 8, "int64": 8, "int32": 4, "float": 4}
_IN_C: dict[CType, str] = {"pointer": "void*", "int64": "int64_t", "int32": "int32_t", "float": "float"}

Role = Literal["input", "output", "updated"]
Made = Literal["always", "unless_false", "on_request"]


@dataclass(frozen=True)
class Tensor:
    """A tensor argument.

    Attributes
    ----------
    name : str
    dtype : str
        A trait (``q_dtype``) or a fixed type (``int32``).
    dims : tuple[str, ...]
        The outer dimensions, each of which becomes an ``int64`` field the first time it appears.
    strides : tuple[str, ...]
        The letter of the stride along each outer dimension; ``""`` where it must be contiguous.
    row : int, str or None
        The innermost, contiguous extent: a number, a dimension's name, a width of the cache's format (``"mla"`` is a
        packed row of latent and rope, or two tensors), or ``None`` for a tensor whose last outer dimension is
        innermost.
    optional : bool
        Whether the launch takes ``None``.
    role : str
        An ``output`` is returned, and allocated unless given; what is ``updated`` is an input that the op writes to.
    made : str
        When Python allocates an output that is ``None``: ``always``, ``unless_false`` (``False`` leaves it out), or
        ``on_request`` (where ``return_<name>`` is set).
    keyword : bool
        Whether Python takes it by keyword only.
    broadcast : str
        A dimension that Python's callers may leave out; the tensor is then widened along it.
    bare : bool
        Whether Python takes rows of the latent alone, and gives them a rope part of zeros.
    takes, doc : str
        What is documented: the elements that it takes, and what it means.
    """

    name: str
    dtype: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    row: int | str | None = None
    optional: bool = False
    role: Role = "input"
    made: Made = "always"
    keyword: bool = False
    broadcast: str = ""
    bare: bool = False
    takes: str = ""
    doc: str = ""

    @property
    def written(self) -> bool:
        """Whether the op writes to it."""
        return self.role != "input"

    @property
    def may_be_none(self) -> bool:
        """Whether Python's callers may pass ``None``: for an optional tensor, or the rope part that a format lacks."""
        return self.optional or self.row == "rope"

    @property
    def packed(self) -> bool:
        """Whether it holds latent and rope, in one tensor or two."""
        return self.row == "mla"

    @property
    def shape(self) -> tuple[str | int, ...]:
        """Its dimensions with its row, latent and rope in one; a width is the default one."""
        row = WIDTHS.get(self.row, self.row) if isinstance(self.row, str) else self.row
        return self.dims if row is None else (*self.dims, row)

    @property
    def width(self) -> str:
        """The width of the cache's format that its row is: ``d_qk``, ``d_v`` and the like; or nothing."""
        if self.row not in WIDTHS:
            return ""
        return "d_qk" if self.packed else str(self.row)

    @property
    def views(self) -> tuple[str, ...]:
        """The pointer fields: two for a tensor that holds latent and rope."""
        return (f"{self._stem}_latent", self.rope) if self.packed else (self.name,)

    @property
    def rope(self) -> str:
        """The name of a packed tensor's rope part, where that is an argument of its own."""
        return f"{self._stem}_rope"

    @property
    def _stem(self) -> str:
        return self.name.removesuffix("_cache")


@dataclass(frozen=True)
class Scalar:
    """A scalar argument.

    Attributes
    ----------
    name : str
    ctype : str
    check : str
        What the launcher refuses.
    default : float or int, optional
        Without one, callers must give it.
    planned : bool
        Whether it belongs to the plan, where the op has one.
    configured : bool
        Whether a kernel's config may fix it; the op selects its kernel by it.
    doc : str
        What is documented.
    """

    name: str
    ctype: CType
    check: Literal["finite", "positive", "flag", "count"]
    default: float | int | None = None
    planned: bool = False
    configured: bool = False
    doc: str = ""

    @property
    def python(self) -> str:
        """Its type in Python."""
        return "float" if self.check == "finite" else "bool" if self.check == "flag" else "int"


@dataclass(frozen=True)
class Option:
    """A name by which a Python op selects its kernel; no argument of the launch."""

    name: str
    doc: str


@dataclass(frozen=True)
class Field:
    """One field of a problem struct."""

    name: str
    ctype: CType

    @property
    def declaration(self) -> str:
        """The field in C, without its semicolon."""
        return f"{_IN_C[self.ctype]} {self.name}"


@dataclass(frozen=True)
class Ragged:
    """How an op takes requests with different numbers of query tokens.

    Attributes
    ----------
    bounds : str
        The tensor that says where the tokens of each request begin, in one batch of all; without it, requests are
        those of the batch.
    most : str
        The scalar that is not 0 then: the most tokens of a request.
    requests, batch : str
        The dimensions that are one without the tensor.
    """

    bounds: str
    most: str
    requests: str
    batch: str


@dataclass(frozen=True)
class Op:
    """An op: the traits that identify its variants, its arguments in launch order, and what Python says of them.

    Attributes
    ----------
    name : str
    traits : tuple[str, ...]
    tensors : tuple[Tensor, ...]
    scalars : tuple[Scalar, ...]
    selects : tuple[str, ...]
        The tensors by whose types and extents Python selects the kernel; outputs are made like the first.
    options : tuple[Option, ...]
    layout : str
        The tensor whose absence means that the cache is contiguous.
    plans : str
        The tensor of lengths from which a plan is made; an op without one is not planned.
    ragged : Ragged, optional
    together : tuple[str, ...]
        A second cache, the indices into it, and their counts: the first two come together, the third only with them.
    summary, doc : str
        What is documented.
    """

    name: str
    traits: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...] = ()
    selects: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    layout: str = ""
    plans: str = ""
    ragged: Ragged | None = None
    together: tuple[str, ...] = ()
    summary: str = ""
    doc: str = ""

    @property
    def pascal(self) -> str:
        """The name of its classes: ``SparseDecode``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that callers must bring."""
        return tuple(tensor for tensor in self.tensors if tensor.role != "output")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that are returned."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "output")

    @property
    def first(self) -> Tensor:
        """The tensor like which outputs are made."""
        return next(tensor for tensor in self.tensors if tensor.name == self.selects[0])

    @property
    def arguments(self) -> tuple[Tensor | Scalar, ...]:
        """What a launch takes, in its order."""
        return (*self.tensors, *self.scalars)

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions in order of first appearance; each is an ``int64`` field."""
        names: dict[str, None] = {}
        for tensor in self.tensors:
            for dim in tensor.dims:
                names.setdefault(dim)
            if isinstance(tensor.row, str) and not tensor.width:
                names.setdefault(tensor.row)
        return tuple(names)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the problem struct, in order."""
        return tuple(self._fields())

    def _fields(self) -> Iterator[Field]:
        yield Field("op", "int32")
        yield Field("device", "int32")
        for tensor in self.tensors:
            for view in tensor.views:
                yield Field(view, "pointer")
                for letter in tensor.strides:
                    if letter:
                        yield Field(f"{view}_stride_{letter}", "int64")
        for dim in self.dims:
            yield Field(dim, "int64")
        narrow = [scalar for scalar in self.scalars if scalar.ctype != "int64"]
        for scalar in (*(scalar for scalar in self.scalars if scalar.ctype == "int64"), *narrow):
            yield Field(scalar.name, scalar.ctype)
        if len(narrow) % 2:
            yield Field("reserved", "int32")

    @property
    def offsets(self) -> dict[str, int]:
        """Byte offset of every field and, as ``sizeof``, of the end.

        Raises
        ------
        ValueError
            A compiler would have to pad.
        """
        at, result = 0, {}
        for field in self.fields:
            if at % SIZE[field.ctype]:
                raise ValueError(f"{self.name}.{field.name} at byte {at} is not aligned to {SIZE[field.ctype]}")
            result[field.name] = at
            at += SIZE[field.ctype]
        result["sizeof"] = at
        return result
