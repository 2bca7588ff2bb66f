"""Memory that shows wrong accesses: unused bytes are NaN, and written tensors lie inside guard zones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mla_kernels.formats import CacheFormat, format_named, page_bytes
from torch import Tensor

from .compare import assert_same_bytes

UNUSED_PAGE = 2147480000
"""Entries of a block table beyond a request's length hold this."""

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "fp8_ds_mla": torch.uint8,
}


def width_of(kv_dtype: str | CacheFormat) -> int:
    """Return the elements of a token's row in a cache's tensor; a name is that of the format of the usual widths."""
    form = format_named(kv_dtype) if isinstance(kv_dtype, str) else kv_dtype
    return form.token_bytes if form.is_bytes else form.d_qk


def dtype_of(form: CacheFormat) -> torch.dtype:
    """Return the element type of a cache's tensor."""
    return torch.uint8 if form.is_bytes else DTYPES[form.name]


def pages_of(form: CacheFormat, num_pages: int, page_size: int, device: str = "cpu") -> Tensor:
    """Make an uninitialised cache, its pages padded as the format asks."""
    width = width_of(form)
    pages = torch.empty((num_pages, page_bytes(form, page_size)), dtype=torch.uint8, device=device)
    rows = pages.view(dtype_of(form))
    return rows.as_strided((num_pages, page_size, width), (rows.shape[1], width, 1))


def guarded_pages(form: CacheFormat, num_pages: int, page_size: int, device: str = "cpu") -> Guarded:
    """Make a poisoned cache of bytes whose pages are padded as the format asks, with poison around and between."""
    padded = page_bytes(form, page_size) + form.page_multiple
    buffer = torch.empty((num_pages + 2, padded), dtype=torch.uint8, device=device)
    _poison(buffer)
    shape, stride = (num_pages, page_size, form.token_bytes), (padded, form.token_bytes, 1)
    return Guarded(buffer.as_strided(shape, stride, padded), buffer)


def guarded_pool(form: CacheFormat, num_pages: int, page_size: int, device: str = "cpu", *, pad: int = 16) -> Guarded:
    """Make a poisoned cache of a format in a poisoned border; pages of a format that pads them are always apart."""
    if form.page_multiple > 1:
        return guarded_pages(form, num_pages, page_size, device)
    return guarded((num_pages, page_size, width_of(form)), dtype_of(form), device, pad=pad)


@dataclass(frozen=True)
class Guarded:
    """A view in the middle of a larger buffer."""

    view: Tensor
    buffer: Tensor

    def assert_guards(self, name: str, reproduce: str = "") -> None:
        """Raise ``AssertionError`` where anything outside the view has changed since :func:`guarded` made it."""
        seen = self.buffer.clone()
        like_view = seen.as_strided(self.view.shape, self.view.stride(), self.view.storage_offset())
        _poison(like_view)
        want = self.buffer.clone()
        _poison(want)
        assert_same_bytes(f"guard zone of {name}", seen, want, reproduce)


def guarded(
    shape: Sequence[int], dtype: torch.dtype, device: str = "cpu", *, pad: int = 16, finite: bool = False
) -> Guarded:
    """Make a poisoned tensor with a poisoned border of ``pad`` elements in the last dimension and one in the others."""
    border = [1] * (len(shape) - 1) + [pad]
    buffer = torch.empty([n + 2 * p for n, p in zip(shape, border, strict=True)], dtype=dtype, device=device)
    _poison(buffer, finite)
    view = buffer
    for dim, (n, p) in enumerate(zip(shape, border, strict=True)):
        view = view.narrow(dim, p, n)
    return Guarded(view, buffer)


def poisoned(
    shape: Sequence[int], dtype: torch.dtype, device: str = "cpu", *, strided: bool = False, finite: bool = False
) -> Tensor:
    """Make a tensor of NaN, or of a large number if ``finite``; ``strided`` makes it a slice of a larger one."""
    if strided:
        return guarded(shape, dtype, device, finite=finite).view
    tensor = torch.empty(list(shape), dtype=dtype, device=device)
    _poison(tensor, finite)
    return tensor


def garbage(num_bytes: int, device: str = "cpu") -> Tensor:
    """Make a workspace full of NaN."""
    return torch.full((num_bytes,), 0xFF, dtype=torch.uint8, device=device)


def strided_copy(tensor: Tensor) -> Tensor:
    """Copy values into a slice of a larger tensor of NaN."""
    copy = guarded(tensor.shape, tensor.dtype, str(tensor.device)).view
    copy.copy_(tensor)
    return copy


def _poison(tensor: Tensor, finite: bool = False) -> None:
    if finite:
        tensor.view(torch.uint8).fill_(0x7E) if tensor.element_size() == 1 else tensor.fill_(3e4)
        return
    if tensor.element_size() == 1:
        raw = tensor.view(torch.uint8)
        raw.fill_(0xFF)
        if tensor.dtype == torch.float8_e4m3fn:
            raw[..., ::2] = 0x7F  # the NaN of the other sign
    else:
        width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        tensor.view(width).fill_(-1)
