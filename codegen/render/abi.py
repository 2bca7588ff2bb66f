"""Template contexts for the C ABI: struct declarations, offset asserts and the launcher's binding tables."""

from __future__ import annotations

from typing import Any

from codegen import abi
from codegen.signature.arguments import Op, Scalar, Tensor

_KIND = {"float": "float32", "int32": "int32", "int64": "int64"}
_MAX_OUTER = 3


def _initialiser(*values: object) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"


def _quoted(text: str) -> str:
    return f'"{text}"'


def _flag(value: bool) -> str:
    return str(value).lower()


def _row(op: Op, tensor: Tensor) -> tuple[str, int]:
    match tensor.row:
        case None:
            return "Row::none", 0
        case str(width) if tensor.width:
            return {"mla": "Row::packed", "d_v": "Row::value"}.get(width, f"Row::{width}"), 0
        case int(extent):
            return "Row::fixed", extent
        case dim:
            return "Row::dim", op.dims.index(dim)


def _tensor(op: Op, tensor: Tensor) -> str:
    offset = op.offsets
    padding = [0] * (_MAX_OUTER - len(tensor.dims))
    row, extent = _row(op, tensor)
    rope = offset[tensor.views[1]] if len(tensor.views) == 2 else -1
    return _initialiser(
        _quoted(tensor.name),
        _quoted(tensor.dtype),
        len(tensor.dims),
        _initialiser(*[op.dims.index(dim) for dim in tensor.dims], *padding),
        _initialiser(*[_flag(bool(letter)) for letter in tensor.strides], *[_flag(False) for _ in padding]),
        row,
        extent,
        offset[tensor.views[0]],
        rope,
        _flag(tensor.optional),
        _flag(tensor.written),
    )


def _scalar(op: Op, scalar: Scalar) -> str:
    return _initialiser(
        _quoted(scalar.name),
        f"Kind::{_KIND[scalar.ctype]}",
        f"Check::{scalar.check}",
        op.offsets[scalar.name],
        scalar.default or 0,
    )


def _op(op: Op) -> str:
    pascal = op.pascal
    return _initialiser(
        _quoted(op.name),
        op.offsets["sizeof"],
        op.offsets[op.dims[0]],
        len(op.dims),
        f"k{pascal}Dims",
        len(op.tensors),
        f"k{pascal}Tensors",
        len(op.scalars),
        f"k{pascal}Scalars" if op.scalars else "nullptr",
        *_ragged(op),
    )


def _ragged(op: Op) -> tuple[int, int, int]:
    """The tensor of bounds, and the dimensions of requests and of the batch."""
    if op.ragged is None:
        return -1, -1, -1
    names = [tensor.name for tensor in op.tensors]
    return (
        names.index(op.ragged.bounds),
        op.dims.index(op.ragged.requests),
        op.dims.index(op.ragged.batch),
    )


def context() -> dict[str, Any]:
    """Everything that ``abi.h``, ``abi_layout.cpp`` and ``bindings.h`` print."""
    return {
        "abi_hash": abi.abi_hash(),
        "statuses": abi.STATUS,
        "ops": [
            {
                "name": op.name,
                "pascal": op.pascal,
                "dims": op.dims,
                "fields": [
                    {
                        "name": field.name,
                        "declaration": field.declaration,
                        "offset": op.offsets[field.name],
                    }
                    for field in op.fields
                ],
                "size": op.offsets["sizeof"],
                "tensors": [{"binding": _tensor(op, tensor)} for tensor in op.tensors],
                "scalars": [{"binding": _scalar(op, scalar)} for scalar in op.scalars],
                "binding": _op(op),
            }
            for op in abi.OPS
        ],
    }
