"""What this machine can run kernels on."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One device: the arch whose variants it runs, its kind as DLPack names it, and its ordinal."""

    arch: str
    kind: str
    ordinal: int
    description: str


def devices() -> tuple[Device, ...]:
    """Every device, in order; the host's processor is always the last."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (Device("cpu", "cpu", 0, f"{os.uname().machine}, {cores} cores"),)


def current_arch() -> str:
    """The arch that a lookup means when it names none: that of the current device."""
    return "cpu"
