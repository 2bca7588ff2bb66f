"""Tensors in one file: the safetensors format, written and read without its package.

A file is 8 bytes with the length of a JSON object, the object, and the bytes of all tensors without a gap. Nothing in
it is executed, and every size is checked before it is used, because a file may come from anybody.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch

from mla_kernels.errors import DeviceError, RecordError, UnsupportedError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The element types that a call can have, by the format's names."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_METADATA = "__metadata__"
_LENGTH = 8
_MOST_HEADER = 16 << 20
"""Bytes of a header; one of a call has a few thousand."""
_MOST_ELEMENTS = 1 << 40
_MOST_DIMS = 8


def write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write contiguous tensors of the host; the file is there when it is whole, and only its owner can read it.

    Raises
    ------
    UnsupportedError
        An element type is none of ``DTYPES``.
    DeviceError
        A tensor is not of the host.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise UnsupportedError(name, str(tensor.dtype), ", ".join(map(str, _NAMES)))
        if tensor.device.type != "cpu":
            raise DeviceError(name, f"a tensor on {tensor.device}", "a tensor of the host (cpu)")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % _LENGTH)  # so that the tensors begin at a multiple of 8, as the format wants
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(len(text).to_bytes(_LENGTH, "little") + text)
            for tensor in tensors.values():
                if size := tensor.numel() * tensor.element_size():
                    file.write((ctypes.c_char * size).from_address(tensor.data_ptr()))
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a file, contiguous and on the host, and its metadata.

    Raises
    ------
    RecordError
        The file cannot be read, is cut off, or says something that a file of this format does not.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = _header(file, size)
            metadata = _strings(header.pop(_METADATA, {}))
            places = _places(header, size - file.tell())
            return {name: _tensor(file, *place) for name, place in places.items()}, metadata
    except IsADirectoryError as error:
        raise RecordError(f"{path} is a folder; give its files: {path}/*.safetensors") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
    except _FaultError as fault:
        raise RecordError(f"{path} is not a recorded call: {fault}") from fault


class _FaultError(Exception):
    """What is wrong with a file."""


def _header(file: BufferedReader, size: int) -> dict[str, Any]:
    """The JSON object at the beginning."""
    length = int.from_bytes(file.read(_LENGTH), "little")
    if size < _LENGTH or length > min(size - _LENGTH, _MOST_HEADER):
        raise _FaultError(f"it has {size} bytes, and states a header of {length}")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _FaultError(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _FaultError("its header is not a JSON object")
    return header


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _FaultError("its header has a key twice")
    return found


def _strings(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _FaultError("its metadata are not strings")
    return metadata


def _places(header: Mapping[str, Any], data: int) -> dict[str, tuple[str, list[int], int]]:
    """Type, shape and size of each tensor in the order of the file, which they fill without a gap."""
    found: dict[str, tuple[str, list[int], int]] = {}
    offset = 0
    for name, entry in sorted(header.items(), key=lambda item: _begin(*item)):
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        size = math.prod(shape) * DTYPES[dtype].itemsize
        if (begin, end) != (offset, offset + size) or end > data:
            raise _FaultError(f"tensor {name!r} of {size} bytes is said to be at {begin} to {end} of {data}")
        found[name] = dtype, shape, size
        offset = end
    if offset != data:
        raise _FaultError(f"its tensors have {offset} bytes, and the file has {data} for them")
    return found


def _begin(name: str, entry: object) -> tuple[int, int]:
    """Where a tensor begins and ends, after a look at all that is said of it."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _FaultError(f"tensor {name!r} does not have dtype, shape and data_offsets")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise _FaultError(f"tensor {name!r} is not of {', '.join(DTYPES)}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    whole = _extents(shape, _MOST_ELEMENTS) and _extents(offsets, 1 << 62) and len(offsets) == 2
    if not whole or math.prod(max(1, extent) for extent in shape) > _MOST_ELEMENTS:
        raise _FaultError(f"tensor {name!r} has a shape or offsets that no tensor has")
    return offsets[0], offsets[1]


def _extents(value: object, most: int) -> bool:
    """Whether a value is a short list of integers from 0."""
    if not isinstance(value, list) or len(value) > _MOST_DIMS:
        return False
    return all(type(each) is int and 0 <= each <= most for each in value)


def _tensor(file: BufferedReader, dtype: str, shape: list[int], size: int) -> torch.Tensor:
    """The next tensor of a file that is known to hold it."""
    if not size:
        return torch.empty(shape, dtype=DTYPES[dtype], device="cpu")
    memory = bytearray(size)
    if file.readinto(memory) != size:
        raise _FaultError("it was cut off while it was read")
    return torch.frombuffer(memory, dtype=torch.uint8).view(DTYPES[dtype]).view(shape)
