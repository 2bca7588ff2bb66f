"""Template contexts for cache formats: the rows of ``formats.toml`` as C++ initialisers and as Python calls."""

from __future__ import annotations

from typing import Any

from codegen.formats import Format, Formats


def context(formats: Formats) -> dict[str, Any]:
    """Everything that ``formats.h`` and ``_formats.py`` print."""
    return {
        "latent": formats.latent,
        "rope": formats.rope,
        "formats": [_initialiser(row) for row in formats.rows],
        "types": {name: type(value).__name__ for name, value in fields(formats.rows[0]).items()},
        "calls": [{name: _literal(value) for name, value in fields(row).items()} for row in formats.rows],
    }


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
        "scale_place": "none" if scales is None else scales.place,
        "scale_type": "fp32" if scales is None else scales.type,
        "scale_group": 0 if scales is None else scales.group,
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
