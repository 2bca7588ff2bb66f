"""A plan in the tensors of FlashMLA's metadata.

``tile_scheduler_metadata`` holds the bytes of a plan's buffer, padded to whole rows, and nothing is kept beside them:
its owner may copy them into a buffer of a CUDA graph and pass a slice of that. ``num_splits`` tells the batch by its
length; what it holds is not read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import torch

from mla_kernels.errors import DeviceError, DTypeError, ShapeError
from mla_kernels.frameworks import device_of
from mla_kernels.kernel import Kernel, Plan

ROW = 8
"""Numbers in a row of ``tile_scheduler_metadata``."""

Shape: TypeAlias = tuple[int, int, int]
"""Batch, query tokens, and the query heads of one KV head: what a plan depends on beside lengths."""


def schedule(kernel: Kernel, cache_seqlens: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """Plan a step into new tensors, int32 ``[parts, 8]`` and ``[batch + 1]``, on the device of its lengths."""
    parts = _parts(kernel, shape, device_of("cache_seqlens", cache_seqlens)[1])
    scheduled = cache_seqlens.new_empty(parts, ROW, dtype=torch.int32)
    kernel.plan(cache_seqlens, out=_plan(scheduled, kernel, shape))
    return scheduled, scheduled.new_zeros(shape[0] + 1)


def plan_in(scheduled: object, num_splits: object, kernel: Kernel, shape: Shape, q: torch.Tensor) -> Plan:
    """The plan that ``schedule`` wrote, possibly copied since.

    Raises
    ------
    DTypeError, DeviceError, ShapeError
        The tensors are not what ``schedule`` makes for ``shape`` on the device of ``q``.
    """
    batch, q_len, num_heads = shape
    wanted = {
        "tile_scheduler_metadata": (scheduled, (_parts(kernel, shape, device_of("q", q)[1]), ROW)),
        "num_splits": (num_splits, (batch + 1,)),
    }
    for name, (tensor, extents) in wanted.items():
        if not isinstance(tensor, torch.Tensor):
            raise DTypeError(name, type(tensor).__name__, "what get_mla_metadata gives")
        if tensor.dtype != torch.int32:
            raise DTypeError(name, str(tensor.dtype).removeprefix("torch."), "int32")
        if tensor.device != q.device:
            raise DeviceError(name, str(tensor.device), f"{q.device}, as q has")
        if tensor.shape != extents:
            what = f"{batch} requests of {q_len * num_heads} query rows a KV head"
            accepts = f"{list(extents)}, as get_mla_metadata gives for {what}"
            raise ShapeError(name, f"shape {list(tensor.shape)}", accepts)
    return _plan(scheduled, kernel, shape)


def _plan(buffer: object, kernel: Kernel, shape: Shape) -> Plan:
    return Plan(buffer, kernel.variant.name, *shape, max_splits=0, batch_invariant=False)


@lru_cache(maxsize=1024)
def _parts(kernel: Kernel, shape: Shape, device: int) -> int:
    batch, q_len, num_heads = shape
    size = kernel.plan_size(batch=batch, q_len=q_len, num_heads=num_heads, device=device)
    return -(-size // (ROW * torch.int32.itemsize))
