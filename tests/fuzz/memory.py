"""Memory that ends at pages nobody may touch: one tensor lies in one arena, and unused bytes are watched."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from tests.fuzz.elements import STORED, poison

PAGE = mmap.PAGESIZE
MARGIN = 256
"""Bytes before a tensor that ends at a guard, or after one that begins at one, that are watched too."""
TORCH = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}


@dataclass
class Array:
    """A tensor of a case: what it holds, where it lies, and what became of it.

    Attributes
    ----------
    dtype : str
        A key of ``elements.STORED``.
    shape, strides : tuple[int, ...]
        Strides count elements.
    values : ndarray, optional
        The stored elements; none for an output, which begins as poison.
    at_start : bool
        Whether it begins after a guard, rather than ending at one.
    align : int
        Of its first byte; 0 takes the element's size.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    values: np.ndarray | None = None
    at_start: bool = False
    align: int = 0
    region: Region | None = field(default=None, repr=False)
    tensor: Any = field(default=None, repr=False)
    first: int = 0

    @property
    def span(self) -> int:
        """Bytes from its first element to the end of its last."""
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * STORED[self.dtype].itemsize

    def view(self, raw: np.ndarray) -> np.ndarray:
        """Its elements in the bytes of its region."""
        kept = STORED[self.dtype]
        strides = [s * kept.itemsize for s in self.strides]
        return np.ndarray(self.shape, kept, raw.data if raw.size else raw, self.first if raw.size else 0, strides)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@dataclass
class Region:
    """The bytes of an arena that a case uses, and what they were before the call."""

    arena: Any
    begin: int
    before: np.ndarray


class HostArena:
    """Pages between two that cannot be touched."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, size + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = np.frombuffer(self._map, np.uint8)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for offset in (0, PAGE + size):
            if protect(ctypes.c_void_p(whole.ctypes.data + offset), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.bytes = whole[PAGE : PAGE + size]
        self.torch = torch.from_numpy(self.bytes)

    def write(self, begin: int, content: np.ndarray) -> None:
        """Fill bytes."""
        self.bytes[begin : begin + len(content)] = content

    def read(self, begin: int, size: int) -> np.ndarray:
        """The bytes, not copied."""
        return self.bytes[begin : begin + size]


class Space:
    """Arenas of one device, lent to the tensors of a case and taken back after it."""

    SIZES: ClassVar = {
        "cpu": ((1 << 17, 26), (1 << 21, 10), (1 << 25, 4)),
        "cuda": ((1 << 21, 30), (1 << 25, 4), (1 << 27, 1)),  # multiples of what a GPU maps; the last for a workspace
    }

    def __init__(self, arena: type = HostArena, device: str = "cpu") -> None:
        self._arenas = {size: [arena(size) for _ in range(count)] for size, count in self.SIZES[device]}
        self.framework, self.device = "torch", device
        self._used: dict[int, int] = {}
        self.regions: list[Region] = []

    def reset(self) -> None:
        """Take every arena back."""
        self._used, self.regions = {}, []

    def put(self, array: Array, extra: int = 0) -> Any:
        """Lay an array into an arena of its own, and make its tensor; ``extra`` bytes more belong to its region."""
        span = array.span + extra
        size, arena = self._free(span + 2 * MARGIN + 64)
        unit = array.align or STORED[array.dtype].itemsize
        start = 0 if array.at_start else (size - span) // unit * unit
        begin = 0 if array.at_start else max(0, start - MARGIN) // 16 * 16
        end = min(size, start + span + (MARGIN if array.at_start else unit))
        before = np.full(end - begin, poison(array.dtype), np.uint8)
        array.region = Region(arena, begin, before)
        array.first = start - begin
        if array.values is not None and array.values.size:
            writable = array.view(before)
            writable[...] = array.values
        arena.write(begin, before)
        self.regions.append(array.region)
        array.tensor = self.tensor(array, start)
        return array.tensor

    def _free(self, least: int) -> tuple[int, Any]:
        """An arena that nobody uses, and its size."""
        for size, arenas in self._arenas.items():
            number = self._used.get(size, 0)
            if size >= least and number < len(arenas):
                self._used[size] = number + 1
                return size, arenas[number]
        raise MemoryError(f"no arena is left for {least} bytes")

    def over(self, array: Array, other: Array, offset: int) -> Any:
        """Make the tensor of an array over the memory of another one, ``offset`` bytes from its first."""
        region = other.region
        assert region is not None
        array.region, array.first = region, other.first + offset
        array.tensor = self.tensor(array, region.begin + array.first)
        return array.tensor

    def tensor(self, array: Array, start: int) -> Any:
        """The tensor at a byte of an array's arena."""
        assert array.region is not None
        arena = array.region.arena
        if self.framework == "numpy" and array.dtype not in ("bf16", "e4m3"):
            kept = STORED[array.dtype]
            strides = [s * kept.itemsize for s in array.strides]
            span = array.span
            return np.ndarray(array.shape, kept, arena.bytes[start : start + span].data if span else None, 0, strides)
        raw = arena.torch[start : start + array.span].view(TORCH[array.dtype])
        return raw.as_strided(array.shape, array.strides)
