"""What the kernels know of tensors: names of element types, and how each framework allocates."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from mla_kernels.errors import DTypeError, ShapeError, UnsupportedError
from mla_kernels.formats import FORMATS, HEAD_DIM, LATENT, ROPE, CacheFormat, format_named, formats_of_rows

Tensor: TypeAlias = Any
"""A torch tensor, a NumPy array, or another object that speaks DLPack."""

Packed: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Rows of latent and rope: one tensor ``[..., d_qk]``, or two, such as ``[..., 512]`` and ``[..., 64]``."""

DTypeLike: TypeAlias = Any
"""An element type: a name of ours such as ``bf16``, torch's or NumPy's name, or their dtype itself."""

_NAME = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
}
_STORED = {name: stored for stored, name in _NAME.items()} | {"int32": "int32", "uint8": "uint8"}
_NUMPY = ("fp32", "fp16", "int32", "uint8")
_KINDS = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}
"""DLPack's kinds of memory: of the host, of CUDA, of the host but pinned by CUDA, and managed by CUDA."""
_HOST = ("cpu", 0)


def dtype_name(argument: str, tensor: Tensor, *also: str) -> str:
    """The name of a tensor's element type, such as ``bf16``; ``also`` are types that the caller takes beside.

    Raises
    ------
    DTypeError
        The argument is no tensor, or has a type that no variant takes.
    """
    stored = _stored(argument, tensor)
    if stored not in _NAME:
        raise DTypeError(argument, stored, ", ".join([*_NAME, *also]))
    return _NAME[stored]


def element_name(dtype: DTypeLike) -> Any:
    """The name here of an element type of torch or NumPy; anything else, such as None, passes as it is.

    Parameters
    ----------
    dtype : str or dtype
        ``"bfloat16"``, ``torch.bfloat16``, ``numpy.float16``, ``numpy.dtype("float16")`` or ``ml_dtypes.bfloat16``.
    """
    if isinstance(dtype, str):
        name = str.__str__(dtype)  # not what a subclass says that it is
        return _NAME.get(name.removeprefix("torch."), name)
    try:
        stated = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
        return _NAME.get(str(stated).rpartition(".")[2], dtype)
    except Exception:
        return dtype


def stored_name(dtype: str) -> str:
    """What torch and NumPy call an element type, such as ``bfloat16`` for ``bf16``."""
    return _STORED[dtype]


def cache_format(argument: str, cache: Packed, kv_dtype: object = None) -> CacheFormat:
    """The format of a KV cache, by its element type and the width of its rows; ``kv_dtype`` tells those that are alike.

    Bytes may be ``e4m3``. Where no format has elements in rows of such a width, it is the one of the default widths,
    which the launch then holds the cache to.

    Raises
    ------
    DTypeError
        The argument is no tensor, or has a type that no variant takes, or rows of several formats.
    ShapeError
        It holds bytes, and no format has rows of as many; or a tuple that is no pair.
    """
    parts = _parts(argument, cache)
    in_bytes = _stored(argument, first(cache)) == "uint8"
    name = "e4m3" if in_bytes else dtype_name(argument, first(cache), "uint8 for a cache of bytes")
    try:
        width = sum(int(shape[-1]) for shape in map(_shape, parts) if shape)
    except Exception as error:
        raise _no_tensor(argument, first(cache)) from error
    found = (formats_of_rows("uint8", width) if in_bytes else ()) or formats_of_rows(name, width)
    if len(found) > 1 and kv_dtype is not None:
        found = tuple(form for form in found if form.name == kv_dtype) or found[:1]
    if len(found) > 1:
        names = " or ".join(form.name for form in found)
        raise DTypeError("kv_dtype", "None", f"{names}, because {argument} has rows of {width} bytes")
    if in_bytes and not found:
        raise ShapeError(argument, f"rows of {width} bytes", rows_of_bytes(FORMATS))
    return found[0] if found else format_named(name)


