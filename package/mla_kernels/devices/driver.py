"""What the CUDA driver says of this machine, asked through ctypes and without creating a context."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from mla_kernels.payloads.registry import Capability

if TYPE_CHECKING:
    import ctypes

LIBRARY = "libcuda.so.1"
LEAST = 13_000
"""The CUDA version that a driver must serve, as it numbers them: payloads are built with CUDA 13."""

State = Literal["ready", "missing", "failed", "no device", "outdated"]

_FUNCTIONS = (
    "cuCtxGetDevice",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuInit",
)
_NOT_INITIALIZED, _NO_DEVICE = 3, 100
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_PEER_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED


@dataclass(frozen=True, slots=True)
class Gpu:
    """One visible CUDA device, by the handle that the driver's functions take."""

    handle: int
    name: str
    capability: Capability


@dataclass(frozen=True, slots=True)
class Driver:
    """The outcome of asking the driver.

    Attributes
    ----------
    state : str
        ``ready``; ``missing``, without a driver; ``failed``, where a call failed; ``no device``; or ``outdated``, where
        the devices are known but the driver is too old for any payload.
    reason : str
        Why it is not ready; empty where it is.
    version : str or None
        The CUDA version that the driver serves, such as ``13.0``.
    gpus : tuple[Gpu, ...]
        In the driver's order.
    """

    state: State
    reason: str
    version: str | None = None
    gpus: tuple[Gpu, ...] = ()


@cache
def driver() -> Driver:
    """Initialise the driver and ask it, once a process; a process that is forked later cannot use CUDA."""
    version = None
    try:
        number = _number("cuDriverGetVersion")
        version = _dotted(number)
        _call("cuInit", 0)
        gpus = tuple(_gpu(_number("cuDeviceGet", ordinal)) for ordinal in range(_number("cuDeviceGetCount")))
    except OSError as error:
        reason = f"the CUDA driver cannot be loaded ({error}): it is not installed, or no NVIDIA GPU is present"
        return Driver("missing", reason)
    except _CallError as error:
        return Driver("no device" if error.status == _NO_DEVICE else "failed", _why(error), version)
    if not gpus:
        return Driver("no device", _no_device(), version)
    if number < LEAST:
        least = f"CUDA {_dotted(LEAST)}, so driver 580 or later"
        return Driver("outdated", f"the CUDA driver serves CUDA {version}; payloads need {least}", version, gpus)
    return Driver("ready", "", version, gpus)


def current_gpu() -> int:
    """The place of the calling thread's current device among the driver's; 0 without a current context."""
    try:
        handle = _number("cuCtxGetDevice")
    except _CallError:
        return 0
    return next((place for place, gpu in enumerate(driver().gpus) if gpu.handle == handle), 0)


def has_peer_atomics(place: int, other: int) -> bool:
    """Say whether one of the driver's devices has atomic operations in the memory of another, as NVLink gives them."""
    gpus = driver().gpus
    return bool(_number("cuDeviceGetP2PAttribute", _PEER_ATOMICS, gpus[place].handle, gpus[other].handle))


def forget() -> None:
    """Ask again when next needed."""
    _library.cache_clear()
    driver.cache_clear()


class _CallError(Exception):
    """A function of the driver returned another status than 0."""

    def __init__(self, function: str, status: int) -> None:
        self.function = function
        self.status = status


@cache
def _library() -> ctypes.CDLL:
    import ctypes

    library = ctypes.CDLL(LIBRARY)
    lacks = [function for function in _FUNCTIONS if not hasattr(library, function)]
    if lacks:
        raise OSError(f"{LIBRARY} lacks {', '.join(lacks)}")
    return library


def _call(function: str, *arguments: object) -> None:
    status = getattr(_library(), function)(*arguments)
    if status:
        raise _CallError(function, status)


def _number(function: str, *arguments: object) -> int:
    """Call a function that writes an integer through its first argument."""
    import ctypes

    result = ctypes.c_int()
    _call(function, ctypes.byref(result), *arguments)
    return result.value


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _gpu(handle: int) -> Gpu:
    import ctypes

    name = ctypes.create_string_buffer(256)
    _call("cuDeviceGetName", name, len(name), handle)
    capability = (_number("cuDeviceGetAttribute", _MAJOR, handle), _number("cuDeviceGetAttribute", _MINOR, handle))
    return Gpu(handle, name.value.decode(errors="replace"), capability)


def _why(error: _CallError) -> str:
    if error.status == _NO_DEVICE:
        return _no_device()
    reason = f"the CUDA driver's {error.function} failed with {_error_name(error.status)} ({error.status})"
    if error.function == "cuInit" and error.status == _NOT_INITIALIZED:
        reason += ": CUDA was initialised before this process was forked; start such processes by spawn"
    return reason


def _no_device() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    limit = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible!r}"
    return f"the CUDA driver finds no device{limit}"


def _error_name(status: int) -> str:
    import ctypes

    name = ctypes.c_char_p()
    _library().cuGetErrorName(status, ctypes.byref(name))
    return name.value.decode() if name.value else "an unknown error"
