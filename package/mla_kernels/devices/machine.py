"""What this machine can run kernels on, and which arch serves each device."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from mla_kernels.devices.driver import current_gpu, driver
from mla_kernels.devices.driver import forget as forget_driver
from mla_kernels.errors import DeviceError
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Arch, Capability
from mla_kernels.tensors import Tensor, device_of

HOST = "cpu"
"""The arch of the host's processor."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes
    ----------
    arch : str or None
        The arch whose variants it is to run; None where the matrix has none for it.
    kind : str
        ``cpu`` or ``cuda``, as DLPack names it.
    ordinal : int
    description : str
    capability : tuple[int, int] or None
        The compute capability of a CUDA device.
    """

    arch: str | None
    kind: str
    ordinal: int
    description: str
    capability: Capability | None = None

    def __str__(self) -> str:
        of = f", compute capability {dotted(self.capability)}" if self.capability else ""
        return f"device {self.ordinal} ({self.description}{of})"


def devices() -> tuple[Device, ...]:
    """Every device: those of CUDA in the driver's order, and last the host's processor.

    Asking initialises the CUDA driver, as does a lookup that names no arch or one of CUDA; a process that is forked
    afterwards cannot use CUDA.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (*gpus(), Device(HOST, "cpu", 0, f"{os.uname().machine}, {cores} cores"))


def gpus(archs: Iterable[Arch] | None = None) -> tuple[Device, ...]:
    """The CUDA devices, each with that of ``archs`` which serves it best; by default those of the payloads in use."""
    archs = payloads().archs if archs is None else tuple(archs)
    return tuple(
        Device(arch_of(gpu.capability, archs), "cuda", ordinal, gpu.name, gpu.capability)
        for ordinal, gpu in enumerate(driver().gpus)
    )


def current_arch() -> str:
    """The arch that a lookup means when it names none: that of the current CUDA device, or else the host's."""
    return _common_arch() or _archs()[current_gpu()] or HOST


def arch_for(argument: str, tensor: Tensor) -> str:
    """The arch of the device that holds a tensor.

    Raises
    ------
    DTypeError, DeviceError
        The argument is no tensor, or no arch serves its device, such as torch's ``meta``.
    """
    kind, ordinal = device_of(argument, tensor)
    if kind == "cpu":
        return HOST
    if kind != "cuda":
        raise DeviceError(argument, f"a tensor on {kind}", "a tensor of the host (cpu) or of a CUDA device (cuda)")
    archs = _archs()
    arch = archs[ordinal] if ordinal < len(archs) else None
    if arch is None:
        raise _unserved(argument, ordinal)
    return arch


def arch_of(capability: Capability, archs: Iterable[Arch]) -> str | None:
    """The arch that serves a compute capability best: exact before family before baseline; None where none does."""
    fits = [(fit, arch.name) for arch in archs if (fit := _fit(arch, capability))]
    return max(fits, key=lambda pair: pair[0])[1] if fits else None


def runner(arch: Arch, archs: Iterable[Arch] | None = None) -> Device | None:
    """The first CUDA device that runs ``arch``; one that none of ``archs`` serves better comes before the rest."""
    able = [gpu for gpu in gpus(archs) if gpu.capability and _fit(arch, gpu.capability)]
    return next((gpu for gpu in able if gpu.arch == arch.name), able[0] if able else None)


def obstacle(arch: Arch, archs: Iterable[Arch] | None = None) -> str | None:
    """Why no device here runs an arch of CUDA, or None where one does."""
    needs = f"arch {arch.name} needs a device of compute capability {_any(arch.capabilities)}"
    if driver().state != "ready":
        return f"{needs}; {driver().reason}"
    if runner(arch, archs):
        return None
    here = (f"{gpu}, served by {f'arch {gpu.arch}' if gpu.arch else 'no arch'}" for gpu in gpus(archs))
    return f"{needs}; here is {'; '.join(here)}"


def dotted(capability: Capability) -> str:
    """A compute capability as it is written: ``10.3``."""
    return f"{capability[0]}.{capability[1]}"


def forget() -> None:
    """Ask the driver again when next needed."""
    forget_driver()
    _archs.cache_clear()
    _common_arch.cache_clear()


os.register_at_fork(after_in_child=forget)


@cache
def _archs() -> tuple[str | None, ...]:
    """The arch of each CUDA device in order."""
    return tuple(gpu.arch for gpu in gpus())


@cache
def _common_arch() -> str | None:
    """The arch that a lookup means whatever the current device is; None where that decides."""
    archs = set(_archs()) or {None}
    return (archs.pop() or HOST) if len(archs) == 1 else None


def _unserved(argument: str, ordinal: int) -> DeviceError:
    found = gpus()
    if ordinal >= len(found):
        return DeviceError(argument, f"cuda:{ordinal}", f"a tensor of the host, because {driver().reason}")
    served = (f"{arch.name} ({_any(arch.capabilities)})" for arch in payloads().archs if arch.capabilities)
    accepts = f"a tensor of the host, or of a device that an arch serves by compute capability: {', '.join(served)}"
    return DeviceError(argument, f"{found[ordinal]}", "; ".join([accepts, *map(str, payloads().rejected)]))


def _any(capabilities: Iterable[Capability]) -> str:
    return " or ".join(map(dotted, capabilities))


def _fit(arch: Arch, capability: Capability) -> tuple[int, int] | None:
    """How closely machine code for ``arch`` fits a device, or None where it does not run there."""
    if arch.name.endswith(("a", "f")):
        return (1 + arch.name.endswith("a"), 0) if capability in arch.capabilities else None
    major, minor = capability
    minors = [least for own, least in arch.capabilities if own == major and least <= minor]
    return (0, max(minors)) if minors else None
