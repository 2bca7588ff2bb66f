"""Kernels in Triton of ranks whose devices write each other's memory: each waits for the other ranks itself.

A block signals the blocks of its number on the other ranks and waits for theirs, so that no block waits for another of
its own kernel. A flag of a block and a rank goes from 0 to 1 when that rank signals, and back to 0 when the block has
seen it. Annotations are strings, because Triton looks the names of others up.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

from mla_kernels.distributed.records import LayerShape
from mla_kernels.errors import DTypeError
from mla_kernels.tensors import DTypeLike, element_name

BLOCKS = 128
"""Of a kernel, at most."""
_LEAST_WORDS = 256
_MOST_WORDS = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _stop_if_late(deadline: "Any") -> None:
    """Stop the device when another rank is later than the time-out."""
    if globaltimer() > deadline:
        tl.inline_asm_elementwise("trap; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit  # type: ignore[untyped-decorator]
def _signal_and_wait(  # noqa: PLR0917  # a kernel takes no keywords
    flags: "Any", rank: "Any", block: "Any", timeout: "Any", ranks: tl.constexpr, blocks: tl.constexpr
) -> None:
    tl.debug_barrier()
    deadline = globaltimer() + timeout
    pads = flags.to(tl.pointer_type(tl.int64))
    for step in tl.static_range(1, ranks):
        peer = (rank + step) % ranks
        theirs = tl.load(pads + peer).to(tl.pointer_type(tl.int32)) + rank * blocks + block
        while tl.atomic_cas(theirs, 0, 1, sem="release", scope="sys") != 0:
            _stop_if_late(deadline)
    own = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for step in tl.static_range(1, ranks):
        peer = (rank + step) % ranks
        while tl.atomic_cas(own + peer * blocks + block, 1, 0, sem="acquire", scope="sys") != 1:
            _stop_if_late(deadline)
    tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def _push(  # noqa: PLR0917
    own: "Any", memory: "Any", flags: "Any", rank: "Any", words: "Any", first_word: "Any", timeout: "Any",
    ranks: tl.constexpr, blocks: tl.constexpr, width: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0)
    places = memory.to(tl.pointer_type(tl.int64))
    for first in range(block * width, words, tl.num_programs(0) * width):
        at = first + tl.arange(0, width)
        values = tl.load(own + at, mask=at < words)
        for peer in tl.static_range(ranks):
            place = tl.load(places + peer).to(tl.pointer_type(tl.int64)) + first_word
            tl.store(place + at, values, mask=at < words)
    _signal_and_wait(flags, rank, block, timeout, ranks, blocks)


@triton.jit  # type: ignore[untyped-decorator]
def _merge(  # noqa: PLR0917
    memory: "Any", flags: "Any", out: "Any", out_lse: "Any", rank: "Any", heads: "Any", tokens: "Any",
    first_byte: "Any", record: "Any", output_bytes: "Any", timeout: "Any",
    ranks: tl.constexpr, blocks: tl.constexpr, d_v: tl.constexpr, element: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0)
    _signal_and_wait(flags, rank, block, timeout, ranks, blocks)
    places = memory.to(tl.pointer_type(tl.int64))
    columns = tl.arange(0, d_v)
    for row in range(block, heads * tokens, tl.num_programs(0)):  # a row is a token of a head
        head, token = row // tokens, row % tokens
        begin = first_byte + (rank * heads + head).to(tl.int64) * record
        greatest = -float("inf")
        for peer in tl.static_range(ranks):
            of_peer = tl.load(places + peer) + begin + output_bytes
            lse = tl.load(of_peer.to(tl.pointer_type(tl.float32)) + token)
            lse = tl.where(lse == float("inf"), -float("inf"), lse)  # an empty state, as merge_states has it
            greatest = tl.maximum(greatest, lse, propagate_nan=tl.PropagateNan.ALL)
        shift = tl.where(greatest == -float("inf"), 0.0, greatest)
        total = 0.0
        summed = tl.zeros((d_v,), tl.float32)
        for peer in tl.static_range(ranks):
            of_peer = tl.load(places + peer) + begin
            lse = tl.load((of_peer + output_bytes).to(tl.pointer_type(tl.float32)) + token)
            lse = tl.where(lse == float("inf"), -float("inf"), lse)
            weight = tl.exp(lse - shift)
            values = tl.load(of_peer.to(tl.pointer_type(element)) + token.to(tl.int64) * d_v + columns)
            summed += tl.where(lse == -float("inf"), 0.0, weight * values.to(tl.float32))
            total += weight
        scale = tl.where(total == 0, 0.0, 1 / total)
        at = token.to(tl.int64) * heads + head
        tl.store(out + at * d_v + columns, (summed * scale).to(out.dtype.element_ty))
        tl.store(out_lse + at, tl.log(total) + shift)


@triton.jit  # type: ignore[untyped-decorator]
def _probe(to: "Any", begin: "Any") -> None:
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
    memory, flags : int
        Addresses, on this rank's device, of the addresses of all ranks' buffers: of queries followed by partial
        results, and of ``world_size * BLOCKS`` int32 that are 0.
    first_byte : int
        Of partial results in a buffer.
    timeout : int
        Nanoseconds after which a block that waits stops its device.
    """

    def __init__(self, shape: LayerShape, rank: int, memory: int, flags: int, *, first_byte: int, timeout: int) -> None:
        self._shape, self._rank, self._timeout = shape, rank, timeout
        self._memory, self._flags, self._first_byte = memory, flags, first_byte
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
        rows = self._shape.tokens, self._shape.num_heads
        device = self._shape.device
        return torch.empty(*rows, self._shape.d_v, dtype=out_dtype, device=device), torch.empty(rows, device=device)

    def _launch_push(self, words: torch.Tensor, *, compiles: bool = False) -> None:
        grid = (min(BLOCKS, triton.cdiv(self._words, self._width)),)
        with torch.cuda.device(self._shape.device):
            _launcher(_push, grid, compiles)(
                words, self._memory, self._flags, self._rank, self._words, self._rank * self._words, self._timeout,
                ranks=self._shape.world_size, blocks=BLOCKS, width=self._width, num_warps=4,
            )  # fmt: skip

    def _launch_merge(self, out: torch.Tensor, lse: torch.Tensor, *, compiles: bool = False) -> None:
        shape = self._shape
        grid = (min(BLOCKS, shape.num_heads * shape.tokens),)
        with torch.cuda.device(shape.device):
            _launcher(_merge, grid, compiles)(
                self._memory, self._flags, out, lse, self._rank, shape.num_heads, shape.tokens, self._first_byte,
                shape.record_bytes, shape.output_bytes, self._timeout, ranks=shape.world_size, blocks=BLOCKS,
                d_v=shape.d_v, element=_ELEMENTS[shape.dtype], num_warps=2,
            )  # fmt: skip


_OUTPUTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_ELEMENTS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


def _launcher(kernel: Any, grid: tuple[int], compiles: bool) -> Any:
    """Return what launches a kernel, or only compiles and loads it."""
    if not compiles:
        return kernel[grid]

    def load(*arguments: Any, **constants: Any) -> None:
        _ = kernel.warmup(*arguments, grid=grid, **constants).run  # reading it loads the kernel

    return load
