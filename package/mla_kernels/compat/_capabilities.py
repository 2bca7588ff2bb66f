"""What decode and sparse decode serve, in an engine's words; every answer is read from the installed payloads."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mla_kernels as mla
from mla_kernels.devices.machine import arch_of
from mla_kernels.errors import UnsupportedError, ValueRangeError
from mla_kernels.formats import HEAD_DIM, LATENT
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Choices, Range, Variant
from mla_kernels.tensors import element_name, stored_name

CACHE_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp8": "e4m3", "fp8_e4m3": "e4m3"}
"""vLLM's names of cache formats that have one element type; ``auto`` means that of the model."""

SPARSE_CACHE_DTYPES = {"bfloat16": "bf16", "fp8": "fp8_ds_mla", "fp8_ds_mla": "fp8_ds_mla"}
"""vLLM's names of the cache formats of the sparse backend, whose layers turn ``fp8`` into ``fp8_ds_mla``."""

_ALWAYS: Mapping[str, Mapping[str, object]] = {
    "decode": {"kv_layout": "paged", "compute_dtype": "exact"},
    "sparse_decode": {"out_dtype": "bf16", "d_qk": HEAD_DIM, "d_v": LATENT, "extra_kv_dtype": "same"},
}
"""What the backend of an op always asks for."""


@dataclass(frozen=True, slots=True)
class Words:
    """How an engine names what it asks for.

    Attributes
    ----------
    cache_dtypes : Mapping[str, Mapping[str, str]]
        By the op, its names of cache formats, and ours.
    page_size : str
        Its name of the number of tokens of a page.
    """

    cache_dtypes: Mapping[str, Mapping[str, str]]
    page_size: str


VLLM = Words({"decode": CACHE_DTYPES, "sparse_decode": SPARSE_CACHE_DTYPES}, "block_size")


def gpu_archs(op: str = "decode") -> tuple[str, ...]:
    """The archs of the GPU payloads that are installed and have the op."""
    return tuple(arch.name for arch in payloads().archs if arch.device == "cuda" and served((arch.name,), op))


def served(archs: Iterable[str], op: str = "decode", **config: object) -> tuple[Variant, ...]:
    """The variants that attend to a paged cache on any of the archs, within the fields of ``config`` that are set."""
    stated = {field: value for field, value in config.items() if value is not None}
    if any(stated.get(field, value) != value for field, value in _ALWAYS[op].items()):
        return ()
    return tuple(
        variant
        for arch in archs
        for variant in mla.variants(op=op, arch=arch, **{**_ALWAYS[op], **stated})
        if variant.baked["kv_dtype"] in VLLM.cache_dtypes[op].values()
    )


def dtypes(archs: Iterable[str]) -> list[str]:
    """Element types of models, by torch's names."""
    return sorted({stored_name(str(variant.baked["out_dtype"])) for variant in served(archs)})


def cache_dtypes(archs: Iterable[str], op: str = "decode", words: Words = VLLM) -> list[str]:
    """Cache formats by the engine's names."""
    found = {variant.baked["kv_dtype"] for variant in served(archs, op)}
    names = words.cache_dtypes[op]
    return ["auto", *(name for name, element in names.items() if element in found)] if found else []


def head_sizes(archs: Iterable[str]) -> list[int]:
    """Columns of a row of the cache."""
    return sorted({int(variant.baked["d_qk"]) for variant in served(archs)})


def block_sizes(archs: Iterable[str], cache_dtype: str | None = None, op: str = "decode") -> list[tuple[int, bool]]:
    """Tokens of a block that every arch takes, each with whether its multiples are served too.

    Without a format, every format of an arch takes them.
    """
    archs = tuple(archs)
    formats = cache_dtypes(archs, op)[1:] if cache_dtype in {None, "auto"} else [cache_dtype]
    elements = {VLLM.cache_dtypes[op][str(name)] for name in formats}
    each = (_steps(served((arch,), op, kv_dtype=element)) for arch in archs for element in sorted(elements))
    steps = [found for found in each if found]
    sizes = sorted({step for found in steps for step in found}, reverse=True)
    common = [(size, many) for size, many in sizes if all(_takes(found, size, many) for found in steps)]
    return [each for each in common if not any(other != each and _takes([other], *each) for other in common)]


def preferred_block_size(archs: Iterable[str], default: int) -> int:
    """The block size to use where the user names none: the default where the preferred kernel takes it."""
    preferred = max(served(archs), key=lambda variant: variant.priority, default=None)
    if preferred is None or default in (domain := preferred.accepts["page_size"]):
        return default
    return domain.min if isinstance(domain, Range) else max(int(value) for value in domain.values)


def decode_takes(parameter: str) -> bool:
    """Whether dense decode has a parameter: ``attn_sink`` is a sink, ``batch_invariant`` and ``lse`` say themselves."""
    return parameter in inspect.signature(mla.decode).parameters


def quantised_queries(archs: Iterable[str]) -> bool:
    """Whether an e4m3 cache is read with e4m3 queries, instead of those of the model's type."""
    return bool(served(archs, kv_dtype="e4m3", q_dtype="e4m3"))


def arch_of_capability(major: int, minor: int, op: str = "decode") -> str | None:
    """The arch of an installed payload that serves a GPU."""
    archs = gpu_archs(op)
    return arch_of((major, minor), [arch for arch in payloads().archs if arch.name in archs])


