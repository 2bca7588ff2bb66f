"""Faults planted into one op, which the fuzzer must find."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import mla_kernels as mla
import numpy as np
import torch
from mla_kernels.errors import MlaError, ShapeError

from tests.fuzz.worker import Worker

Call = Callable[..., Any]


def address(tensor: Any) -> tuple[int, int]:
    """Where a tensor's first element begins, and where its last one ends."""
    if isinstance(tensor, np.ndarray):
        return np.lib.array_utils.byte_bounds(tensor)
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def of(result: Any) -> Any:
    """A tensor of a result."""
    return result[0] if isinstance(result, tuple) else result


def beyond(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Write a byte behind the output."""
    result = call(*args, **kwargs)
    if "out" in kwargs:
        ctypes.memset(address(of(result))[1], 0x55, 1)
    return result


def before(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Write a byte before the output."""
    result = call(*args, **kwargs)
    if "out" in kwargs:
        ctypes.memset(address(of(result))[0] - 1, 0x55, 1)
    return result


def wrong(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Answer slightly wrong, in one element."""
    result = call(*args, **kwargs)
    out = of(result)
    if out.shape[0]:
        out[(0,) * out.ndim] += 0.25
    return result


def touching(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Change an input."""
    indices = kwargs.get("indices")
    result = call(*args, **kwargs)
    if isinstance(indices, (torch.Tensor, np.ndarray)) and indices.shape[0]:
        indices[0] += 1
    return result


def early(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Write before a refusal."""
    out = kwargs.get("out")
    if isinstance(out, (torch.Tensor, np.ndarray)) and out.flags.writeable if isinstance(out, np.ndarray) else False:
        out[...] = 0
    if isinstance(out, torch.Tensor) and out.device.type == "cpu" and not out.is_sparse:
        with torch.no_grad():
            out.zero_()
    return call(*args, **kwargs)


def untyped(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Refuse with an error of Python's own."""
    try:
        return call(*args, **kwargs)
    except MlaError:
        raise IndexError("tuple index out of range") from None


def misnamed(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Refuse another argument than the wrong one."""
    try:
        return call(*args, **kwargs)
    except MlaError:
        raise ShapeError("stream_of_another_op", "this", "that") from None


def lenient(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Accept everything."""
    try:
        return call(*args, **kwargs)
    except MlaError:
        return torch.zeros(1, 576)


def refusing(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Refuse a legal call."""
    raise ShapeError("indices", "this", "that")


def dying(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Abort the process."""
    os.abort()


def hanging(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Never return."""
    time.sleep(600)


def spilling(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Write what belongs to no request of ragged queries."""
    result = call(*args, **kwargs)
    bounds, out = kwargs.get("cu_seqlens_q"), kwargs.get("out")
    if bounds is not None and out is not None:
        out[:, int(bounds[-1]) :] = 0
    return result


def shifted(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Give the tokens of ragged queries each other's answers."""
    result = call(*args, **kwargs)
    bounds = kwargs.get("cu_seqlens_q")
    if bounds is not None:
        own = slice(int(bounds[0]), int(bounds[-1]))
        result[0][:, own] = torch.as_tensor(result[0])[:, own].roll(1, dims=1)
    return result


class Planted(Worker):
    """A worker in which an op has a fault."""

    def __init__(self, fault: Call, op: str = "gather_kv") -> None:
        call = getattr(mla, op)
        setattr(mla, op, lambda *args, **kwargs: fault(call, *args, **kwargs))
        super().__init__("cpu", "cpu")
