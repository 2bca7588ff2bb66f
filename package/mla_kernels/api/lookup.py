"""``lookup``: from a config to the variant that serves it, bound to the kernel class of its op."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mla_kernels._types import FIELDS, Arch, InDType, KvDType, KvLayout, Load, OpName, OutDType, QDType, Schedule
from mla_kernels.devices.machine import current_arch
from mla_kernels.errors import VariantNotFoundError
from mla_kernels.kernels.base import Kernel, limits
from mla_kernels.kernels.ops import KERNELS
from mla_kernels.payloads.discovery import Payload, payloads
from mla_kernels.payloads.registry import Value, Variant
from mla_kernels.resolve.obstacle import obstacle
from mla_kernels.resolve.search import search

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
    d_qk: int | None = None,
    d_v: int | None = None,
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
    d_qk, d_v : int, optional
        Columns of queries and keys, and how many of them are the value; left out, they are those of DeepSeek V3:
        ``mla_kernels.formats.WIDTHS``.
    kv_layout : str, optional
        ``paged``, where KV is reached through a block table, or ``contiguous``.
    page_size, num_heads, q_len, topk, head_dim : int, optional
        Numbers of the problem. What is given becomes an exact limit of the kernel, what is left out stays open within
        what the variant accepts.

    Returns
    -------
    Kernel
        Ready to launch on tensors; a field that was left out, but for the widths, matches every variant.

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
        d_qk,
        d_v,
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
        from mla_kernels.resolve.explanation import explained  # a lookup that succeeds has no use for it

        raise VariantNotFoundError(str(explained(op, wanted)))
    return bound(payload, variant, wanted)


def bound(payload: Payload, variant: Variant, config: Mapping[str, Value]) -> Kernel:
    """The kernel of one variant of a payload, within the limits that a config sets."""
    bind = partial(payload.library.kernel, variant.name, variant.baked, device=payload.registry.device)
    return KERNELS[variant.op](variant, config, bind, limits(variant, config))