def config_of(
    arch: str,
    dtype: object,
    cache_dtype: str | None,
    head_size: int,
    rank: int | None,
    *,
    op: str = "decode",
    words: Words = VLLM,
) -> dict[str, object]:
    """The traits of the kernel that a layer needs.

    Parameters
    ----------
    arch : str
    dtype : dtype
        Of the model.
    cache_dtype : str, optional
        By the engine's name; None and ``auto`` mean ``dtype``.
    head_size : int
        Columns of a row of the cache.
    rank : int, optional
        How many of these columns are the value.
    op : str
    words : Words
        The engine's names.

    Raises
    ------
    UnsupportedError
        The cache has a format that no kernel of the op reads.
    """
    own = element_name(dtype)
    if cache_dtype in {None, "auto"}:
        cache = own
    elif cache_dtype in (known := cache_dtypes((arch,), op, words)):
        cache = words.cache_dtypes[op][str(cache_dtype)]
    else:
        raise UnsupportedError("kv_cache_dtype", repr(cache_dtype), ", ".join(known))
    query = "e4m3" if cache == "e4m3" and quantised_queries((arch,)) else own
    config: dict[str, object] = {"q_dtype": query, "kv_dtype": cache, "out_dtype": own, "d_qk": head_size}
    return config if rank is None else config | {"d_v": rank}


def refusal(
    arch: str,
    *,
    op: str = "decode",
    dtype: object,
    cache_dtype: str | None,
    head_size: int,
    rank: int | None = None,
    block_size: int | None = None,
    num_heads: int | None = None,
    q_len: int | None = None,
    words: Words = VLLM,
) -> UnsupportedError | None:
    """What a layer asks for that its arch does not serve, and what would be served; None where a kernel does.

    Parameters
    ----------
    arch, op : str
    dtype, cache_dtype, head_size, rank, words
        As in ``config_of``.
    block_size, num_heads, q_len : int, optional
    """
    try:
        config = config_of(arch, dtype, cache_dtype, head_size, rank, op=op, words=words)
    except (UnsupportedError, ValueRangeError) as error:
        return UnsupportedError(error.argument, error.got, error.accepts)
    asked: dict[str, dict[str, object]] = {
        "head_size": {name: config[name] for name in ("d_qk", "d_v") if name in config},
        "kv_cache_dtype": {name: config[name] for name in ("q_dtype", "kv_dtype", "out_dtype")},
        words.page_size: {"page_size": block_size},
        "num_heads": {"num_heads": num_heads},
        "q_len": {"q_len": q_len},
    }
    got = {
        "head_size": f"{head_size}" if rank is None else f"{head_size}, of which {rank} are the value",
        "kv_cache_dtype": f"{cache_dtype!r} with {str(dtype).removeprefix('torch.')}",
        words.page_size: f"{block_size}",
        "num_heads": f"{num_heads}",
        "q_len": f"{q_len}",
    }
    known: dict[str, object] = {}
    for name, fields in asked.items():
        fitting = served((arch,), op, **known)
        try:
            found = served((arch,), op, **known, **fields)
        except ValueRangeError:  # a value that no variant of any arch has
            found = ()
        if not found:
            return UnsupportedError(name, got[name], _accepted(name, fields, fitting, words.cache_dtypes[op]))
        known |= {field: value for field, value in fields.items() if value is not None}
    return None


def combination(
    capability: tuple[int, int], block_size: int | None, *, op: str = "decode", cache_dtype: str | None, **asked: Any
) -> str | None:
    """Why no kernel of a GPU serves a combination, with what would be served; None where one does.

    Parameters
    ----------
    capability : tuple[int, int]
    block_size : int, optional
        vLLM parts a block into smaller ones that a kernel reads.
    op, cache_dtype, **asked
        As in ``refusal``.
    """
    arch = arch_of_capability(*capability, op)
    if arch is None:
        archs = ", ".join(gpu_archs(op)) or "none"
        return f"no installed payload of mla-kernels serves this GPU; those installed serve {archs}"
    error = refusal(arch, op=op, cache_dtype=cache_dtype, **asked)
    if error is None and block_size is not None:
        parts = block_sizes((arch,), cache_dtype, op)
        if block_size <= 0 or all(block_size % size for size, _ in parts):
            error = refusal(arch, op=op, cache_dtype=cache_dtype, block_size=block_size, **asked)
    return None if error is None else str(error)


def _accepted(name: str, fields: Iterable[str], fitting: Iterable[Variant], names: Mapping[str, str]) -> str:
    """What the variants that fit otherwise have in the fields."""
    if name == "kv_cache_dtype":
        pairs = {(str(v.baked["kv_dtype"]), str(v.baked["out_dtype"])) for v in fitting}
        return " or ".join(
            f"{each} with {stored_name(model)}"
            for kv, model in sorted(pairs)
            for each in (*(("auto",) if kv == model else ()), *(own for own, element in names.items() if element == kv))
        )
    if name == "head_size":
        return " or ".join(f"{d_qk}, of which {d_v} are the value" for d_qk, d_v in sorted(_widths(fitting)))
    (field,) = fields
    return " or ".join(dict.fromkeys(str(variant.accepts[field]) for variant in fitting if field in variant.accepts))


def _widths(variants: Iterable[Variant]) -> set[tuple[int, int]]:
    return {(int(variant.baked["d_qk"]), int(variant.baked["d_v"])) for variant in variants}


def _steps(variants: Iterable[Variant]) -> list[tuple[int, bool]]:
    """The numbers that the variants' pages may have, or be multiples of."""
    found: dict[tuple[int, bool], None] = {}
    for variant in variants:
        domain = variant.accepts["page_size"]
        if isinstance(domain, Range):
            found[domain.multiple_of, True] = None
        elif isinstance(domain, Choices):
            found |= {(int(value), False): None for value in domain.values}
    return list(found)


def _takes(steps: Iterable[tuple[int, bool]], size: int, many: bool) -> bool:
    """Whether blocks of ``size``, or of all of its multiples, are among those of ``steps``."""
    return any(size % step == 0 if multiples else size == step and not many for step, multiples in steps)
