"""The payload that computes nothing, as the launcher's tests see it, and arguments for every op."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from mla_kernels import _launcher
from mla_kernels.formats import LATENT, format_named

from codegen import abi
from codegen.signature.arguments import Tensor

SIZES = {
    "batch": 3, "q_len": 2, "num_heads": 5, "num_pages": 7, "page_size": 4, "table_width": 6, "topk": 8,
    "extra_num_pages": 2, "extra_page_size": 9, "extra_topk": 10, "kv_len": 11, "extra_kv_len": 12,
    "num_states": 13, "num_tokens": 14, "head_dim": 15, "num_rows": 16, "num_requests": 3, "num_bounds": 4,
}  # fmt: skip
DTYPES = {"q_dtype": "bf16", "kv_dtype": "bf16", "extra_kv_dtype": "same", "out_dtype": "bf16", "in_dtype": "fp32"}
TORCH = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn,
    "fp8_ds_mla": torch.uint8, "nvfp4_ds_mla": torch.uint8, "float32": torch.float32, "int32": torch.int32,
    "int64": torch.int64,
}  # fmt: skip
_CODES = {"pointer": "Q", "int64": "q", "int32": "i", "float": "f"}

ERROR = "seq_lens[3]\n5000\n0 to 4096"
"""What was refused, what it was, and what is accepted."""


class _Record(ctypes.Structure):
    _fields_ = (
        ("variant", ctypes.c_int64),
        ("plan", ctypes.c_void_p),
        ("plan_bytes", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("problem", ctypes.c_ubyte * 512),
    )


class Noop:
    """The loaded payload and what it remembers of the last call."""

    def __init__(self, library: Path) -> None:
        self.payload = _launcher.Payload(library)
        self._library = ctypes.CDLL(str(library))
        self._library.noop_record.restype = ctypes.POINTER(_Record)
        self.expect()

    @property
    def record(self) -> _Record:
        return self._library.noop_record().contents

    def expect(self, plan: int = 0, workspace: int = 0, status: int = 0, error: str = ERROR) -> None:
        """Set the sizes to ask for, and the status and the error to answer."""
        sizes = ctypes.c_int64(plan), ctypes.c_int64(workspace)
        self._library.noop_expect(*sizes, ctypes.c_int(status), error.encode())

    def meet(self, told: int, awaited: int) -> None:
        """Have the next launch, plan or prepare write to one pipe, and fail unless the other one answers."""
        self._library.noop_meet(told, awaited)

    def fields(self, op: str) -> dict[str, float | int]:
        """Return the fields of the last problem, read as the layout of ``codegen.abi`` says."""
        data = bytes(self.record.problem)
        offsets = abi.OP[op].offsets
        return {
            field.name: struct.unpack_from(_CODES[field.ctype], data, offsets[field.name])[0]
            for field in abi.OP[op].fields
        }

    def kernel(
        self,
        op: str,
        limits: Mapping[str, tuple[int, int, int]] = MappingProxyType({}),
        device: str = "cpu",
        **dtypes: str,
    ) -> _launcher.Kernel:
        names = {name: index for index, name in enumerate(abi.OP)}
        return self.payload.kernel(self.payload.names[names[op]], DTYPES | dtypes, limits, device)


def extents(tensor: Tensor, dtype: str) -> tuple[int, ...]:
    """Return the shape of an argument whose packed rows are whole."""
    shape = tuple(SIZES[dim] for dim in tensor.dims)
    if tensor.row is None:
        return shape
    if tensor.packed:
        form = format_named(dtype)
        return (*shape, form.token_bytes if form.is_bytes else form.d_qk)
    return (*shape, SIZES.get(str(tensor.row), tensor.shape[-1]))


def strided(shape: tuple[int, ...], dtype: torch.dtype, contiguous: int) -> torch.Tensor:
    """Make a tensor with room after every dimension but the last ``contiguous`` ones."""
    room = [n if index >= len(shape) - contiguous else n + 1 for index, n in enumerate(shape)]
    return torch.zeros(room, dtype=dtype)[tuple(slice(n) for n in shape)]


def arguments(op: str, **dtypes: str) -> dict[str, Any]:
    """Make every argument of an op, optional ones too. Tensors have strides of their own, and all scalars differ."""
    result: dict[str, Any] = {}
    types = DTYPES | dtypes
    if types["extra_kv_dtype"] == "same":
        types["extra_kv_dtype"] = types["kv_dtype"]
    for tensor in abi.OP[op].tensors:
        dtype = types.get(tensor.dtype, tensor.dtype)
        contiguous = tensor.row is not None or (bool(tensor.strides) and not tensor.strides[-1])
        result[tensor.name] = strided(extents(tensor, dtype), TORCH[dtype], int(contiguous))
    for index, scalar in enumerate(abi.OP[op].scalars):
        values = {"finite": 0.5 + index, "positive": 20 + index, "count": 30 + index, "flag": index % 2 == 0}
        result[scalar.name] = values[scalar.check]
    return result


def launch(kernel: _launcher.Kernel, named: Mapping[str, Any], plan: Any = None, workspace: Any = None) -> Any:
    """Launch, and return what the launch lacks, or None."""
    return kernel.launch(*named.values(), plan, workspace, None)


def expected(op: str, named: Mapping[str, Any], byte_rows: bool = False) -> dict[str, float | int]:
    """Return the problem that the arguments describe, made from the definition alone."""
    result: dict[str, float | int] = {field.name: 0 for field in abi.OP[op].fields}
    result["op"] = list(abi.OP).index(op)
    for tensor in abi.OP[op].tensors:
        value = named[tensor.name]
        if value is None:
            continue
        views = value if isinstance(value, tuple) else (value, value[..., LATENT:])
        whole = byte_rows and tensor.row == "mla" and tensor.dtype in {"kv_dtype", "extra_kv_dtype"}
        for name, view in zip(tensor.views[:1] if whole else tensor.views, views, strict=False):
            result[name] = view.data_ptr()
            for letter, stride in zip(tensor.strides, view.stride(), strict=False):
                if letter:
                    result[f"{name}_stride_{letter}"] = stride
        result |= dict(zip(tensor.dims, views[0].shape, strict=False))
        if tensor.row == "head_dim":
            result["head_dim"] = value.shape[-1]
    result |= {scalar.name: named[scalar.name] for scalar in abi.OP[op].scalars}
    return result
