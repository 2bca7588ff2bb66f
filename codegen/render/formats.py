"""Template contexts for cache formats: the rows of ``formats.toml`` as C++ initialisers and as Python calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from codegen.formats import Format, Formats, Part, Scales


def context(formats: Formats) -> dict[str, Any]:
    """Everything that ``formats.h`` and ``_formats.py`` print."""
    tables = {
        "kCacheFormats": [row for row in formats.rows if formats.is_usual(row)],
        "kOtherCacheFormats": [row for row in formats.rows if not formats.is_usual(row)],
    }
    return {
        "latent": formats.latent,
        "rope": formats.rope,
        "places": [f"{name}[{number}]" for name, rows in tables.items() for number in range(len(rows))],
        "tables": {name: [_initialiser(row) for row in rows] for name, rows in tables.items()},
        "types": {name: type(value).__name__ for name, value in fields(formats.rows[0]).items()},
        "calls": [{name: _literal(value) for name, value in fields(row).items()} for row in formats.rows],
    }


def page(formats: Formats) -> dict[str, Any]:
    """What ``FORMATS.md`` prints: a table of all formats, and the bytes of those that are arrays of bytes."""
    return {
        "rows": [
            {
                "name": row.name,
                "widths": f"{row.d_qk}/{row.d_v}",
                "latent": f"{row.latent.columns} {row.latent.type}",
                "rope": f"{row.rope.columns} {row.rope.type}" if row.rope.columns else "-",
                "scales": _scales_text(row.scales),
                "bytes": row.token_bytes,
            }
            for row in formats.rows
        ],
        "layouts": [
            {
                "title": f"{row.name}, {row.d_qk} columns: {row.token_bytes} bytes per token",
                "parts": list(_parts(row)),
                "multiple": row.page_multiple,
                "by_page": row.scales is not None and row.scales.place == "page",
            }
            for row in formats.rows
            if row.is_bytes
        ],
    }


def _scales_text(scales: Scales | None) -> str:
    if scales is None:
        return "-"
    if scales.place == "tensor":
        return f"one {scales.type} for the cache, an argument"
    return f"{scales.type} for each {scales.group} columns"


def _parts(row: Format) -> Iterator[dict[str, str]]:
    """The parts of a token in their order: where each begins, how many bytes it has, and what it holds."""
    scales = row.scales
    assert scales is not None
    in_page, at_end = scales.place == "page", scales.place == "row_end"
    used = Part(-(-row.latent.columns // scales.group), scales.type).bytes
    padding = f", then {row.scale_bytes - used} unused" if row.scale_bytes > used else ""
    groups = row.latent.columns // scales.group
    order = f", that of group g at {groups // scales.interleave} (g % {scales.interleave}) + g / {scales.interleave}"
    held = f"{groups} {scales.type} scales, each of {scales.group} columns{order * (scales.interleave > 1)}{padding}"
    yield _part(f"{row.row_bytes} t" if in_page else "0", row.latent.bytes, f"{row.latent.columns} {row.latent.type}")
    in_row = _part(str(row.scale_offset), row.scale_bytes, held)
    if not (in_page or at_end):
        yield in_row
    if row.rope.columns:
        start = f"{row.row_bytes} t + {row.rope_offset}" if in_page else str(row.rope_offset)
        yield _part(start, row.rope.bytes, f"{row.rope.columns} {row.rope.type}, the rope part")
    if at_end:
        yield in_row
    if in_page:
        yield _part(f"{row.row_bytes} P + {row.scale_bytes} t", row.scale_bytes, held)


def _part(start: str, length: int, holds: str) -> dict[str, str]:
    return {"start": start, "bytes": str(length), "holds": holds}


def fields(row: Format) -> dict[str, str | int]:
    """A format in plain values, in the order of the struct and of its Python mirror."""
    scales = row.scales
    return {
        "name": row.name,
        "d_qk": row.d_qk,
        "d_v": row.d_v,
        "latent": row.latent.columns,
        "latent_type": row.latent.type,
        "rope": row.rope.columns,
        "rope_type": row.rope.type,
        "scale_place": "none" if scales is None else scales.place.removesuffix("_end"),
        "scale_type": "fp32" if scales is None else scales.type,
        "scale_group": 0 if scales is None else scales.group,
        "scale_interleave": 1 if scales is None else scales.interleave,
        "scale_bytes": row.scale_bytes,
        "scale_offset": row.scale_offset,
        "rope_offset": row.rope_offset,
        "row_bytes": row.row_bytes,
        "token_bytes": row.token_bytes,
        "page_multiple": row.page_multiple,
        "is_bytes": row.is_bytes,
    }


def _literal(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _initialiser(row: Format) -> dict[str, str]:
    """The fields of the C++ struct and what they are initialised with."""
    enums = {"latent_type": "DType", "rope_type": "DType", "scale_type": "DType", "scale_place": "ScalePlace"}
    values = {"name": f'"{row.name}"', "dtype": f"DType::{row.name}"}
    for field, value in list(fields(row).items())[1:]:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        values[field] = f"{enums[field]}::{text}" if field in enums else text
    return values
