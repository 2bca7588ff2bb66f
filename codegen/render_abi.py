"""Template contexts for the C ABI: struct declarations, offset asserts and the launcher's binding tables."""

from __future__ import annotations

from typing import Any

from codegen import abi

_KIND = {"float": "float32", "int32": "int32", "int64": "int64"}
_MAX_OUTER = 3


def _initialiser(*values: object) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"


def _quoted(text: str) -> str:
    return f'"{text}"'


def _flag(value: bool) -> str:
    return str(value).lower()


def _row(op: abi.Op, tensor: abi.Tensor) -> tuple[str, int]:
    match tensor.row:
        case None:
            return "Row::none", 0
        case "mla":
            return "Row::packed", abi.LATENT + abi.ROPE
        case int(extent):
            return "Row::fixed", extent
        case dim:
            return "Row::dim", abi.dims(op).index(dim)


def _tensor(op: abi.Op, tensor: abi.Tensor) -> str:
    offset = abi.offsets(op)
    padding = [0] * (_MAX_OUTER - len(tensor.dims))
    row, extent = _row(op, tensor)
    rope = offset[tensor.views[1]] if len(tensor.views) == 2 else -1
    return _initialiser(
        _quoted(tensor.name),
        _quoted(tensor.dtype),
        len(tensor.dims),
        _initialiser(*[abi.dims(op).index(dim) for dim in tensor.dims], *padding),
        _initialiser(*[_flag(bool(letter)) for letter in tensor.strides], *[_flag(False) for _ in padding]),
        row,
        extent,
        offset[tensor.views[0]],
        rope,
        _flag(tensor.optional),
        _flag(tensor.written),
    )


def _scalar(op: abi.Op, scalar: abi.Scalar) -> str:
    return _initialiser(
        _quoted(scalar.name),
        f"Kind::{_KIND[scalar.ctype]}",
        f"Check::{scalar.check}",
        abi.offsets(op)[scalar.name],
        scalar.default or 0,
    )


def _op(op: abi.Op) -> str:
    pascal = _pascal(op.name)
    return _initialiser(
        _quoted(op.name),
        abi.offsets(op)["sizeof"],
        abi.offsets(op)[abi.dims(op)[0]],
        len(abi.dims(op)),
        f"k{pascal}Dims",
        len(op.tensors),
        f"k{pascal}Tensors",
        len(op.scalars),
        f"k{pascal}Scalars" if op.scalars else "nullptr",
    )


def _pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def context() -> dict[str, Any]:
    """Everything that ``abi.h``, ``abi_layout.cpp`` and ``bindings.h`` print."""
    return {
        "abi_hash": abi.abi_hash(),
        "statuses": abi.STATUS,
        "ops": [
            {
                "name": op.name,
                "pascal": _pascal(op.name),
                "dims": abi.dims(op),
                "fields": [
                    {
                        "name": field.name,
                        "declaration": field.declaration,
                        "offset": abi.offsets(op)[field.name],
                    }
                    for field in abi.fields(op)
                ],
                "size": abi.offsets(op)["sizeof"],
                "tensors": [{"binding": _tensor(op, tensor)} for tensor in op.tensors],
                "scalars": [{"binding": _scalar(op, scalar)} for scalar in op.scalars],
                "binding": _op(op),
            }
            for op in abi.OPS
        ],
    }
