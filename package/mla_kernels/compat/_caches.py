"""KV caches as FlashMLA's callers pass them, and the rows that they hold."""

from __future__ import annotations

import torch

from mla_kernels.compat._arguments import shape_of
from mla_kernels.errors import DTypeError, UnsupportedError
from mla_kernels.formats import HEAD_DIM, format_named

_BYTES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
_FP8 = format_named("fp8_ds_mla")
_MODEL1_ROW = 584
"""Bytes of a token in FlashMLA's newer layout, which no row of the formats has yet."""


def rows_of(argument: str, cache: object, is_fp8_kvcache: bool) -> torch.Tensor:
    """A cache ``[num_pages, page_size, num_heads_k, row]``, as bytes where it is fp8.

    Raises
    ------
    DTypeError, ShapeError, UnsupportedError
        It is no such tensor, or of a layout that no kernel reads yet.
    """
    if not is_fp8_kvcache:
        shape_of(argument, cache, "num_pages", "page_size", "num_heads_k", HEAD_DIM)
        return _tensor(argument, cache)
    tensor = bytes_of(argument, cache)
    if tensor.shape[-1:] == (_MODEL1_ROW,):
        accepts = (
            f"rows of {_FP8.token_bytes} bytes: {_FP8.latent} {_FP8.latent_type}, "
            f"{_FP8.latent // _FP8.scale_group} float32 scales, {_FP8.rope} {_FP8.rope_type}; "
            "the other layout is not read yet"
        )
        raise UnsupportedError(argument, f"rows of {_MODEL1_ROW} bytes", accepts)
    shape_of(argument, tensor, "num_pages", "page_size", "num_heads_k", _FP8.token_bytes)
    return tensor.view(torch.uint8)


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
