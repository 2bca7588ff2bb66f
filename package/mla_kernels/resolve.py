"""From a config to the kernel that serves it: equality on baked traits, membership on accepted ones, then priority."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from mla_kernels import _launcher
from mla_kernels._types import (
    DTYPES,
    FIELDS,
    KV_LAYOUTS,
    Arch,
    InDType,
    KvDType,
    KvLayout,
    Load,
    OpName,
    OutDType,
    QDType,
    Schedule,
)
from mla_kernels.attention_kernels import DecodeKernel, SparseDecodeKernel, SparsePrefillKernel
from mla_kernels.cache_kernels import GatherKvKernel, MergeStatesKernel, StoreKvKernel, ToGlobalIndicesKernel
from mla_kernels.devices import current_arch
from mla_kernels.discovery import Payload, payloads
from mla_kernels.errors import ValueRangeError, VariantNotFoundError
from mla_kernels.explanation import Explanation, explained, obstacle
from mla_kernels.kernel import Kernel, limits
from mla_kernels.registry import Value, Variant

KERNELS: dict[str, type[Kernel]] = {
    "decode": DecodeKernel,
    "sparse_decode": SparseDecodeKernel,
    "sparse_prefill": SparsePrefillKernel,
    "merge_states": MergeStatesKernel,
    "store_kv": StoreKvKernel,
    "gather_kv": GatherKvKernel,
    "to_global_indices": ToGlobalIndicesKernel,
}
_MOST_CACHED = 4096
_cache: dict[tuple[object, ...], Kernel] = {}


def lookup(
    *,
    op: OpName,
    arch: Arch | None = None,
    q_dtype: QDType | None = None,
    kv_dtype: KvDType | None = None,
    out_dtype: OutDType | None = None,
    in_dtype: InDType | None = None,
    load: Load | None = None,
    schedule: Schedule | None = None,
    kv_layout: KvLayout | None = None,
    page_size: int | None = None,
    num_heads: int | None = None,
    q_len: int | None = None,
    topk: int | None = None,
    head_dim: int | None = None,
) -> Kernel:
    """Find the kernel that serves a config; the answer is cached.

    Parameters
    ----------
    op : str
        What is computed: ``decode``, ``sparse_decode``, ``sparse_prefill``, ``merge_states``, ``store_kv``,
        ``gather_kv`` or ``to_global_indices``.
    arch : str, optional
        What it runs on, such as ``cpu``; by default what serves the current CUDA device, or else the host's. Without an
        arch, or with one of CUDA, the CUDA driver is initialised, and a process forked later cannot use it.
    q_dtype, kv_dtype, out_dtype, in_dtype : str, optional
        Element types: ``fp32 fp16 bf16 e4m3``, and ``fp8_ds_mla`` for the 656-byte cache row. Where ``q_dtype`` or
        ``in_dtype`` is given, the cache and the output have the same type unless stated (an output of e4m3 is bf16).
    load, schedule : str, optional
        How KV is read and how the work is cut; left out, the variant of highest priority decides.
    kv_layout : str, optional
        ``paged``, where KV is reached through a block table, or ``contiguous``.
    page_size, num_heads, q_len, topk, head_dim : int, optional
        Numbers of the problem. What is given becomes an exact limit of the kernel, what is left out stays open within
        what the variant accepts.

    Returns
    -------
    Kernel
        Ready to launch on tensors; a field that was left out matches every variant.

    Raises
    ------
    ValueRangeError
        A name or number is not one that any variant of the op could have.
    VariantNotFoundError
        No variant serves the config; the message lists the nearest and how to add one.

    Examples
    --------
    >>> import mla_kernels as mla
    >>> mla.lookup(op="decode", arch="cpu", q_dtype="bf16", page_size=64)
    <Kernel cpu_decode_qbf16_kvbf16_obf16_direct_split, page_size=64>
    """
    key = (
        op,
        arch or current_arch(),
        q_dtype,
        kv_dtype,
        out_dtype,
        in_dtype,
        load,
        schedule,
        kv_layout,
        page_size,
        num_heads,
        q_len,
        topk,
        head_dim,
    )
    try:
        return _cache[key]
    except (KeyError, TypeError):
        pass  # and only then search, so that a refusal is raised on its own
    kernel = find(dict(zip(FIELDS, key, strict=True)))
    if len(_cache) >= _MOST_CACHED:
        _cache.clear()
    return _cache.setdefault(key, kernel)


def find(config: Mapping[str, object]) -> Kernel:
    """Find the kernel that serves a config, without the cache; the errors are those of ``lookup``."""
    op, wanted, variant = search(config)
    payload = payloads().found[variant.payload] if variant else None
    if variant is None or payload is None or (payload.registry.device != "cpu" and obstacle(variant.arch)):
        raise VariantNotFoundError(str(explained(op, wanted)))
    return bound(payload, variant, wanted)


def bound(payload: Payload, variant: Variant, config: Mapping[str, Value]) -> Kernel:
    """The kernel of one variant of a payload, within the limits that a config sets."""
    dtypes = {trait: value for trait, value in variant.baked.items() if trait.endswith("_dtype")}
    bind = partial(payload.library.kernel, variant.name, dtypes, device=payload.registry.device)
    return KERNELS[variant.op](variant, config, bind, limits(variant, config))


def search(config: Mapping[str, object]) -> tuple[str, dict[str, Value], Variant | None]:
    """The op, the completed config, and the variant of highest priority that serves it."""
    wanted = completed(config)
    op = str(wanted.pop("op"))
    return op, wanted, payloads().indices[op].best(wanted)


def variants(**filters: object) -> tuple[Variant, ...]:
    """List the variants that serve a partial config.

    Parameters
    ----------
    **filters
        The fields of ``lookup``, none of them required: ``variants(op="decode", arch="cpu")``.

    Returns
    -------
    tuple[Variant, ...]
        In order of op, then of preference.

    Raises
    ------
    ValueRangeError
        A field or value is not one that any variant could have.

    Examples
    --------
    >>> import mla_kernels as mla
    >>> for variant in mla.variants(op="gather_kv", arch="cpu", out_dtype="fp32"):
    ...     print(variant.name)
    cpu_gather_kv_kve4m3_ofp32
    cpu_gather_kv_kvfp32_ofp32
    cpu_gather_kv_kvfp8_ds_mla_ofp32
    """
    wanted = checked(filters)
    ops = (wanted.pop("op"),) if "op" in wanted else tuple(_launcher.OPS)
    return tuple(variant for op in ops for variant in payloads().indices[str(op)].matching(wanted))


def explain(config: Mapping[str, object] | None = None, /, **fields: object) -> Explanation:
    """Say which variant serves a config and why, or why none does.

    Parameters
    ----------
    config : Mapping, optional
        The fields of ``lookup`` by name; they may be given as keywords instead.

    Returns
    -------
    Explanation
        Prints as text; ``chosen`` is the variant or ``None``.

    Raises
    ------
    ValueRangeError
        A field or value is not one that any variant could have.

    Examples
    --------
    >>> import mla_kernels as mla
    >>> print(mla.explain(op="decode", arch="cpu", q_dtype="bf16"))
    op=decode arch=cpu q_dtype=bf16 kv_dtype=bf16 out_dtype=bf16
    is served by cpu_decode_qbf16_kvbf16_obf16_direct_split: priority 0, the only match
    """
    wanted = completed({**(config or {}), **fields})
    return explained(str(wanted.pop("op")), wanted)


def completed(config: Mapping[str, object]) -> dict[str, Value]:
    """Check a config that names its op, and fill in the arch and the element types that follow from the input's."""
    op = _name("op", config.get("op"), _launcher.OPS)
    wanted = checked(config)
    index = payloads().indices[op]
    for field in wanted if index.variants else ():
        _name(f"config field of {op}", field, ("op", *index.fields))
    if "arch" not in wanted:
        wanted["arch"] = current_arch()
    own = wanted.get("q_dtype", wanted.get("in_dtype"))
    if own is not None:
        for field, value in {"kv_dtype": own, "out_dtype": "bf16" if own == "e4m3" else own}.items():
            if field in index.fields:
                wanted.setdefault(field, value)
    return {field: wanted[field] for field in FIELDS if field in wanted}


def checked(config: Mapping[str, object]) -> dict[str, Value]:
    """Refuse names and values that no variant could have; drop what is ``None``, and order the rest."""
    for field in config:
        _name("config field", field, FIELDS)
    return {field: _value(field, config[field]) for field in FIELDS if config.get(field) is not None}


def _value(field: str, value: object) -> Value:
    if field == "op":
        return _name(field, value, _launcher.OPS)
    if field.endswith("_dtype"):
        return _name(field, value, DTYPES)
    if field == "kv_layout":
        return _name(field, value, KV_LAYOUTS)
    if field in ("arch", "load", "schedule"):
        if not isinstance(value, str):
            raise ValueRangeError(field, repr(value), "a name")
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueRangeError(field, repr(value), "an integer from 0")
    return value


def _name(argument: str, value: object, names: Collection[str]) -> str:
    if not isinstance(value, str) or value not in names:
        raise ValueRangeError(argument, repr(value), ", ".join(names))
    return value
