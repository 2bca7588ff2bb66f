"""Finds the variant that serves a config: equality on baked traits, membership on accepted ones, then priority."""

from __future__ import annotations

from collections.abc import Mapping

from mla_kernels import _launcher
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Value, Variant
from mla_kernels.resolve.config import checked, completed, with_defaults


def search(config: Mapping[str, object]) -> tuple[str, dict[str, Value], Variant | None]:
    """The op, the completed config, and the variant of highest priority that serves it."""
    wanted = completed(config)
    op = str(wanted.pop("op"))
    index = payloads().indices[op]
    return op, wanted, index.best(with_defaults(wanted, index.fields))


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
    >>> for variant in mla.variants(op="gather_kv", arch="cpu", out_dtype="fp32", d_qk=576):
    ...     print(variant.name)
    cpu_gather_kv_kve4m3_ofp32
    cpu_gather_kv_kvfp32_ofp32
    cpu_gather_kv_kvfp8_ds_mla_ofp32
    cpu_gather_kv_kvnvfp4_ds_mla_ofp32
    """
    wanted = checked(filters)
    ops = (wanted.pop("op"),) if "op" in wanted else tuple(_launcher.OPS)
    return tuple(variant for op in ops for variant in payloads().indices[str(op)].matching(wanted))
