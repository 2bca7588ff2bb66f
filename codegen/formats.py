"""Cache formats: how a token's latent, scales and rope part lie in a KV cache. Only this module computes an offset."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from codegen.schema import BITS
from codegen.schema.lines import line_of


@dataclass(frozen=True, slots=True)
class Part:
    """Columns of one element type."""

    columns: int
    type: str

    @property
    def bytes(self) -> int:
        """The bytes of a token's columns, rounded up."""
        return -(-self.columns * BITS[self.type] // 8)


@dataclass(frozen=True, slots=True)
class Scales:
    """What the elements of the latent are multiplied by: a number for each ``group`` of columns, or for the cache."""

    type: str
    place: str
    group: int = 0
    padded: int = 0
    """The bytes of a token's scales, where padding follows them."""
    interleave: int = 1
    """How many neighbouring groups have scales as far apart as possible: 4 of 32 groups are 0, 8, 16, 24, 1, ..."""


@dataclass(frozen=True, slots=True)
class Format:
    """One row of ``formats.toml``; offsets and sizes are in bytes.

    ``name`` is the trait ``kv_dtype``. Together with the widths ``d_qk`` and ``d_v`` it identifies a format.
    """

    name: str
    latent: Part
    rope: Part
    scales: Scales | None
    d_v: int
    token_bytes: int
    page_multiple: int
    where: str

    @property
    def d_qk(self) -> int:
        """Columns of a query and of a key."""
        return self.latent.columns + self.rope.columns

    @property
    def key(self) -> tuple[str, int, int]:
        """What no other format shares."""
        return self.name, self.d_qk, self.d_v

    @property
    def shown(self) -> tuple[tuple[str, int], ...]:
        """What tensors show of the format: an element type and a width; codes of 8 bits may be ``uint8`` too."""
        if self.is_bytes:
            return (("uint8", self.token_bytes),)
        named = (self.name, self.d_qk)
        return (named, ("uint8", self.d_qk)) if BITS[self.latent.type] == 8 else (named,)

    @property
    def is_bytes(self) -> bool:
        """Whether the cache is an array of bytes, because it holds scales beside its elements."""
        return self.scale_bytes > 0

    @property
    def scale_bytes(self) -> int:
        """What the scales of a token take in the cache, their padding included."""
        if self.scales is None or self.scales.place == "tensor":
            return 0
        count = -(-self.latent.columns // self.scales.group)
        return self.scales.padded or Part(count, self.scales.type).bytes

    @property
    def scale_offset(self) -> int:
        """The distance from the start of a row to its scales; 0 where they do not lie in the row."""
        return {"row": self.latent.bytes, "row_end": self.latent.bytes + self.rope.bytes}.get(self._place, 0)

    @property
    def rope_offset(self) -> int:
        """The distance from the start of a row to its rope part."""
        return self.latent.bytes + (self.scale_bytes if self._place == "row" else 0)

    @property
    def row_bytes(self) -> int:
        """A row, without scales that lie elsewhere."""
        in_row = self._place in {"row", "row_end"}
        return self.latent.bytes + self.rope.bytes + in_row * self.scale_bytes

    @property
    def _place(self) -> str:
        return "none" if self.scales is None else self.scales.place


@dataclass(frozen=True, slots=True)
class Formats:
    """All rows, and the widths that names of variants leave out."""

    latent: int
    rope: int
    rows: tuple[Format, ...]

    @property
    def defaults(self) -> dict[str, int]:
        """The values of the traits of width that a name leaves out."""
        return {"d_qk": self.latent + self.rope, "d_v": self.latent}

    def is_usual(self, row: Format) -> bool:
        """Whether a format has the widths that names leave out."""
        return (row.d_qk, row.d_v) == tuple(self.defaults.values())

    @property
    def domains(self) -> dict[str, tuple[str | int, ...]]:
        """The values of the traits that tell one format from another."""
        columns = zip(*(row.key for row in self.rows), strict=True)
        return dict(zip(("kv_dtype", "d_qk", "d_v"), (tuple(dict.fromkeys(column)) for column in columns), strict=True))

    @property
    def types(self) -> tuple[str, ...]:
        """The names of formats and of the types of their elements and scales."""
        parts = [part.type for row in self.rows for part in (row.latent, row.rope, row.scales) if part]
        return tuple(dict.fromkeys([*(row.name for row in self.rows), *parts]))


def parse(text: str) -> Formats:
    """``formats.toml``, which has the form of the schema, as the model."""
    tables = tomllib.loads(text)
    places = [f"formats.toml:{line_of(text, ('format', number))}" for number in range(len(tables["format"]))]
    rows = tuple(_format(where, row) for where, row in zip(places, tables["format"], strict=True))
    return Formats(**tables["default_widths"], rows=rows)


def _format(where: str, row: dict[str, Any]) -> Format:
    latent = Part(**row.pop("latent"))
    rope = Part(**row.pop("rope", {"columns": 0, "type": latent.type}))
    scales = row.pop("scales", None)
    if scales is not None:
        scales = Scales(**{"padded" if key == "bytes" else key: value for key, value in scales.items()})
    optional = {"d_v": latent.columns, "page_multiple": 1}
    return Format(latent=latent, rope=rope, scales=scales, where=f"{where}: {row['name']}", **(optional | row))


def problems(formats: Formats) -> list[str]:
    """One line for each thing that is wrong with a row; an empty list for sound formats."""
    found = [f"{row.where}: {problem}" for row in formats.rows for problem in _row(row)]
    found += _twins(formats.rows)
    if not found:
        found += _alike(formats.rows)
    if all((row.latent.columns, row.rope.columns) != (formats.latent, formats.rope) for row in formats.rows):
        found.append(f"formats.toml: no format has the default widths {formats.latent} and {formats.rope}")
    return found


def _row(row: Format) -> Iterator[str]:
    if row.latent.columns < 1:
        yield "latent has at least one column"
    if row.latent.type != row.rope.type and (row.scales is None or row.scales.place == "tensor"):
        yield f"latent of {row.latent.type} and rope of {row.rope.type} without scales beside them"
    if not row.latent.columns <= row.d_v <= row.d_qk:
        yield f"d_v = {row.d_v}; accepts {row.latent.columns} (the latent) to {row.d_qk} (latent and rope)"
    if row.scales is not None and row.scales.group:
        wrong = list(_scales(row, row.scales))
        yield from wrong
        if wrong:
            return
    total = row.row_bytes + (0 if row.scales is None or row.scales.place != "page" else row.scale_bytes)
    if total != row.token_bytes:
        yield f"token_bytes = {row.token_bytes}, but the parts of a token take {total}"


def _scales(row: Format, scales: Scales) -> Iterator[str]:
    if row.latent.columns % scales.group:
        yield f"scales: groups of {scales.group} do not divide a latent of {row.latent.columns} columns"
    elif scales.padded and scales.padded * 8 < row.latent.columns // scales.group * BITS[scales.type]:
        yield f"scales: {scales.padded} bytes do not hold a token's scales"
    elif scales.interleave < 1 or row.latent.columns // scales.group % scales.interleave:
        yield f"scales: interleave = {scales.interleave} does not divide {row.latent.columns // scales.group} groups"


def _twins(rows: Iterable[Format]) -> Iterator[str]:
    seen: dict[tuple[str, int, int], str] = {}
    for row in rows:
        first = seen.setdefault(row.key, row.where)
        if first != row.where:
            yield f"{row.where}: {first} has the same name and widths"


def _alike(rows: Iterable[Format]) -> Iterator[str]:
    """Rows that a tensor cannot tell apart, though Python finds the format of a cache by what its tensor shows.

    Formats of bytes may have rows of as many bytes if they have the same widths: then ``kv_dtype`` names the format.
    """
    seen: dict[tuple[str, int], Format] = {}
    for row in rows:
        for element, width in row.shown:
            first = seen.setdefault((element, width), row)
            named = row.is_bytes and first.is_bytes and row.key[1:] == first.key[1:]
            if first is not row and not named:
                yield f"{row.where}: a tensor of {element} and {width} columns is also one of {first.where}"
