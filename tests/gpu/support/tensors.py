"""Tensors on the GPU in memory that shows who touches it."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support import memory
from tests.support.problems import garbage_workspace

PAGE_SIZES = (1, 2, 16, 48, 61, 64, 128, 576)
PADS = (16, 3)
"""Elements around a tensor: the first keeps whole vectors aligned, no wide access fits the second."""


def guarded(shape: tuple[int, ...], dtype: str, pad: int = 16, device: str = "cuda") -> memory.Guarded:
    """A poisoned tensor of a dtype of the matrix, between guard zones."""
    return memory.guarded(shape, memory.DTYPES[dtype], device, pad=pad)


def padded(tensor: Tensor, pad: int) -> Tensor:
    """The same values on the GPU in a slice of a larger tensor of NaN."""
    copy = memory.guarded(tensor.shape, tensor.dtype, "cuda", pad=pad).view
    return copy.copy_(tensor)


def at_start_of_larger(tensor: Tensor, *added: int) -> Tensor:
    """The same values on the GPU at the beginning of a tensor of NaN that has ``added`` more in each dimension."""
    extents = [extent + more for extent, more in zip(tensor.shape, added, strict=True)]
    large = torch.empty(extents, dtype=tensor.dtype, device="cuda")
    set_all_bits(large)
    return large[tuple(map(slice, tensor.shape))].copy_(tensor)


def set_all_bits(*tensors: Tensor) -> None:
    """Fill tensors with bytes of 0xFF, which is NaN in every floating-point type."""
    for tensor in tensors:
        tensor.view(torch.uint8).fill_(0xFF)


def poisoned_workspace() -> Tensor:
    """Room for every small problem, whose bits are all set anew."""
    workspace = garbage_workspace("cuda")
    set_all_bits(workspace)
    return workspace


def current_stream() -> int:
    """The handle of the current stream, for arrays that do not tell it."""
    return int(torch.cuda.current_stream().cuda_stream)
