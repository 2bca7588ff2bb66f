"""Tensors that pretend to lie on another device, exchanged through DLPack's C functions."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

CPU, CUDA = 1, 2


class Export(ctypes.Structure):
    """A ``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_EXPORT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Export))
_STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Api(ctypes.Structure):
    """A ``DLPackExchangeAPI`` that exports what the Python object says."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("unused", ctypes.c_void_p * 3),
        ("export", _EXPORT),
        ("stream", _STREAM),
    )


@_EXPORT
def _export(tensor: Any, out: Any) -> int:
    out[0] = tensor.export
    return 0


@_STREAM
def _current_stream(device_type: int, device_id: int, out: Any) -> int:
    out[0] = 0x5000 + device_id
    return 0 if device_type == CUDA else -1


API = Api(1, 1, None, (ctypes.c_void_p * 3)(), _export, _current_stream)
_future = Api(2, 0, ctypes.addressof(API), (ctypes.c_void_p * 3)(), _EXPORT(), _STREAM())


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_names: list[bytes] = []  # capsules borrow their names


def capsule(content: ctypes.Structure, name: bytes) -> Any:
    _names.append(name)
    return _new_capsule(ctypes.addressof(content), name, None)


class OnDevice:
    """A tensor that pretends to lie on another device, and is exchanged through the C functions."""

    __dlpack_c_exchange_api__ = capsule(_future, b"dlpack_exchange_api")

    def __init__(self, tensor: torch.Tensor, device_id: int = 0, device_type: int = CUDA, **fields: Any) -> None:
        codes = {torch.bfloat16: 4, torch.float32: 2, torch.int32: 0, torch.uint8: 1}
        self.tensor = tensor
        self.extents = (ctypes.c_int64 * tensor.ndim)(*tensor.shape)
        self.steps = (ctypes.c_int64 * tensor.ndim)(*tensor.stride())
        kind = (codes[tensor.dtype], tensor.element_size() * 8, 1)
        self.export = Export(tensor.data_ptr(), device_type, device_id, tensor.ndim, *kind, self.extents, self.steps, 0)
        for name, value in fields.items():
            setattr(self.export, name, value)
