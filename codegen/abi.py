"""The only definition of the C ABI: the arguments of every op, in order, and the struct fields they become.

A problem struct is laid out as header, tensors (a pointer followed by its element strides), dimensions, integers
(``int64``), then floats and flags (4 bytes each). Wide fields come first, so that no compiler inserts padding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

LATENT = 512
ROPE = 64

CType = Literal["pointer", "int64", "int32", "float"]
SIZE: dict[CType, int] = {"pointer": 8, "int64": 8, "int32": 4, "float": 4}
_IN_C: dict[CType, str] = {"pointer": "void*", "int64": "int64_t", "int32": "int32_t", "float": "float"}

STATUS = (
    "ok",
    "dtype",
    "device",
    "shape",
    "stride",
    "alignment",
    "range",
    "workspace",
    "unsupported",
    "internal",
)
"""What a call across the ABI answers; every code but ``ok`` has a message in ``mla_last_error``."""


@dataclass(frozen=True)
class Tensor:
    """A tensor argument.

    ``dtype`` names a trait (``q_dtype``) or a fixed type (``int32``). ``dims`` names the outer dimensions, each of
    which becomes an ``int64`` field the first time it appears; ``strides`` names their strides, one per outer
    dimension. ``row`` is the innermost, contiguous extent: a number, a dimension's name, ``"mla"`` (a packed row of
    latent and rope, or two tensors), or ``None`` for a tensor whose last outer dimension is innermost. A dimension
    without a letter in ``strides`` (``""``) must be contiguous.
    """

    name: str
    dtype: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    row: int | str | None = None
    optional: bool = False
    written: bool = False

    @property
    def views(self) -> tuple[str, ...]:
        """The pointer fields: two for a tensor that holds latent and rope."""
        if self.row != "mla":
            return (self.name,)
        stem = {"kv_cache": "kv", "extra_kv_cache": "extra_kv"}.get(self.name, self.name)
        return (f"{stem}_latent", f"{stem}_rope")


@dataclass(frozen=True)
class Scalar:
    """A scalar argument; ``check`` says what the launcher refuses."""

    name: str
    ctype: CType
    check: Literal["finite", "positive", "flag", "count"]
    default: float | int | None = None


@dataclass(frozen=True)
class Op:
    """An op: its arguments in launch order and the traits that identify its variants."""

    name: str
    traits: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...] = ()


@dataclass(frozen=True)
class Field:
    """One field of a problem struct."""

    name: str
    ctype: CType

    @property
    def declaration(self) -> str:
        """The field in C, without its semicolon."""
        return f"{_IN_C[self.ctype]} {self.name}"


ATTENTION = ("q_dtype", "kv_dtype", "out_dtype", "load", "schedule")
SOFTMAX = Scalar("softmax_scale", "float", "finite")
SCALES = (
    Scalar("q_scale", "float", "finite", 1.0),
    Scalar("kv_scale", "float", "finite", 1.0),
    Scalar("out_scale", "float", "finite", 1.0),
)
POOL = ("num_pages", "page_size")
POOL_STRIDES = ("page", "token")


def _lengths(name: str, dims: tuple[str, ...], strides: tuple[str, ...]) -> Tensor:
    return Tensor(name, "int32", dims, strides, optional=True)


OPS: tuple[Op, ...] = (
    Op(
        "decode",
        ATTENTION,
        (
            Tensor("q", "q_dtype", ("batch", "q_len", "num_heads"), ("b", "s", "h"), "mla"),
            Tensor("kv_cache", "kv_dtype", POOL, POOL_STRIDES, "mla"),
            Tensor("block_table", "int32", ("batch", "table_width"), ("b", ""), optional=True),
            Tensor("seq_lens", "int32", ("batch",), ("",)),
            Tensor("out", "out_dtype", ("batch", "q_len", "num_heads"), ("b", "s", "h"), LATENT, written=True),
            Tensor(
                "lse",
                "float32",
                ("batch", "num_heads", "q_len"),
                ("b", "h", "s"),
                optional=True,
                written=True,
            ),
        ),
        (
            SOFTMAX,
            *SCALES,
            Scalar("causal", "int32", "flag", 1),
            Scalar("max_splits", "int64", "count", 0),
            Scalar("batch_invariant", "int32", "flag", 0),
        ),
    ),
    Op(
        "sparse_decode",
        ATTENTION,
        (
            Tensor("q", "q_dtype", ("batch", "q_len", "num_heads"), ("b", "s", "h"), "mla"),
            Tensor("kv_cache", "kv_dtype", POOL, POOL_STRIDES, "mla"),
            Tensor("indices", "int32", ("batch", "q_len", "topk"), ("b", "s", "")),
            Tensor("out", "out_dtype", ("batch", "q_len", "num_heads"), ("b", "s", "h"), LATENT, written=True),
            Tensor(
                "lse",
                "float32",
                ("batch", "num_heads", "q_len"),
                ("b", "h", "s"),
                optional=True,
                written=True,
            ),
            Tensor(
                "max_logits",
                "float32",
                ("batch", "num_heads", "q_len"),
                ("b", "h", "s"),
                optional=True,
                written=True,
            ),
            _lengths("topk_length", ("batch", "q_len"), ("b", "s")),
            Tensor("attn_sink", "float32", ("num_heads",), ("",), optional=True),
            Tensor(
                "extra_kv_cache",
                "kv_dtype",
                ("extra_num_pages", "extra_page_size"),
                POOL_STRIDES,
                "mla",
                optional=True,
            ),
            Tensor("extra_indices", "int32", ("batch", "q_len", "extra_topk"), ("b", "s", ""), optional=True),
            _lengths("extra_topk_length", ("batch", "q_len"), ("b", "s")),
        ),
        (SOFTMAX, *SCALES, Scalar("max_splits", "int64", "count", 0)),
    ),
    Op(
        "sparse_prefill",
        ATTENTION,
        (
            Tensor("q", "q_dtype", ("q_len", "num_heads"), ("s", "h"), "mla"),
            Tensor("kv", "kv_dtype", ("kv_len",), ("token",), "mla"),
            Tensor("indices", "int32", ("q_len", "topk"), ("s", "")),
            Tensor("out", "out_dtype", ("q_len", "num_heads"), ("s", "h"), LATENT, written=True),
            Tensor("max_logits", "float32", ("q_len", "num_heads"), ("s", "h"), optional=True, written=True),
            Tensor("lse", "float32", ("q_len", "num_heads"), ("s", "h"), optional=True, written=True),
            _lengths("topk_length", ("q_len",), ("s",)),
            Tensor("attn_sink", "float32", ("num_heads",), ("",), optional=True),
            Tensor("extra_kv", "kv_dtype", ("extra_kv_len",), ("token",), "mla", optional=True),
            Tensor("extra_indices", "int32", ("q_len", "extra_topk"), ("s", ""), optional=True),
            _lengths("extra_topk_length", ("q_len",), ("s",)),
        ),
        (SOFTMAX, *SCALES),
    ),
    Op(
        "merge_states",
        ("in_dtype", "out_dtype", "schedule"),
        (
            Tensor("o", "in_dtype", ("num_states", "num_tokens", "num_heads"), ("n", "t", "h"), "head_dim"),
            Tensor("lse", "float32", ("num_states", "num_tokens", "num_heads"), ("n", "t", "h")),
            _lengths("counts", ("num_tokens",), ("t",)),
            Tensor("out", "out_dtype", ("num_tokens", "num_heads"), ("t", "h"), "head_dim", written=True),
            Tensor("out_lse", "float32", ("num_tokens", "num_heads"), ("t", "h"), optional=True, written=True),
        ),
    ),
    Op(
        "store_kv",
        ("in_dtype", "kv_dtype"),
        (
            Tensor("latent", "in_dtype", ("num_tokens",), ("t",), LATENT),
            Tensor("rope", "in_dtype", ("num_tokens",), ("t",), ROPE),
            Tensor("kv_cache", "kv_dtype", POOL, POOL_STRIDES, "mla", written=True),
            Tensor("slot_mapping", "int64", ("num_tokens",), ("",)),
            Tensor("scale", "float32", (), (), 1, optional=True),
        ),
    ),
    Op(
        "gather_kv",
        ("kv_dtype", "out_dtype"),
        (
            Tensor("kv_cache", "kv_dtype", POOL, POOL_STRIDES, "mla"),
            Tensor("indices", "int32", ("num_rows",), ("",)),
            Tensor("out", "out_dtype", ("num_rows",), ("row",), "mla", written=True),
        ),
        (Scalar("kv_scale", "float", "finite", 1.0),),
    ),
    Op(
        "to_global_indices",
        (),
        (
            Tensor("req_id", "int32", ("num_tokens",), ("",)),
            Tensor("block_table", "int32", ("num_requests", "table_width"), ("b", "")),
            Tensor("token_indices", "int32", ("num_tokens", "topk"), ("t", "")),
            Tensor("out", "int32", ("num_tokens", "topk"), ("t", ""), written=True),
        ),
        (Scalar("page_size", "int64", "positive"),),
    ),
)

OP = {op.name: op for op in OPS}


def dims(op: Op) -> tuple[str, ...]:
    """The op's dimensions in order of first appearance; each is an ``int64`` field."""
    names: dict[str, None] = {}
    for tensor in op.tensors:
        for dim in tensor.dims:
            names.setdefault(dim)
        if isinstance(tensor.row, str) and tensor.row != "mla":
            names.setdefault(tensor.row)
    return tuple(names)


