"""Launches in graphs, on streams and on devices, and what each of these must leave as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.gpu.support.availability import devices_alike
from tests.gpu.support.tensors import set_all_bits
from tests.support.compare import assert_same_bytes


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
        set_all_bits(self.out)

    def check(self, seed: int) -> None:
        """Compare ``out`` with what the inputs make of it."""
        assert_same_bytes("out", self.out, self.want(*self.fresh(seed)))


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of what ``run`` launches."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def check_graph(case: Case) -> None:
    """A launch that was captured once is right when it is replayed over other contents."""
    case.load(case.fresh(0))
    case.run()
    case.check(0)
    graph = captured(case.run)
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
    """Each launch, on a stream of its own beside the others, gives again and again what it gives alone."""
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
    """Launches work on every device, while every device is the current one, which it stays."""
    alike = devices_alike()
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
