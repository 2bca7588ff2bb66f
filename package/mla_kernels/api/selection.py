"""From the tensors of a one-call op to its kernel; the answer is cached by element types and inner extents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from mla_kernels._types import OutDType
from mla_kernels.api.lookup import find, remember
from mla_kernels.devices.machine import arch_for
from mla_kernels.errors import DTypeError, ShapeError, VariantNotFoundError
from mla_kernels.formats import FORMATS, HEAD_DIM, LATENT, WIDTHS
from mla_kernels.kernels.base import Kernel, Plan
from mla_kernels.resolve.search import variants
from mla_kernels.scalars import count
from mla_kernels.tensors import (
    DTypeLike,
    Packed,
    Tensor,
    cache_format,
    device_of,
    dtype_name,
    element_name,
    extents,
    first,
    rows_of_bytes,
    stored_name,
)

Config = dict[str, object]

_WIDTH = str(HEAD_DIM)
_cache: dict[tuple[object, ...], Kernel] = {}
_decodes: dict[tuple[object, ...], Kernel] = {}


def select(describe: Callable[..., Config], tensors: tuple[Packed | None, ...], *options: object) -> Kernel:
    """The kernel for the config that ``describe(*tensors, *options)`` reads off the tensors.

    Raises
    ------
    InvalidArgumentError
        An argument is no tensor, or has a rank or element type that no variant takes.
    VariantNotFoundError
        No variant serves the config.
    """
    try:
        return _cache[_key(describe, tensors, options)]
    except Exception:  # what is no tensor may raise anything
        pass
    kernel = _found(describe(*tensors, *options), tensors[-1])  # says what is wrong with what has no key
    try:
        return remember(_cache, _key(describe, tensors, options), kernel)
    except Exception:  # one of a pair is no tensor, which the launch says
        return kernel


def _found(config: Config, out: Packed | None) -> Kernel:
    """The kernel of a config; where only the type of ``out`` has none, the error names ``out``."""
    try:
        return find(config)
    except VariantNotFoundError as error:
        if mixed := _mixed(config):
            raise VariantNotFoundError(f"{mixed}\n{error}") from None
        asked = config.get("out_dtype")
        if asked is None or out is None or asked != dtype_name("out", first(out)):
            raise
        near = variants(**{field: value for field, value in config.items() if field != "out_dtype"})
        accepted = dict.fromkeys(stored_name(str(variant.baked["out_dtype"])) for variant in near)
        if not accepted or stored_name(str(asked)) in accepted:  # then it is not the type of out that has none
            raise
        raise DTypeError("out", stored_name(str(asked)), ", ".join(accepted)) from error


def _mixed(config: Config) -> str:
    """What to convert where the input and the cache are of different float types, of which few ops have kernels."""
    argument, both = ("q", "one") if "q_dtype" in config else ("latent", "latent and rope")
    own, cache = config.get("q_dtype", config.get("in_dtype")), config.get("kv_dtype")
    if own == cache or not {own, cache} <= {*get_args(OutDType)}:
        return ""
    other = "kv" if config["op"] == "sparse_prefill" else "kv_cache"
    such_as = f"{argument}.to(torch.{stored_name(str(cache))})"
    return f"{argument} is {own} and {other} {cache}: convert {both}, such as {such_as}"


def _key(describe: object, tensors: tuple[Any, ...], options: tuple[object, ...]) -> tuple[object, ...]:
    key: list[object] = [describe, options, device_of("the first argument", first(tensors[0]))]
    for tensor in tensors:
        if tensor is None:
            key.append(None)
        elif type(tensor) is tuple:  # the first of a pair alone would be the key of a tensor as well
            key.append(len(tensor))
            for one in tensor:
                key += one.dtype, one.shape[1:]
        else:
            key += tensor.dtype, tensor.shape[1:]
    return tuple(key)


def planned_decode_kernel(
    out: Tensor | None, paged: bool, plan: Plan | None, compute_dtype: DTypeLike | None = None
) -> Kernel | None:
    """The kernel that ``decode_kernel`` chose last beside such a plan, without a look at the tensors.

    A plan names the variant, and the launch refuses what does not fit its traits and numbers: beside a plan and an
    ``out``, the layout and the page size tell the rest. The page size may be another now, which the launch refuses
    too; to read a shape off a torch tensor takes longer than the rest of the choice.
    """
    if type(plan) is Plan and out is not None and (compute_dtype is None or type(compute_dtype) is str):
        return _decodes.get((plan.shape, paged, compute_dtype))
    return None


def decode_kernel(  # noqa: PLR0917 (the tensors and numbers that the op selects by)
    q: Packed,
    kv_cache: Packed,
    out: Tensor | None,
    paged: bool,
    plan: Plan | None = None,
    max_q_len: int = 0,
    compute_dtype: DTypeLike | None = None,
) -> Kernel:
    """``select`` for the op that runs once a layer and step: unpacking a shape costs half of slicing it."""
    compute = None if compute_dtype is None else element_name(compute_dtype)
    kernel = _decode_kernel(q, kv_cache, out, paged, plan.max_q_len if type(plan) is Plan else max_q_len, compute)
    if type(plan) is Plan and out is not None and plan.variant == kernel.variant.name:
        _decodes.pop((plan.shape, paged, compute), None)
        remember(_decodes, (plan.shape, paged, compute), kernel)
    return kernel


def _decode_kernel(  # noqa: PLR0917 (as above)
    q: Packed, kv_cache: Packed, out: Tensor | None, paged: bool, max_q_len: int, compute: str | None
) -> Kernel:
    latent, cache = first(q), first(kv_cache)
    packed = cache is kv_cache  # the latent of a pair is as wide as a row without a rope part
    try:
        _, q_len, num_heads, _ = latent.shape
        if max_q_len:
            q_len = max_q_len
        _, page_size, row = cache.shape
        written = None if out is None else out.dtype
        device = device_of("q", latent)  # CuPy's own devices have no hash
        types = latent.dtype, cache.dtype, written, compute
        return _decodes[types, q_len, num_heads, page_size, row, packed, paged, device]
    except Exception:  # what is no tensor may raise anything
        pass
    config = decode(q, kv_cache, out, compute, paged, max_q_len)
    kernel = _found(config, out)  # says what is wrong with what has no key
    return remember(_decodes, (types, q_len, num_heads, page_size, row, packed, paged, device), kernel)


def decode(  # noqa: PLR0917 (the tensors and options that the op selects by)
    q: Packed,
    kv_cache: Packed,
    out: Tensor | None,
    compute_dtype: DTypeLike | None,
    paged: bool,
    max_q_len: int = 0,
) -> Config:
    """The config of a dense decode; ``max_q_len`` is not 0 where requests have different numbers of query tokens."""
    most = count("max_q_len", max_q_len)
    dims = ("1", "num_tokens") if most else ("batch", "q_len")
    _, q_len, num_heads, _ = extents("q", first(q), *dims, "num_heads", _WIDTH)
    page_size = _page_size(kv_cache)
    arch = arch_for("q", first(q))
    try:
        attention = _attention(q, "kv_cache", kv_cache, out)
    except DTypeError as error:
        if error.argument != "kv_dtype":  # which decode does not have
            raise
        raise _other_rows(kv_cache, arch) from error
    return {
        "op": "decode",
        "arch": arch,
        **attention,
        "compute_dtype": element_name(compute_dtype),
        "kv_layout": "paged" if paged else "contiguous",
        "page_size": page_size if paged else None,
        "num_heads": num_heads,
        "q_len": most or q_len,
    }


def _other_rows(kv_cache: Packed, arch: str) -> ShapeError:
    """What a dense decode says of bytes of formats that it does not read, whichever of them it is."""
    width = sum(part.shape[-1] for part in (kv_cache if isinstance(kv_cache, tuple) else (kv_cache,)))
    read = {(variant.baked["kv_dtype"], variant.baked["d_qk"]) for variant in variants(op="decode", arch=arch)}
    rows = rows_of_bytes(form for form in FORMATS if (form.name, form.d_qk) in read)
    return ShapeError("kv_cache", f"rows of {width} bytes", f"{rows}; sparse_decode reads the others")


def sparse_decode(  # noqa: PLR0917 (the tensors and options that the op selects by)
    q: Packed,
    kv_cache: Packed,
    indices: Tensor,
    extra_kv_cache: Packed | None,
    out: Tensor | None,
    kv_dtype: DTypeLike | None,
    extra_kv_dtype: DTypeLike | None,
) -> Config:
    """The config of a sparse decode."""
    _, q_len, num_heads, _ = extents("q", first(q), "batch", "q_len", "num_heads", _WIDTH)
    attention = _attention(q, "kv_cache", kv_cache, out, kv_dtype)
    return {
        "op": "sparse_decode",
        "arch": arch_for("q", first(q)),
        **attention,
        **_extra_format(extra_kv_cache, attention["kv_dtype"], extra_kv_dtype),
        "page_size": _page_size(kv_cache),
        "num_heads": num_heads,
        "q_len": q_len,
        "topk": extents("indices", indices, "batch", "q_len", "topk")[2],
    }


def sparse_prefill(q: Packed, kv: Packed, indices: Tensor, out: Tensor | None) -> Config:
    """The config of a sparse prefill; ``q_len`` stays open, because every prompt has another.

    Rows of the latent alone are served by a kernel for them, or else by one that gets a rope part of zeros.
    """
    _, row = extents("kv", first(kv), "kv_len", _WIDTH)
    _, num_heads, query = extents("q", first(q), "q_len", "num_heads", _WIDTH)
    arch = arch_for("q", first(q))
    traits = _attention(q, "kv", kv, out)
    is_bare = row == LATENT and traits.get("d_qk") == LATENT
    if is_bare and not (query == row and variants(op="sparse_prefill", arch=arch, d_qk=LATENT)):
        del traits["d_qk"]
    return {
        "op": "sparse_prefill",
        "arch": arch,
        **traits,
        "num_heads": num_heads,
        "topk": extents("indices", indices, "q_len", "topk")[1],
    }


def merge_states(o: Tensor, out: Tensor | None, out_dtype: DTypeLike | None) -> Config:
    """The config of a merge; ``out`` or ``out_dtype`` says what is written, otherwise the type of ``o``."""
    _, _, num_heads, head_dim = extents("o", o, "num_states", "num_tokens", "num_heads", "head_dim")
    in_dtype = dtype_name("o", o)
    own = in_dtype if out is None else dtype_name("out", out)
    return {
        "op": "merge_states",
        "arch": arch_for("o", first(o)),
        "in_dtype": in_dtype,
        "out_dtype": own if out_dtype is None else element_name(out_dtype),
        "num_heads": num_heads,
        "head_dim": head_dim,
    }


def store_kv(latent: Tensor, kv_cache: Packed, kv_dtype: DTypeLike | None) -> Config:
    """The config of a cache write."""
    extents("latent", latent, "num_tokens", str(LATENT))
    return {
        "op": "store_kv",
        "arch": arch_for("latent", first(latent)),
        "in_dtype": dtype_name("latent", latent),
        **_cache_traits("kv_cache", kv_cache, kv_dtype),
        "page_size": _page_size(kv_cache),
    }


def gather_kv(kv_cache: Packed, out: Packed | None, kv_dtype: DTypeLike | None, out_dtype: DTypeLike | None) -> Config:
    """The config of a cache read; a quantised cache becomes ``bf16`` unless ``out`` or ``out_dtype`` says otherwise."""
    traits = _cache_traits("kv_cache", kv_cache, kv_dtype)
    stored = traits["kv_dtype"]
    own = stored if isinstance(stored, str) and stored in get_args(OutDType) else "bf16"
    if out is not None:
        own = dtype_name("out", first(out))
    return {
        "op": "gather_kv",
        "arch": arch_for("kv_cache", first(kv_cache)),
        **traits,
        "out_dtype": own if out_dtype is None else element_name(out_dtype),
        "page_size": _page_size(kv_cache),
    }


def to_global_indices(token_indices: Tensor, page_size: object) -> Config:
    """The config of an index translation."""
    _, topk = extents("token_indices", token_indices, "num_tokens", "topk")
    return {
        "op": "to_global_indices",
        "arch": arch_for("token_indices", first(token_indices)),
        "page_size": page_size,
        "topk": topk,
    }


def _attention(q: Packed, kv_name: str, kv: Packed, out: Tensor | None, kv_dtype: DTypeLike | None = None) -> Config:
    q_dtype, traits = dtype_name("q", first(q)), _cache_traits(kv_name, kv, kv_dtype)
    d_qk, shape = traits.get("d_qk"), list(first(q).shape)
    if d_qk and kv_name == "kv_cache" and kv_dtype is None and first(q) is q and shape[-1] != d_qk:
        accepts = f"[batch, q_len, num_heads, {d_qk}], because the rows of kv_cache have d_qk = {d_qk}"
        raise ShapeError("q", f"shape {shape}", accepts)
    return {
        "q_dtype": q_dtype,
        **traits,
        "out_dtype": None if out is None else dtype_name("out", out),
    }


def _cache_traits(argument: str, cache: Packed, kv_dtype: DTypeLike | None = None) -> Config:
    """The traits that the format of a cache has, which ``kv_dtype`` names where its elements do not tell."""
    named = element_name(kv_dtype)
    form = cache_format(argument, cache, named)
    widths = {name: width for name, width in (("d_qk", form.d_qk), ("d_v", form.d_v)) if width != WIDTHS[name]}
    return {"kv_dtype": form.name if named is None else named, **widths}


def _extra_format(cache: Packed | None, kv_dtype: object, named: DTypeLike | None) -> Config:
    """The format of a second cache, where its rows or its name say another one than the first has."""
    asked = element_name(named)
    if cache is not None:
        form = cache_format("extra_kv_cache", cache, kv_dtype if asked is None else asked)
        asked = form.name if asked is None else asked
    if asked is None:
        return {}
    return {} if type(asked) is type(kv_dtype) is str and asked == kv_dtype else {"extra_kv_dtype": asked}


def _page_size(kv_cache: Packed) -> int:
    return extents("kv_cache", first(kv_cache), "num_pages", "page_size", "row")[1]