def _parts(argument: str, packed: Packed) -> tuple[Tensor, ...]:
    """The one tensor, or the two of a pair, whose widths tell nothing unless both are tensors."""
    if not isinstance(packed, tuple):
        return (packed,)
    if packed and len(packed) != 2:
        raise ShapeError(argument, f"{len(packed)} tensors", "one tensor, or a pair of latent and rope")
    for place, part in enumerate(packed):
        if _shape(part) is None:
            raise _no_tensor(argument if place == 0 else f"{argument}[{place}]", part)
    return packed


def rows_of_bytes(forms: Iterable[CacheFormat]) -> str:
    """``576 (e4m3), 656 (fp8_ds_mla)``: the widths of caches of ``uint8`` that have one of these formats."""
    widths = sorted({form.token_bytes for form in forms if form.is_bytes or form.name == "e4m3"})
    return ", ".join(map(_named_bytes, widths))


def _named_bytes(token_bytes: int) -> str:
    """``656 (fp8_ds_mla)``: the bytes of a token, and the formats that have such rows."""
    found = formats_of_rows("uint8", token_bytes) or formats_of_rows("e4m3", token_bytes)
    return f"{token_bytes} ({' or '.join(form.name for form in found)})"


def _stored(argument: str, tensor: Tensor) -> str:
    try:
        return str(tensor.dtype).rpartition(".")[2]
    except Exception as error:
        raise _no_tensor(argument, tensor) from error


def _shape(tensor: Tensor) -> tuple[int, ...] | None:
    """The shape of a tensor; None of what has none, whose attributes may raise anything."""
    try:
        return tuple(tensor.shape)
    except Exception:
        return None


def _no_tensor(argument: str, value: object) -> DTypeError:
    return DTypeError(argument, type(value).__name__, "a tensor")


def first(packed: Packed) -> Tensor:
    """The latent of a pair, or the one tensor; an empty tuple passes as it is, and is no tensor."""
    return packed[0] if type(packed) is tuple and packed else packed


def extents(argument: str, tensor: Tensor, *dims: str) -> tuple[int, ...]:
    """The extents of a tensor whose rank is the number of ``dims``.

    Raises
    ------
    DTypeError, ShapeError
        The argument is no tensor, or has another rank.
    """
    shape = _shape(tensor)
    if shape is None:
        raise _no_tensor(argument, tensor)
    if len(shape) != len(dims):
        raise ShapeError(argument, f"shape {list(shape)}", f"[{', '.join(dims)}]")
    return shape


def device_of(argument: str, tensor: Tensor) -> tuple[str, int]:
    """The kind of the device that holds a tensor, ``cpu``, ``cuda`` or another, and its ordinal.

    Raises
    ------
    DTypeError
        The argument is no tensor.
    """
    try:
        on_cuda = getattr(tensor, "is_cuda", None)  # torch has it, and quicker than DLPack
        if on_cuda:
            return "cuda", tensor.get_device()
        if on_cuda is not None:
            return _HOST if tensor.is_cpu else (tensor.device.type, tensor.device.index or 0)
        code, ordinal = tensor.__dlpack_device__()
        return _KINDS.get(int(code), f"DLPack device {int(code)}"), int(ordinal)
    except Exception as error:
        raise _no_tensor(argument, tensor) from error


def empty(argument: str, like: Tensor, shape: tuple[int, ...], dtype: str, stream: int | None = None) -> Tensor:
    """Allocate an uninitialised tensor in the framework and on the device of ``like``, for work on ``stream``.

    Frameworks give freed memory to what is enqueued next on the stream that it was allocated for: of another stream,
    what is enqueued there could still read it. For what is no tensor nothing is allocated: the launch refuses it by its
    own name.

    Raises
    ------
    UnsupportedError
        The framework, or NumPy for this element type, has nothing to allocate: the caller must give the tensor.
    """
    torch = sys.modules.get("torch")
    stored = _STORED[dtype]
    if torch is not None and isinstance(like, torch.Tensor):
        if stream is None:  # as a rule
            return like.new_empty(shape, dtype=getattr(torch, stored))
        with _on(stream, like):
            return like.new_empty(shape, dtype=getattr(torch, stored))
    if not hasattr(type(like), "__dlpack__"):
        return None
    framework = _framework(like)
    if framework == "numpy" and dtype in _NUMPY:
        return sys.modules["numpy"].empty(shape, stored)
    own = framework == "cupy" and _stored(argument, like) == stored  # a type that NumPy knows only as an extension
    if framework == "cupy" and (own or dtype in _NUMPY):
        with like.device, _on(stream, like):
            return sys.modules["cupy"].empty(shape, like.dtype if own else stored)
    allocates = {"numpy": ", ".join(_NUMPY), "cupy": f"{', '.join(_NUMPY)} or its own type's"}.get(framework, "no")
    accepts = f"a {dtype} tensor {list(shape)} of yours, because {framework} allocates {allocates} outputs here"
    raise UnsupportedError(argument, "None", accepts)


