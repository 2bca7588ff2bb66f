"""KV caches as FlashMLA's callers pass them, and the rows that they hold."""

from __future__ import annotations

import torch

from mla_kernels.compat._arguments import shape_of
from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError
from mla_kernels.formats import FORMATS, HEAD_DIM, LATENT, CacheFormat, format_named
from mla_kernels.scalars import quoted

_BYTES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
WIDTHS = (HEAD_DIM, LATENT)
"""FlashMLA's ``d_qk``, of which 512 is all that DeepSeek V4 has, or what is left without a rope part."""

KV_FORMATS = {
    "V32": format_named("fp8_ds_mla"),
    "V32_NO_ROPE": format_named("fp8_ds_mla", LATENT),
    "V4": format_named("fp8_ds_v4", LATENT),
    "V41": format_named("fp8_ds_v41", LATENT),
    "V41_FP4": format_named("fp4_ds_v41", LATENT),
}
"""What sgl-flash-mla 1.0.0 calls the formats of bytes."""


def query_of(q: object) -> tuple[int, int, int, int]:
    """The shape of queries ``[batch, s_q, num_heads_q, d_qk]``.

    Raises
    ------
    DTypeError, ShapeError
        It is no such tensor.
    """
    batch, s_q, h_q, d_qk = shape_of("q", q, "batch", "s_q", "num_heads_q", "d_qk")
    if d_qk not in WIDTHS:
        accepts = f"[batch, s_q, num_heads_q, {' or '.join(map(str, WIDTHS))}]"
        raise ShapeError("q", f"shape {[batch, s_q, h_q, d_qk]}", accepts)
    return batch, s_q, h_q, d_qk


def rows_of(argument: str, cache: object, is_fp8_kvcache: bool, d_qk: int) -> torch.Tensor:
    """A cache ``[num_pages, page_size, num_heads_k, row]`` for queries of ``d_qk`` columns, as bytes where it is fp8.

    Raises
    ------
    DTypeError, ShapeError
        It is no such tensor, or no format of these queries has such rows.
    """
    if not is_fp8_kvcache:
        shape_of(argument, cache, "num_pages", "page_size", "num_heads_k", d_qk)
        return _tensor(argument, cache)
    tensor = bytes_of(argument, cache)
    *_, row = shape_of(argument, tensor, "num_pages", "page_size", "num_heads_k", "row")
    rows = byte_rows(d_qk)
    if row not in rows:
        accepts = ", ".join(f"{width} ({name})" for width, name in rows.items())
        raise ShapeError(argument, f"rows of {row} bytes", f"rows of {accepts} bytes, because q has {d_qk} columns")
    return tensor.view(torch.uint8)


def byte_rows(d_qk: int) -> dict[int, str]:
    """The bytes of a token and the format that they mean, for queries of ``d_qk`` columns.

    FlashMLA takes 528 bytes for its V3.2 without rope; of two formats it is the first here.
    """
    found: dict[int, str] = {}
    for form in FORMATS:
        if form.is_bytes and form.d_qk == d_qk:
            found.setdefault(form.token_bytes, form.name)
    return found


def kv_dtype_of(cache: torch.Tensor, d_qk: int, kv_format: object, use_legacy: bool | None) -> str:
    """The format of a cache of bytes, by its rows, or as sgl-flash-mla's callers name it.

    Of 528 bytes, FlashMLA 9241ae3 and the legacy kernels read V3.2 without rope, and those since 2026-09-30 V4.1.

    Raises
    ------
    ShapeError, UnsupportedError
    """
    row = cache.shape[-1]
    if kv_format is None:
        newest = next(form.name for form in reversed(FORMATS) if form.is_bytes and _shown(form) == (row, d_qk))
        return newest if use_legacy is False else byte_rows(d_qk)[row]
    form = KV_FORMATS.get(kv_format) if isinstance(kv_format, str) else None
    if form is None:
        raise UnsupportedError("kv_format", quoted(kv_format), f"None, {', '.join(KV_FORMATS)}")
    if _shown(form) != (row, d_qk):
        accepts = (
            f"rows of {form.token_bytes} bytes and queries of {form.d_qk} columns, because kv_format is {kv_format}"
        )
        raise ShapeError("k_cache", f"rows of {row} bytes and queries of {d_qk} columns", accepts)
    return form.name


def _shown(form: CacheFormat) -> tuple[int, int]:
    return form.token_bytes, form.d_qk


def has_bytes(cache: object) -> bool:
    """Whether the elements of a cache are bytes."""
    return isinstance(cache, torch.Tensor) and cache.dtype in _BYTES


def bytes_of(argument: str, cache: object) -> torch.Tensor:
    """A cache whose elements are bytes.

    Raises
    ------
    DTypeError
    """
    tensor = _tensor(argument, cache)
    if tensor.dtype not in _BYTES:
        accepts = "uint8, int8 or float8_e4m3fn, because the cache is fp8"
        raise DTypeError(argument, str(tensor.dtype).removeprefix("torch."), accepts)
    return tensor


def _tensor(argument: str, cache: object) -> torch.Tensor:
    if not isinstance(cache, torch.Tensor):
        raise DTypeError(argument, type(cache).__name__, "a torch tensor")
    return cache
