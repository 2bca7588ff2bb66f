"""KV caches as FlashMLA's callers pass them, and the rows that they hold."""

from __future__ import annotations

import torch

from mla_kernels.compat._arguments import shape_of
from mla_kernels.errors import DTypeError, UnsupportedError
from mla_kernels.tensors import FP8_DS_MLA_ROW, HEAD_DIM

_BYTES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
_MODEL1_ROW = 584


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
    tensor = _tensor(argument, cache)
    if tensor.dtype not in _BYTES:
        accepts = "uint8, int8 or float8_e4m3fn, because is_fp8_kvcache is True"
        raise DTypeError(argument, str(tensor.dtype).removeprefix("torch."), accepts)
    if tensor.shape[-1:] == (_MODEL1_ROW,):
        accepts = (
            f"rows of {FP8_DS_MLA_ROW} bytes: 512 e4m3, 4 float32 scales, 64 bf16; the other layout is not read yet"
        )
        raise UnsupportedError(argument, f"rows of {_MODEL1_ROW} bytes", accepts)
    shape_of(argument, tensor, "num_pages", "page_size", "num_heads_k", FP8_DS_MLA_ROW)
    return tensor.view(torch.uint8)


def _tensor(argument: str, cache: object) -> torch.Tensor:
    if not isinstance(cache, torch.Tensor):
        raise DTypeError(argument, type(cache).__name__, "a torch tensor")
    return cache
