"""What a recorded call holds: its arguments before the launch, its results after it, and what ran it."""

from __future__ import annotations

import functools
import platform
from datetime import datetime, timezone
from typing import Any

import torch
from torch import Tensor

from mla_kernels.api.signatures import SIGNATURES
from mla_kernels.diagnostics import info
from mla_kernels.diagnostics.recording import call as calls
from mla_kernels.diagnostics.recording.call import Call
from mla_kernels.diagnostics.recording.referenced import REFERENCES, gathered, kept_pages
from mla_kernels.kernels import invariance
from mla_kernels.kernels.base import Kernel
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.manifest import library_name, sha256
from mla_kernels.tensors import first

_NUMBERS = {"float": float, "bool": bool, "SymInt": int, "str": str}


def before(kernel: Kernel, given: dict[str, Any]) -> Call:
    """The call of a launch that has not begun, from its arguments by name; the device is synchronised."""
    op = kernel.variant.op
    known = calls.arguments(op)
    values = {name: given.get(name) for name in known if name in given}
    tensors = {name: _seen(values[name]) for name in values if known[name].is_tensor}
    _synchronise(tensors.values())
    call = Call(op, kernel.variant.arch, kernel.variant.name, dict(kernel.variant.baked), {})
    for reference in REFERENCES.get(op, ()):
        pool, by = tensors.get(reference.cache), tensors.get(reference.by)
        if pool is not None and by is not None:
            lengths = tensors.get(reference.lengths)
            call.pool[reference.cache] = int(first(pool).shape[0])
            call.pages[reference.cache], tensors[reference.by] = kept_pages(reference, first(pool), by, lengths)
    for name, value in values.items():
        if known[name].is_tensor:
            call.inputs[name] = _copied(call, "input", name, tensors[name])
        elif value is not None:
            call.inputs[name] = _NUMBERS[known[name].kind](value)
    plan = given.get("plan")
    if plan is not None:
        call.planned = {name: getattr(plan, name) for name in SIGNATURES[op].planned}
    call.invariant = invariance.enabled
    call.info = {**_machine(), **_payload(kernel.variant.payload), "recorded": _now(), "device": _device(tensors)}
    return call


def after(call: Call, given: dict[str, Any], result: Any) -> None:
    """Add the results to a call; the device is synchronised, and what failed on it is raised here."""
    names = [output.name for output in SIGNATURES[call.op].outputs]
    results = dict(zip(names, result if len(names) > 1 else (result,), strict=False))
    results |= {name: given[name] for name in calls.written(call.op)}
    tensors = {name: _seen(value) for name, value in results.items() if value is not None}
    _synchronise(tensors.values())
    for name, value in tensors.items():
        call.outputs[name] = _copied(call, "output", name, value)


def _seen(value: Any) -> Any:
    """A tensor of any framework, or a pair, as torch sees it."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, tuple):
        return tuple(map(_seen, value))
    if type(value).__module__ == "numpy":
        return torch.as_tensor(value if value.flags.writeable else value.copy(), device="cpu")
    return torch.utils.dlpack.from_dlpack(value)


def _synchronise(values: Any) -> None:
    """Wait for all streams: the arguments may be made on another than the launch."""
    for value in values:
        if value is not None and first(value).is_cuda:
            torch.cuda.synchronize(first(value).device)
            return


def _copied(call: Call, kind: str, name: str, value: Any) -> Any:
    """A tensor or a pair on the host, of a cache the pages that are kept; strides that are not plain are noted."""
    if value is None:
        return None
    for key, tensor in calls.parts(f"{kind}.{name}", value):
        if not tensor.is_contiguous():
            call.strides[key] = list(tensor.stride())
    copies = tuple(gathered(tensor, call.pages.get(name)) for _, tensor in calls.parts(name, value))
    return copies if isinstance(value, tuple) else copies[0]


def _device(tensors: dict[str, Any]) -> str:
    """The device that the call ran on."""
    found = next(first(value).device for value in tensors.values() if value is not None)
    return torch.cuda.get_device_name(found) if found.type == "cuda" else platform.machine()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@functools.cache
def _machine() -> dict[str, Any]:
    return info.report()


@functools.cache
def _payload(name: str) -> dict[str, Any]:
    """The payload that the variant is of, down to the digest of its library."""
    found = payloads().found[name]
    digest = sha256(found.folder / library_name(found.name))
    return {"payload": name, "commit": found.manifest.revision, "library_sha256": digest}