def fields(op: Op) -> tuple[Field, ...]:
    """The fields of the op's problem struct, in order."""
    return tuple(_fields(op))


def _fields(op: Op) -> Iterator[Field]:
    yield Field("op", "int32")
    yield Field("device", "int32")
    for tensor in op.tensors:
        for view in tensor.views:
            yield Field(view, "pointer")
            for letter in tensor.strides:
                if letter:
                    yield Field(f"{view}_stride_{letter}", "int64")
    for dim in dims(op):
        yield Field(dim, "int64")
    for scalar in op.scalars:
        if scalar.ctype == "int64":
            yield Field(scalar.name, scalar.ctype)
    narrow = [scalar for scalar in op.scalars if scalar.ctype != "int64"]
    for scalar in narrow:
        yield Field(scalar.name, scalar.ctype)
    if len(narrow) % 2:
        yield Field("reserved", "int32")


def offsets(op: Op) -> dict[str, int]:
    """Byte offset of every field; raises ``ValueError`` where a compiler would have to pad."""
    at, result = 0, {}
    for field in fields(op):
        if at % SIZE[field.ctype]:
            raise ValueError(f"{op.name}.{field.name} at byte {at} is not aligned to {SIZE[field.ctype]}")
        result[field.name] = at
        at += SIZE[field.ctype]
    result["sizeof"] = at
    return result


def abi_hash() -> str:
    """Sixteen hex digits over everything that crosses the boundary: statuses, ops, arguments, fields."""
    listing = [STATUS, [(asdict(op), [asdict(field) for field in fields(op)]) for op in OPS]]
    return hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest()[:16]
