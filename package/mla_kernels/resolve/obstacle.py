"""What keeps this machine from running an arch. A lookup asks it, so it stands apart from the text of ``explain``."""

from __future__ import annotations

from mla_kernels.devices import machine
from mla_kernels.payloads import distributions
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Arch


def obstacle(name: str) -> str | None:
    """Why this machine cannot run an arch: what its driver or its devices lack, or the payload. None where it can.

    None also for the host's arch, and for one that the matrix does not have.
    """
    installed = payloads()
    arch = installed.arch(name)
    if arch is None or arch.device != "cuda":
        return None
    stop, device = machine.obstacle(arch), runner(name)
    if stop is None and installed.registry_of(name) is None:
        rejected = next((each.reason for each in installed.rejected if each.name == arch.payload), None)
        state = f"was rejected: {rejected}" if rejected else f"is not installed: {install(arch)}"
        stop = f"{device} is served by arch {name}, whose payload {state}"
    return f"{stop}; arch='cpu' runs on the host" if stop and device else stop


def runner(name: str) -> machine.Device | None:
    """The first device that runs an arch; None where there is none, or no such arch."""
    arch = payloads().arch(name)
    return machine.runner(arch) if arch else None


def install(arch: Arch) -> str:
    """The commands that build the payload of an arch, and the one that installs it from an index that has it."""
    return distributions.install([arch.payload], f"'mla-kernels[{arch.payload}]'")
