"""Memory of a GPU that ends at addresses where nothing is mapped, by the driver's interface for virtual memory."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import torch

PINNED, ON_DEVICE, READ_AND_WRITE = 1, 1, 3


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


@cache
def driver() -> ctypes.CDLL:
    """The driver, with a context that torch has made."""
    torch.zeros(1, device="cuda")
    return ctypes.CDLL("libcuda.so.1")


def require(code: int, function: str) -> None:
    """Raise where the driver refuses."""
    if code:
        raise OSError(f"{function}: CUDA error {code}")


@cache
def granularity() -> int:
    """The bytes that mappings are multiples of."""
    found = ctypes.c_size_t()
    require(driver().cuMemGetAllocationGranularity(ctypes.byref(found), ctypes.byref(properties()), 0), "granularity")
    return found.value


def properties() -> Properties:
    """Memory of the first device."""
    return Properties(PINNED, 0, Location(ON_DEVICE, 0), None, (ctypes.c_ubyte * 8)())


class Bytes:
    """Bytes at an address, as torch takes them."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


class DeviceArena:
    """Mapped memory between two ranges of addresses that stay unmapped."""

    def __init__(self, size: int) -> None:
        grain, cuda = granularity(), driver()
        self.size = -(-size // grain) * grain
        base, handle = ctypes.c_uint64(), ctypes.c_uint64()
        room = ctypes.c_size_t(self.size + 2 * grain)
        none, length = ctypes.c_uint64(0), ctypes.c_size_t(self.size)
        require(cuda.cuMemAddressReserve(ctypes.byref(base), room, ctypes.c_size_t(0), none, none), "reserve")
        require(cuda.cuMemCreate(ctypes.byref(handle), length, ctypes.byref(properties()), none), "create")
        start = ctypes.c_uint64(base.value + grain)
        require(cuda.cuMemMap(start, length, ctypes.c_size_t(0), handle, none), "map")
        access = Access(Location(ON_DEVICE, 0), READ_AND_WRITE)
        require(cuda.cuMemSetAccess(start, length, ctypes.byref(access), ctypes.c_size_t(1)), "access")
        self.torch: Any = torch.as_tensor(Bytes(start.value, self.size), device="cuda")

    def write(self, begin: int, content: np.ndarray) -> None:
        """Fill bytes."""
        self.torch[begin : begin + len(content)].copy_(torch.from_numpy(content))

    def read(self, begin: int, size: int) -> np.ndarray:
        """A copy of bytes."""
        found: np.ndarray = self.torch[begin : begin + size].cpu().numpy()
        return found


class PlainArena:
    """An allocation of its own for each tensor, exactly as large, which compute-sanitizer watches to the byte."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.torch: Any = Shifted(torch.empty(0, dtype=torch.uint8, device="cuda"), 0)

    def write(self, begin: int, content: np.ndarray) -> None:
        """Allocate bytes and fill them."""
        self.torch = Shifted(torch.from_numpy(content.copy()).cuda(), begin)

    def read(self, begin: int, size: int) -> np.ndarray:
        """A copy of bytes."""
        found: np.ndarray = self.torch[begin : begin + size].cpu().numpy()
        return found


class Shifted:
    """Bytes of which the first has another number than 0."""

    def __init__(self, whole: torch.Tensor, first: int) -> None:
        self._whole, self._first = whole, first

    def __getitem__(self, part: slice) -> torch.Tensor:
        return self._whole[part.start - self._first : part.stop - self._first]


def settle() -> None:
    """Wait for every launch, and raise what went wrong in one."""
    torch.cuda.synchronize()
