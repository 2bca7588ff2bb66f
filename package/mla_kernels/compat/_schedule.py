"""The schedules that FlashMLA's callers carry: a plan in two tensors, or an object that the first call fills.

``get_mla_metadata`` with arguments serves both. Older callers pass on its two tensors, or copies of them. Callers of
FlashMLA since 9241ae3 and vLLM 0.33 pass on the first result alone, as a ``FlashMLASchedMeta``. That result is both.

``tile_scheduler_metadata`` holds the bytes of a plan's buffer, padded to an even number of rows, and nothing else is
kept: its owner may copy them into a buffer of a CUDA graph and pass a slice of that. One row more says that the plan is
batch-invariant. ``num_splits`` tells the batch by its
length; what it holds is not read. Sparse decode plans nothing, because each token has its number of indices: its
tensors are one row of zeros, and as many zeros as tell the batch.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TypeAlias

import torch

from mla_kernels.errors import DeviceError, DTypeError, ShapeError, UnsupportedError, ValueRangeError
from mla_kernels.kernels import invariance
from mla_kernels.kernels.base import Kernel, Plan
from mla_kernels.tensors import device_of

ROW = 8
"""Numbers in a row of ``tile_scheduler_metadata``."""

Shape: TypeAlias = tuple[int, int, int]
"""Batch, query tokens, and the query heads of one KV head: what a plan depends on, apart from lengths."""

Tensors: TypeAlias = tuple[torch.Tensor, torch.Tensor]


@dataclass
class FlashMLASchedMeta:
    """The schedule of a step, filled by the first ``flash_mla_with_kvcache`` that is given it.

    Attributes
    ----------
    have_initialized : bool
        Whether it is filled; set it to False to have it filled anew.
    config : FlashMLASchedMeta.Config or None
        What it was filled for, and all that it then serves.
    tile_scheduler_metadata, num_splits : int32 tensors or None
        What ``get_mla_metadata(cache_seqlens, ...)`` gives.
    """

    @dataclass(frozen=True)
    class Config:
        """The shapes of a decode, and what it attends to."""

        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool
        is_fp8_kvcache: bool
        topk: int | None = None
        extra_page_block_size: int | None = None
        extra_topk: int | None = None

        def __str__(self) -> str:
            return ", ".join(f"{name} = {value}" for name, value in asdict(self).items() if value is not None)

    have_initialized: bool = False
    config: Config | None = None
    tile_scheduler_metadata: torch.Tensor | None = None
    num_splits: torch.Tensor | None = None

    def require_alone(self, num_splits: object) -> None:
        """Refuse a ``num_splits`` that comes with this object.

        Raises
        ------
        UnsupportedError
        """
        if num_splits is not None:
            raise UnsupportedError("num_splits", "a tensor", "None with a FlashMLASchedMeta, which has its own")

    def fill(self, config: Config, tensors: Tensors) -> None:
        """Keep what was scheduled."""
        self.tile_scheduler_metadata, self.num_splits = tensors
        self.config, self.have_initialized = config, True

    def require(self, config: Config) -> None:
        """Refuse a call that this was not filled for.

        Raises
        ------
        ValueRangeError
        """
        if self.config != config:
            accepts = f"one for {config}: each configuration needs its own"
            raise ValueRangeError("tile_scheduler_metadata", f"a FlashMLASchedMeta for {self.config}", accepts)


class TileSchedulerMetadata(torch.Tensor, FlashMLASchedMeta):
    """A plan in an int32 tensor ``[parts, 8]``, and an empty ``FlashMLASchedMeta``.

    A call that is given ``num_splits`` takes it for the tensor. A call that is given it alone takes it for the object,
    and fills it from its own lengths: a CUDA graph then never reads the tensor, whose memory may be gone at a replay.
    """

    # What is computed of it is a plain tensor.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, object]) -> TileSchedulerMetadata:
        made = self.clone().as_subclass(TileSchedulerMetadata)
        vars(made).update(deepcopy(vars(self), memo))
        return made


def filled_by_call(scheduled: object, num_splits: object) -> FlashMLASchedMeta | None:
    """The object that the first call fills, or None where the caller passes two tensors.

    Raises
    ------
    UnsupportedError
        A ``num_splits`` comes with an object that is no tensor.
    """
    if not isinstance(scheduled, FlashMLASchedMeta):
        return None
    if isinstance(scheduled, torch.Tensor):
        return scheduled if num_splits is None else None
    scheduled.require_alone(num_splits)
    return scheduled


def both(tensors: Tensors) -> tuple[TileSchedulerMetadata, torch.Tensor]:
    """What ``get_mla_metadata`` gives with arguments: the same two tensors, the first of which is an object too."""
    scheduled, num_splits = tensors
    return scheduled.as_subclass(TileSchedulerMetadata), num_splits


def schedule(kernel: Kernel, cache_seqlens: torch.Tensor, shape: Shape) -> Tensors:
    """Plan a step into new tensors, int32 ``[parts, 8]`` and ``[batch + 1]``, on the device of its lengths."""
    invariant = invariance.enabled
    parts = _parts(kernel, shape, device_of("cache_seqlens", cache_seqlens)[1], invariant)
    scheduled = cache_seqlens.new_empty(parts, ROW, dtype=torch.int32)
    kernel.plan(cache_seqlens, out=_plan(scheduled, kernel, shape, invariant))
    return scheduled, scheduled.new_zeros(shape[0] + 1)


def unscheduled(like: torch.Tensor, batch: int) -> Tensors:
    """The tensors of sparse decode, int32 ``[1, 8]`` and ``[batch + 1]``, on the device of ``like``."""
    return like.new_zeros(1, ROW, dtype=torch.int32), like.new_zeros(batch + 1, dtype=torch.int32)


def plan_in(scheduled: object, num_splits: object, kernel: Kernel, shape: Shape, q: torch.Tensor) -> Plan:
    """The plan that ``schedule`` wrote, possibly copied since.

    Raises
    ------
    DTypeError, DeviceError, ShapeError
        The tensors are not what ``schedule`` makes for ``shape`` on the device of ``q``.
    """
    batch, q_len, num_heads = shape
    what = f"{batch} requests of {q_len * num_heads} query rows a KV head"
    device = device_of("q", q)[1]
    parts, invariant = _parts(kernel, shape, device, False), False
    if isinstance(scheduled, torch.Tensor) and scheduled.ndim and scheduled.shape[0] != parts:
        more = _parts(kernel, shape, device, True)
        if scheduled.shape[0] == more:
            parts, invariant = more, True
    require_tensors(scheduled, num_splits, parts, batch, what, q)
    if isinstance(scheduled, TileSchedulerMetadata):
        scheduled = scheduled.as_subclass(torch.Tensor)  # a launch reads a plain tensor faster
    return _plan(scheduled, kernel, shape, invariant)


def require_tensors(  # noqa: PLR0917 (two tensors, their shapes, and where they must be)
    scheduled: object, num_splits: object, parts: int, batch: int, what: str, q: torch.Tensor
) -> None:
    """Refuse tensors that are not int32 ``[parts, 8]`` and ``[batch + 1]`` on the device of ``q``.

    Raises
    ------
    DTypeError, DeviceError, ShapeError
    """
    wanted = {"tile_scheduler_metadata": (scheduled, (parts, ROW)), "num_splits": (num_splits, (batch + 1,))}
    for name, (tensor, extents) in wanted.items():
        if not isinstance(tensor, torch.Tensor):
            raise DTypeError(name, type(tensor).__name__, "what get_mla_metadata gives")
        if tensor.dtype != torch.int32:
            raise DTypeError(name, str(tensor.dtype).removeprefix("torch."), "int32")
        if tensor.device != q.device:
            raise DeviceError(name, str(tensor.device), f"{q.device}, as q has")
        if tensor.shape != extents:
            accepts = f"{list(extents)}, as get_mla_metadata gives for {what}"
            raise ShapeError(name, f"shape {list(tensor.shape)}", accepts)


def _plan(buffer: object, kernel: Kernel, shape: Shape, invariant: bool) -> Plan:
    return Plan(buffer, kernel.variant.name, *shape, max_splits=0, batch_invariant=invariant)


@lru_cache(maxsize=1024)
def _parts(kernel: Kernel, shape: Shape, device: int, invariant: bool) -> int:
    batch, q_len, num_heads = shape
    numbers = {"batch": batch, "q_len": q_len, "num_heads": num_heads, "device": device}
    size = kernel.plan_size(**numbers, batch_invariant=invariant)
    return -(-size // (2 * ROW * torch.int32.itemsize)) * 2 + invariant
