"""The formats of KV caches by name and by the rows of a tensor, and the widths that variants have by default."""

from __future__ import annotations

from mla_kernels._formats import FORMATS, LATENT, ROPE, CacheFormat

__all__ = [
    "D_V",
    "FORMATS",
    "HEAD_DIM",
    "LATENT",
    "ONLY_WIDTHS",
    "ROPE",
    "WIDTHS",
    "CacheFormat",
    "format_named",
    "formats_of_rows",
    "page_bytes",
]

HEAD_DIM = LATENT + ROPE
"""Columns of a query and of a key, ``d_qk``; the first ``LATENT`` are the value, ``d_v``."""

WIDTHS = {"d_qk": HEAD_DIM, "d_v": LATENT}
"""The traits of width, with what configs, names and commands that leave them out mean."""

_ALL_WIDTHS: dict[str, list[dict[str, int]]] = {}
for _row in FORMATS:
    _ALL_WIDTHS.setdefault(_row.name, []).append({"d_qk": _row.d_qk, "d_v": _row.d_v})
ONLY_WIDTHS = {name: every[0] for name, every in _ALL_WIDTHS.items() if len(every) == 1}
"""The widths of a format that has no others, which a config of it means where it leaves them out."""

D_V = {row.d_qk: row.d_v for row in FORMATS}
"""The columns of a value by those of a key."""

_NAMED = {(row.name, row.d_qk, row.d_v): row for row in FORMATS}
_ROWS: dict[tuple[str, int], tuple[CacheFormat, ...]] = {}
for _row in FORMATS:
    _shown = ("uint8", _row.token_bytes) if _row.is_bytes else (_row.name, _row.d_qk)
    _ROWS[_shown] = (*_ROWS.get(_shown, ()), _row)


def format_named(kv_dtype: str, d_qk: int = HEAD_DIM, d_v: int = LATENT) -> CacheFormat:
    """The format that the traits of a variant name.

    Raises
    ------
    KeyError
        There is no such format.
    """
    return _NAMED[kv_dtype, d_qk, d_v]


def formats_of_rows(element: str, width: int) -> tuple[CacheFormat, ...]:
    """The formats of a cache by what its tensor shows: none, one, or several that have rows of as many bytes.

    Parameters
    ----------
    element : str
        ``bf16`` and the like, or ``uint8`` for a cache of bytes.
    width : int
        Elements of a row: ``d_qk``, or the bytes of a token.
    """
    return _ROWS.get((element, width), ())


def page_bytes(form: CacheFormat, page_size: int) -> int:
    """The bytes of a page of ``page_size`` tokens, padded as the format asks."""
    return -(-page_size * form.token_bytes // form.page_multiple) * form.page_multiple