class _Stream:
    """A stream by its address, as frameworks hand each other streams."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def _on(stream: object, like: Tensor) -> AbstractContextManager[object]:
    """Where a framework allocates for a stream, given by its address; what is no address is refused by the launch."""
    if not isinstance(stream, int) or not 0 <= stream < 1 << 63:
        return nullcontext()
    if _framework(like) == "cupy":
        streams = sys.modules["cupy"].cuda
        wrapped = getattr(streams.Stream, "from_external", None)  # CuPy 14, which deprecates the other one
        return wrapped(_Stream(stream)) if wrapped else streams.ExternalStream(stream)  # type: ignore[no-any-return]
    if not getattr(like, "is_cuda", False):
        return nullcontext()
    cuda = sys.modules["torch"].cuda
    # Both are addresses of the default stream; of 0, ExternalStream would make another one, and it fails for 1.
    named = stream in (0, 1)
    external = cuda.default_stream(like.device) if named else cuda.ExternalStream(stream, like.device)
    return cuda.stream(external)  # type: ignore[no-any-return]


def widened(lengths: Tensor, like: Tensor, axis: int) -> Tensor:
    """View lengths ``[batch]`` as ``[batch, n]``, without a copy except in JAX; ``n`` is an extent of ``like``.

    What has another shape, or none, or no such view, passes as it is, and the launch refuses it by name.
    """
    own, other = _shape(lengths), _shape(like)
    if own is None or other is None or len(own) != 1 or axis >= len(other):
        return lengths
    shape = (own[0], other[axis])
    try:
        if hasattr(lengths, "expand"):
            return lengths[:, None].expand(shape)
        return _arrays(lengths).broadcast_to(lengths[:, None], shape)
    except Exception:  # of a sparse tensor, for example
        return lengths


def with_rope(rows: Packed, d_qk: int, stream: int | None = None) -> Packed:
    """Give rows of the latent alone, where a kernel takes ``d_qk`` columns, a rope part of zeros that all share.

    They are written on ``stream``, where the kernel reads them.

    What has another width passes as it is.
    """
    own = _shape(rows)
    if d_qk != HEAD_DIM or isinstance(rows, tuple) or not own or own[-1] != LATENT:
        return rows
    shape = (*own[:-1], ROPE)
    try:
        with _on(stream, rows):
            if hasattr(rows, "new_zeros"):
                return rows, rows.new_zeros(ROPE).expand(shape)
            arrays = _arrays(rows)
            return rows, arrays.broadcast_to(arrays.zeros(ROPE, rows.dtype), shape)
    except Exception:  # of a sparse tensor, for example
        return rows


def _arrays(like: Tensor) -> Any:
    """The module that makes arrays as ``like`` is one."""
    return sys.modules["jax.numpy" if _framework(like) == "jax" else _framework(like)]


def _framework(tensor: Tensor) -> str:
    return type(tensor).__module__.partition(".")[0].removesuffix("lib")  # JAX's arrays are made by jaxlib


def compiling() -> bool:
    """Whether ``torch.compile``, ``torch.export``, or ``make_fx`` without ``pre_dispatch``, is tracing the caller."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return torch.compiler.is_compiling() or (torch._C._len_torch_dispatch_stack() > 0 and _has_proxies())


def _has_proxies() -> bool:
    """Whether a mode of torch that counts all operations is ``make_fx``'s, which then has imported this module."""
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return proxies is not None and proxies.get_proxy_mode() is not None
