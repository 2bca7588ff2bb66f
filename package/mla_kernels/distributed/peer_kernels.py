"""Kernels in Triton of ranks whose devices write each other's memory: each waits for the other ranks itself.

A block signals the blocks of its number on the other ranks and waits for theirs, so that no block waits for another of
its own kernel. A flag is a semaphore of a block and a rank: that rank adds 1 when it signals, and the block takes 1
away when it has seen that. It is 2 for a moment where a rank signals in its next kernel before the block has looked.

Neither kernel lets the next one begin before it ends (programmatic dependent launch): blocks that waited behind it
would hold multiprocessors, which another stream may need for what a late rank waits for. Annotations are strings,
because Triton looks the names of others up.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

from mla_kernels.distributed.records import ALIGNMENT, LayerShape, Records
from mla_kernels.errors import DTypeError
from mla_kernels.tensors import DTypeLike, element_name

BLOCKS = 128
"""Of a kernel, at most."""
_LEAST_WORDS = 256
_MOST_WORDS = 1024
_MOST_ROWS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _stop_if_late(deadline: "Any") -> None:
    """Stop the device when another rank is later than the time-out."""
    if globaltimer() > deadline:
        tl.inline_asm_elementwise("trap; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit  # type: ignore[untyped-decorator]
def _fence_by_first_thread() -> None:
    """Order what the block has written before what its first thread writes next: that one signals.

    Each atomic operation that releases would have a fence of its own, which takes 1 us.
    """
    tl.inline_asm_elementwise(
        "{ .reg .pred first; mov.u32 $0, %tid.x; setp.eq.u32 first, $0, 0; @first fence.release.sys; }",
        "=r", [], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _signal_and_wait(flags: "Any", block: "Any", timeout: "Any", rank: tl.constexpr, blocks: tl.constexpr) -> None:
    tl.debug_barrier()
    _fence_by_first_thread()
    for step in tl.static_range(1, len(flags)):
        theirs = flags[(rank + step) % len(flags)] + rank * blocks + block
        tl.atomic_add(theirs, 1, sem="relaxed", scope="sys")
    deadline = globaltimer() + timeout
    for step in tl.static_range(1, len(flags)):
        own = flags[rank] + (rank + step) % len(flags) * blocks + block
        while tl.atomic_add(own, 0, sem="acquire", scope="sys") < 1:
            _stop_if_late(deadline)
        tl.atomic_add(own, -1, sem="relaxed", scope="sys")
    tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def _push(  # noqa: PLR0917
    own: "Any", places: "Any", flags: "Any", words: "Any", timeout: "Any",
    rank: tl.constexpr, blocks: tl.constexpr, width: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0)
    for first in range(block * width, words, tl.num_programs(0) * width):
        at = first + tl.arange(0, width)
        values = tl.load(own + at, mask=at < words)
        for step in tl.static_range(1, len(places) + 1):
            tl.store(places[(rank + step) % len(places)] + at, values, mask=at < words)
    _signal_and_wait(flags, block, timeout, rank, blocks)


@triton.jit  # type: ignore[untyped-decorator]
def _merge(  # noqa: PLR0917
    outs: "Any", lses: "Any", flags: "Any", out: "Any", out_lse: "Any", heads: "Any", tokens: "Any", units: "Any",
    timeout: "Any",
    rank: tl.constexpr, blocks: tl.constexpr, d_v: tl.constexpr, unit: tl.constexpr, height: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0)
    _signal_and_wait(flags, block, timeout, rank, blocks)
    columns = tl.arange(0, d_v)[None, :]
    for first in range(block * height, heads * tokens, tl.num_programs(0) * height):
        row = first + tl.arange(0, height)  # a row is a token of a head
        inside = row < heads * tokens
        head, token = (row // tokens).to(tl.int64), (row % tokens).to(tl.int64)
        at_lse = head * units * (unit // out_lse.dtype.element_ty.itemsize) + token
        greatest = tl.full((height,), -float("inf"), tl.float32)
        for peer in tl.static_range(len(lses)):
            lse = tl.load(lses[peer] + at_lse, mask=inside, other=0.0)
            lse = tl.where(lse == float("inf"), -float("inf"), lse)  # an empty state, as merge_states has it
            greatest = tl.maximum(greatest, lse, propagate_nan=tl.PropagateNan.ALL)
        shift = tl.where(greatest == -float("inf"), 0.0, greatest)
        total = tl.zeros((height,), tl.float32)
        summed = tl.zeros((height, d_v), tl.float32)
        for peer in tl.static_range(len(outs)):
            lse = tl.load(lses[peer] + at_lse, mask=inside, other=0.0)
            lse = tl.where(lse == float("inf"), -float("inf"), lse)
            weight = tl.exp(lse - shift)
            begin = head * units * (unit // outs[peer].dtype.element_ty.itemsize) + token * d_v
            values = tl.load(outs[peer] + begin[:, None] + columns, mask=inside[:, None], other=0.0).to(tl.float32)
            summed += tl.where((lse == -float("inf"))[:, None], 0.0, weight[:, None] * values)
            total += weight
        scale = tl.where(total == 0, 0.0, 1 / total)
        at = token * heads + head
        merged = (summed * scale[:, None]).to(out.dtype.element_ty)
        tl.store(out + at[:, None] * d_v + columns, merged, mask=inside[:, None])
        tl.store(out_lse + at, tl.log(total) + shift, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _probe(to: "Any", begin: "Any") -> None:
    _fence_by_first_thread()
    tl.store(to, (globaltimer() > begin).to(tl.int32))


def probe(device: torch.device) -> None:
    """Compile and run a small kernel; whatever keeps Triton from that is raised."""
    seen = torch.zeros(1, dtype=torch.int32, device=device)
    _probe[(1,)](seen, 0)
    if not seen.item():
        raise RuntimeError("a kernel of Triton did not run")


class PeerKernels:
    """The two kernels of one shape, compiled and loaded here for each type of output, and not while another rank waits.

    Parameters
    ----------
    shape : LayerShape
    rank : int
    places : sequence of int64 [bytes of the queries of a rank / 8]
        In the memory of each rank, where the queries of this one are.
    partials : sequence of Records
        In the memory of each rank, its partial results.
    flags : sequence of int32 [world_size * BLOCKS]
        In the memory of each rank; 0 before the first launch.
    timeout : int
        Nanoseconds after which a block that waits stops its device.
    """

    def __init__(
        self,
        shape: LayerShape,
        rank: int,
        places: Sequence[torch.Tensor],
        partials: Sequence[Records],
        flags: Sequence[torch.Tensor],
        *,
        timeout: int,
    ) -> None:
        self._shape, self._rank, self._timeout = shape, rank, timeout
        own = slice(rank * shape.num_heads, (rank + 1) * shape.num_heads)
        self._places, self._flags = tuple(places), tuple(flags)
        self._outs, self._lses = tuple(each.out[own] for each in partials), tuple(each.lse[own] for each in partials)
        self._words = shape.query_bytes // torch.int64.itemsize
        self._width = _LEAST_WORDS if self._words <= BLOCKS * _LEAST_WORDS else _MOST_WORDS
        self._launch_push(torch.empty(self._words, dtype=torch.int64, device=shape.device), compiles=True)
        for out_dtype in _OUTPUTS.values():
            self._launch_merge(*self._results(out_dtype), compiles=True)

    def push(self, own: torch.Tensor) -> None:
        """Write the own queries [num_heads, tokens, d_qk] into the memory of all ranks, and wait for those of all."""
        self._launch_push(own.view(-1).view(torch.int64))

    def merge(self, out_dtype: DTypeLike | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Wait for the partial results of all ranks, and merge those of the own heads from where they are.

        Returns
        -------
        out : [tokens, num_heads, d_v]
        lse : float32 [tokens, num_heads]

        Raises
        ------
        DTypeError
            There is no output of this type.
        """
        name = element_name(self._shape.dtype if out_dtype is None else out_dtype)
        if name not in _OUTPUTS:
            raise DTypeError("out_dtype", str(out_dtype), ", ".join(_OUTPUTS))
        results = self._results(_OUTPUTS[name])
        self._launch_merge(*results)
        return results

    def _results(self, out_dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        rows, device = (self._shape.tokens, self._shape.num_heads), self._shape.device
        out = torch.empty(*rows, self._shape.d_v, dtype=out_dtype, device=device)
        return out, torch.empty(rows, dtype=torch.float32, device=device)

    def _launch_push(self, words: torch.Tensor, *, compiles: bool = False) -> None:
        grid = (min(BLOCKS, triton.cdiv(self._words, self._width)),)
        with torch.cuda.device(self._shape.device):
            _launcher(_push, grid, compiles)(
                words, self._places, self._flags, self._words, self._timeout, rank=self._rank, blocks=BLOCKS,
                width=self._width, num_warps=4,
            )  # fmt: skip

    def _launch_merge(self, out: torch.Tensor, lse: torch.Tensor, *, compiles: bool = False) -> None:
        shape = self._shape
        rows = shape.num_heads * shape.tokens
        height = 1 if rows <= BLOCKS else _MOST_ROWS
        grid = (min(BLOCKS, triton.cdiv(rows, height)),)
        with torch.cuda.device(shape.device):
            _launcher(_merge, grid, compiles)(
                self._outs, self._lses, self._flags, out, lse, shape.num_heads, shape.tokens,
                shape.record_bytes // ALIGNMENT, self._timeout, rank=self._rank, blocks=BLOCKS, d_v=shape.d_v,
                unit=ALIGNMENT, height=height, num_warps=2,
            )  # fmt: skip


_OUTPUTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _launcher(kernel: Any, grid: tuple[int], compiles: bool) -> Any:
    """Return what launches a kernel, or only compiles and loads it."""
    if not compiles:
        return kernel[grid]

    def load(*arguments: Any, **constants: Any) -> None:
        _ = kernel.warmup(*arguments, grid=grid, **constants).run  # reading it loads the kernel

    return load
