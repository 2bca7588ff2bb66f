"""``lookup``: from a config to the variant that serves it, bound to the kernel class of its op."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mla_kernels._types import (
    FIELDS,
    Arch,
    ComputeDType,
    ExtraKvDType,
    InDType,
    KvDType,
    KvLayout,
    Load,
    OpName,
    OutDType,
    QDType,
    Schedule,
)
from mla_kernels.devices.machine import current_arch
from mla_kernels.errors import VariantNotFoundError
from mla_kernels.kernels.base import Kernel, limits
from mla_kernels.kernels.ops import KERNELS
from mla_kernels.payloads.discovery import Payload, payloads
from mla_kernels.payloads.registry import Value, Variant
from mla_kernels.resolve.obstacle import obstacle
from mla_kernels.resolve.search import search
from mla_kernels.tensors import DTypeLike

_MOST_CACHED = 4096
_cache: dict[tuple[object, ...], Kernel] = {}


def lookup(
    *,
    op: OpName,
    arch: Arch | None = None,
    q_dtype: QDType | DTypeLike | None = None,
    kv_dtype: KvDType | DTypeLike | None = None,
    out_dtype: OutDType | DTypeLike | None = None,
    in_dtype: InDType | DTypeLike | None = None,
    load: Load | None = None,
    schedule: Schedule | None = None,
    d_qk: int | None = None,
    d_v: int | None = None,
    extra_kv_dtype: ExtraKvDType | DTypeLike | None = None,
    compute_dtype: ComputeDType | DTypeLike | None = None,
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
        What the kernel runs on: ``cpu``, ``sm90a`` (``sm90`` means the same) or ``sm100f`` (or ``sm100``). By default,
        it is what serves the current CUDA device, or else the host's. Without an arch, or with one of CUDA, the CUDA
        driver is initialised, and a process forked later cannot use it.
    q_dtype : str or dtype, optional
        Element type of the queries: ``fp32``, ``fp16``, ``bf16`` or ``e4m3``. A dtype of torch or NumPy and its name
        are accepted wherever a dtype is: ``torch.bfloat16``, ``"float8_e4m3fn"``.
    kv_dtype : str or dtype, optional
        Element type of the cache, or the name of a format; by default the type of the input.
    out_dtype : str or dtype, optional
        Element type of the output; by default the type of the input, and ``bf16`` for an input of ``e4m3``.
    in_dtype : str or dtype, optional
        Element type of the input of an op that has no queries.
    load : str, optional
        How KV is read; by default the variant of highest priority decides.
    schedule : str, optional
        How the work is split; by default the variant of highest priority decides.
    d_qk : int, optional
        Columns of queries and keys; by default 576, as in DeepSeek V3 (``mla_kernels.formats.WIDTHS``), or those of
        ``kv_dtype`` where that format has no others: 512 for ``fp8_ds_v4``.
    d_v : int, optional
        How many of these columns are the value; by default 512.
    extra_kv_dtype : str or dtype, optional
        Format of the second cache of a sparse decode; by default the same as the first one's.
    compute_dtype : str or dtype, optional
        ``e4m3`` for a dense decode that multiplies in e4m3, to which it rounds Q and P; by default ``exact``, which
        rounds neither. No lookup finds a kernel of the other kind.
    kv_layout : str, optional
        ``paged``, where KV is reached through a block table, or ``contiguous``.
    page_size : int, optional
        Tokens of a page. This and the other numbers become exact limits of the kernel where they are given, and stay
        open within what the variant accepts where they are left out.
    num_heads : int, optional
        Query heads.
    q_len : int, optional
        New tokens of each request.
    topk : int, optional
        Indices of each token, for sparse attention.
    head_dim : int, optional
        Columns of a head, for ``merge_states``.

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
    key: tuple[object, ...] = (
        op,
        current_arch() if arch is None else arch,
        q_dtype,
        kv_dtype,
        kv_layout,
        page_size,
        num_heads,
        q_len,
    )
    if (  # fields that are seldom named cost a comparison each where they are left out
        out_dtype is not None
        or in_dtype is not None
        or load is not None
        or schedule is not None
        or d_qk is not None
        or d_v is not None
        or extra_kv_dtype is not None
        or compute_dtype is not None
        or topk is not None
        or head_dim is not None
    ):
        key += (out_dtype, in_dtype, load, schedule, d_qk, d_v, extra_kv_dtype, compute_dtype, topk, head_dim)
    try:
        return _cache[key]
    except Exception:  # a value without a hash, or whose comparison fails, is refused by the search
        pass
    given = locals()
    kernel = find({field: given[field] for field in FIELDS})
    return remember(_cache, key, kernel)


def remember(cache: dict[tuple[object, ...], Kernel], key: tuple[object, ...], kernel: Kernel) -> Kernel:
    """Keep a kernel for the next call with the same key; a key without a hash is looked up again each time."""
    if len(cache) >= _MOST_CACHED:
        cache.clear()
    try:
        return cache.setdefault(key, kernel)
    except Exception:
        return kernel


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
    bind = partial(payload.kernel, variant.name, variant.baked)
    return KERNELS[variant.op](variant, config, bind, limits(variant, config))
