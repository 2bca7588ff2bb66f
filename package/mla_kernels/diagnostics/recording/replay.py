"""Launches a recorded call again, and computes it by the reference."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mla_kernels import reference
from mla_kernels.api import selection
from mla_kernels.api.lookup import bound
from mla_kernels.api.signatures import SIGNATURES
from mla_kernels.diagnostics.bench.decode import device_of_arch
from mla_kernels.diagnostics.recording import call as calls
from mla_kernels.diagnostics.recording.call import Call
from mla_kernels.diagnostics.recording.verdict import same_bits
from mla_kernels.errors import UnsupportedError
from mla_kernels.formats import formats_of_rows, page_bytes
from mla_kernels.kernels.base import Kernel
from mla_kernels.kernels.invariance import batch_invariant
from mla_kernels.kernels.ops import KERNELS
from mla_kernels.kernels.planned import plan_for
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Variant
from mla_kernels.tensors import first, widened

_MOST_SPREAD = 4
"""Memory is laid out with the recorded strides where that takes at most so many times the bytes of the elements."""

_SCHEDULING = ("max_splits", "batch_invariant")
"""Arguments that change how a result is computed, and not what it is."""


@dataclass(frozen=True)
class Launched:
    """The results of a launch by name, on the host, and what ran it."""

    results: dict[str, Any]
    variant: Variant
    device: str


def again(call: Call, arch: str) -> Launched:
    """Launch a call on an arch, by the variant that it was recorded with where that is installed.

    Plan and workspace are made anew, and outputs are NaN before the launch. Lengths, pages and indices are checked
    before it, because a file may hold any.

    Raises
    ------
    MlaError
        Nothing here runs the arch, no variant serves the call, or an argument is refused.
    """
    found = device_of_arch(arch)
    device = torch.device("cpu") if found.kind == "cpu" else torch.device("cuda", found.ordinal)
    given = {name: _placed(call, "input", name, value, device) for name, value in call.inputs.items()}
    results = {
        name: _placed(call, "output", name, _poisoned(value), device)
        for name, value in call.outputs.items()
        if name not in calls.written(call.op)
    }
    kernel = _kernel(call, arch, given, results)
    asked = dict(given)
    with batch_invariant(call.invariant and not call.planned):  # a plan has its own flag
        if any(call.planned.values()):
            asked["plan"] = plan_for(kernel, given["q"], given["seq_lens"], **call.planned)
        returned = kernel.launch(**asked, **results, check=True)
    names = [output.name for output in SIGNATURES[call.op].outputs]
    results = dict(zip(names, returned if len(names) > 1 else (returned,), strict=False))
    results |= {name: given[name] for name in calls.written(call.op)}
    on_host = {name: _to(value, torch.device("cpu")) for name, value in results.items() if value is not None}
    return Launched(on_host, kernel.variant, torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu")


def wanted(call: Call, variant: Variant, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """The results of a call by the reference; a launch by ``variant`` has accepted the arguments before.

    Raises
    ------
    UnsupportedError
        The reference does not know an argument.
    """
    function = getattr(reference, call.op)
    known = inspect.signature(function).parameters
    given = {name: _clone(value) for name, value in call.inputs.items() if name not in _SCHEDULING}
    for name in given.keys() - known.keys():
        if given.pop(name) is not None:
            raise UnsupportedError(name, "an argument", "what mla_kernels.reference knows")
    for name, (like, axis) in KERNELS[call.op]._broadcast.items():
        if given.get(name) is not None:
            given[name] = widened(given[name], first(given[like]), axis)
    stated: dict[str, Any] = {**variant.baked, "dtype": dtype, "return_max_logits": True}
    returned = function(**given, **{name: value for name, value in stated.items() if name in known})
    names = [output.name for output in SIGNATURES[call.op].outputs]
    results = dict(zip(names, returned if len(names) > 1 else (returned,), strict=False))
    return results | {name: given[name] for name in calls.written(call.op)}


def forget_unwritten(call: Call, results: dict[str, Any]) -> None:
    """Put 0 where a launch writes nothing: for tokens of ragged queries that belong to no request."""
    bounds = call.inputs.get("cu_seqlens_q")
    if bounds is None:
        return
    first_token, end = int(bounds[0]), int(bounds[-1])
    for name, axis in (("out", 1), ("lse", 2)):
        if name in results:
            tokens = results[name].movedim(axis, 0)
            tokens[:first_token] = tokens[end:] = 0


def _kernel(call: Call, arch: str, given: dict[str, Any], results: dict[str, Any]) -> Kernel:
    """The kernel of the recorded variant, or of what the op in one call would choose for the tensors."""
    registry = payloads().registry_of(arch)
    for variant in registry.variants if registry else ():
        if variant.name == call.variant and variant.op == call.op:
            return bound(payloads().found[variant.payload], variant, {})
    signature = SIGNATURES[call.op]
    by = [given[name] if name in given else call.baked.get(name) for name in signature.selects_by]
    if signature.layout:
        by.append(given.get(signature.layout) is not None)
    if signature.ragged:
        by.append(call.planned.get(signature.ragged, 0))
    tensors = tuple(given.get(name, results.get(name)) for name in signature.selects)
    return selection.select(getattr(selection, call.op), tensors, *by)


def _placed(call: Call, kind: str, name: str, value: Any, device: torch.device) -> Any:
    """An argument on a device, its tensors with the strides that they had; the call keeps its own."""
    if not isinstance(value, (Tensor, tuple)):
        return value
    named = calls.parts(f"{kind}.{name}", value)
    placed = tuple(_strided(tensor.to(device, copy=True), call.strides.get(key)) for key, tensor in named)
    return placed if isinstance(value, tuple) else placed[0]


def _strided(tensor: Tensor, strides: list[int] | None) -> Tensor:
    """A tensor with other strides; where those overlap or would take much more memory, with those of ``_padded``.

    A stride of 0 is used where the elements along it are equal.
    """
    if strides is None or not tensor.numel():
        return tensor
    if not _usable(tensor, strides):
        strides = _padded(tensor)
    shape = _stored(tensor, strides)
    laid = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    laid.copy_(tensor[tuple(slice(extent) for extent in shape)])
    spread = laid.expand(tensor.shape)
    return spread if 0 not in strides or same_bits(spread, tensor) else _strided(tensor, _padded(tensor))


def _stored(tensor: Tensor, strides: list[int]) -> list[int]:
    """The extents that are in memory: one element along a stride of 0."""
    return [1 if stride == 0 else extent for extent, stride in zip(tensor.shape, strides, strict=True)]


def _usable(tensor: Tensor, strides: list[int]) -> bool:
    """Whether strides leave each element a place of its own, close enough to the others."""
    if len(strides) != tensor.dim() or min(strides, default=0) < 0:
        return False
    ends = 1
    for stride, extent in sorted(zip(strides, _stored(tensor, strides), strict=True)):
        if extent > 1 and stride < ends:
            return False
        ends = max(ends, stride * (extent - 1) + ends)
    return ends <= _MOST_SPREAD * tensor.numel()


def _padded(tensor: Tensor) -> list[int]:
    """The strides of a contiguous tensor, but pages of a cache of bytes are padded as its format asks."""
    strides = list(tensor.stride())
    if tensor.dtype == torch.uint8 and tensor.dim() == 3:
        forms = formats_of_rows("uint8", tensor.shape[-1])
        strides[0] = max((page_bytes(form, tensor.shape[1]) for form in forms), default=strides[0])
    return strides


def _poisoned(value: Any) -> Any:
    """An output that holds nothing yet: what a kernel does not write is seen."""
    if isinstance(value, tuple):
        return tuple(map(_poisoned, value))
    return torch.full_like(value, float("nan") if value.is_floating_point() else -7)


def _clone(value: Any) -> Any:
    return (
        tuple(map(_clone, value)) if isinstance(value, tuple) else value.clone() if isinstance(value, Tensor) else value
    )


def _to(value: Any, device: torch.device) -> Any:
    return tuple(_to(one, device) for one in value) if isinstance(value, tuple) else value.to(device)
