"""The arch under test, or the one reason why nothing can run here; launches in graphs, on streams and devices."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import memory
from tests.support.compare import assert_same_bytes

ARCHS = {(9, 0): "sm90a", (10, 0): "sm100f", (10, 3): "sm100f"}
PAGE_SIZES = (1, 2, 16, 48, 61, 64, 128, 576)
PADS = (16, 3)
"""Elements around a tensor: rows of whole vectors, and rows that no wide access reaches."""


@functools.cache
def absence() -> str | None:
    """Why nothing can run here, or None."""
    import mla_kernels as mla

    if not torch.cuda.is_available():
        return "no CUDA device"
    arch = arch_name()
    if arch is None:
        return f"no payload has kernels for capability {torch.cuda.get_device_capability()}"
    return None if mla.variants(arch=arch) else f"no payload of {arch} is installed"


def arch_name() -> str | None:
    """The arch that ``MLA_KERNELS_ARCH`` names, otherwise that of the current device."""
    return os.environ.get("MLA_KERNELS_ARCH") or ARCHS.get(torch.cuda.get_device_capability())


def refuse(reason: str) -> None:
    """Skip, or fail where ``MLA_KERNELS_GPU=required``."""
    if os.environ.get("MLA_KERNELS_GPU") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(f"not run: {reason}")


def require_payload() -> None:
    """Refuse where nothing can run; fixtures of a module come before those of its tests, and ask themselves."""
    reason = absence()
    if reason is not None:
        refuse(reason)


@pytest.fixture(autouse=True)
def arch() -> Iterator[str]:
    """The arch under test; no error of the device outlives a test unseen."""
    require_payload()
    yield str(arch_name())
    torch.cuda.synchronize()


@pytest.fixture
def cupy() -> Any:
    """CuPy, where it is installed."""
    if find_spec("cupy") is None:
        refuse("no CuPy")
    import cupy

    return cupy


def current_stream() -> int:
    """The handle that arrays need which do not tell their stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def guarded(shape: tuple[int, ...], dtype: str, pad: int = 16, device: str = "cuda") -> memory.Guarded:
    """A poisoned tensor of a dtype of the matrix, between guard zones."""
    return memory.guarded(shape, memory.DTYPES[dtype], device, pad=pad)


def padded(tensor: Tensor, pad: int) -> Tensor:
    """The same values on the GPU in a slice of a larger tensor of NaN."""
    copy = memory.guarded(tensor.shape, tensor.dtype, "cuda", pad=pad).view
    return copy.copy_(tensor)


@dataclass(frozen=True)
class Case:
    """A launch on fixed tensors whose contents change.

    ``fresh(seed)`` is what to copy into ``inputs``; ``want(*fresh(seed))`` is what ``run`` then makes of an ``out``
    whose bits are all set.
    """

    inputs: tuple[Tensor, ...]
    fresh: Callable[[int], tuple[Tensor, ...]]
    run: Callable[[], object]
    out: Tensor
    want: Callable[..., Tensor]

    def load(self, contents: tuple[Tensor, ...]) -> None:
        """Fill the inputs and poison the output."""
        for mine, content in zip(self.inputs, contents, strict=True):
            mine.copy_(content)
        self.out.view(torch.uint8).fill_(0xFF)

    def check(self, seed: int) -> None:
        """``out`` holds what the inputs say."""
        assert_same_bytes("out", self.out, self.want(*self.fresh(seed)))


def check_graph(case: Case) -> None:
    """Captured once, then replayed over other contents."""
    case.load(case.fresh(0))
    case.run()
    case.check(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.run()
    for seed in (1, 2):
        case.load(case.fresh(seed))
        graph.replay()
        torch.cuda.synchronize()
        case.check(seed)


def check_streams(case: Case) -> None:
    """A launch on the current stream waits for the inputs, and nobody waits for the launch."""
    contents = tuple(tensor.to(case.out.device) for tensor in case.fresh(1))
    case.load(case.fresh(0))
    case.run()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        case.load(contents)
        case.run()
        assert not stream.query(), "the launch synchronised"
    stream.synchronize()
    case.check(1)


def check_at_once(launches: Sequence[Callable[[], tuple[Tensor, ...]]]) -> None:
    """Each on a stream of its own, again and again, gives what it gives alone."""
    want = [launch() for launch in launches]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in launches]
    for _ in range(20):
        got = []
        for launch, stream in zip(launches, streams, strict=True):
            with torch.cuda.stream(stream):
                got.append(launch())
        torch.cuda.synchronize()
        for mine, theirs in zip(got, want, strict=True):
            for i, (one, other) in enumerate(zip(mine, theirs, strict=True)):
                assert_same_bytes(f"result {i}", one, other)


def check_devices(make: Callable[[str], Case]) -> None:
    """On every device, while every device is the current one, which it stays."""
    capability = torch.cuda.get_device_capability()
    alike = [i for i in range(torch.cuda.device_count()) if torch.cuda.get_device_capability(i) == capability]
    for current in range(torch.cuda.device_count()):
        with torch.cuda.device(current):
            for index in alike:
                case = make(f"cuda:{index}")
                case.load(case.fresh(index))
                torch.cuda.synchronize(index)
                case.run()
                assert torch.cuda.current_device() == current
                torch.cuda.synchronize(index)
                case.check(index)
