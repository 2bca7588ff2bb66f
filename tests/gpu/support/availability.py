"""The arch under test, or the one reason why nothing can run here."""

from __future__ import annotations

import functools
import os

import mla_kernels as mla
import pytest
import torch
from mla_kernels.devices.machine import arch_of
from mla_kernels.payloads.discovery import payloads


@functools.cache
def absence() -> str | None:
    """Why nothing can run here, or None."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    arch = arch_name()
    if arch is None:
        return f"no payload has kernels for capability {torch.cuda.get_device_capability()}"
    return None if mla.variants(arch=arch) else f"no payload of {arch} is installed"


def arch_name() -> str | None:
    """The arch that ``MLA_KERNELS_ARCH`` names, otherwise that of the current device."""
    return os.environ.get("MLA_KERNELS_ARCH") or arch_of(torch.cuda.get_device_capability(), payloads().archs)


def refuse(reason: str) -> None:
    """Skip, or fail where ``MLA_KERNELS_GPU=required``."""
    if os.environ.get("MLA_KERNELS_GPU") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(f"not run: {reason}")


def require_payload() -> None:
    """Refuse where nothing can run; fixtures of a module run before those of its tests, and call this themselves."""
    reason = absence()
    if reason is not None:
        refuse(reason)


def require_arch(arch: str) -> None:
    """Skip what belongs to another arch than the one under test."""
    if arch != arch_name():
        pytest.skip(f"not run: {arch}: the arch under test is {arch_name()}")


def require_op(arch: str, op: str) -> None:
    """Refuse where the installed payloads have no variant of an op for the arch."""
    if not mla.variants(arch=arch, op=op):
        refuse(f"{arch}: no payload with {op} is installed")


def devices_alike() -> list[int]:
    """The devices that have the capability of the current one."""
    capability = torch.cuda.get_device_capability()
    return [i for i in range(torch.cuda.device_count()) if torch.cuda.get_device_capability(i) == capability]
