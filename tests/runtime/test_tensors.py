"""Where tensors that a call allocates come from, on a machine without a GPU."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import tensors
from mla_kernels.kernels import ops, planned

from tests.runtime.small_decode import SCALE

STREAM = 0x5EED


class OnCuda(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


@pytest.fixture
def streams(monkeypatch) -> list[Any]:
    """Of each allocation, the address of the stream of torch that it was made for."""
    current: list[Any] = [None]
    seen: list[Any] = []
    made = {name: getattr(torch.Tensor, name) for name in ("new_empty", "new_zeros")}

    @contextmanager
    def stream(address):
        current.append(address)
        yield
        current.pop()

    def watched(name, self, *args, **kwargs):
        seen.append(current[-1])
        return made[name](self, *args, **kwargs)

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address, device: address or pytest.fail("another stream"))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    for name in made:
        monkeypatch.setattr(torch.Tensor, name, partialmethod(partial(watched, name)))
    return seen


@pytest.mark.parametrize(("stream", "current"), [(None, None), (0, 0), (1, 0), (True, 0), (STREAM, STREAM)])
def test_memory_is_of_the_stream_that_works_on_it(streams, stream, current):
    """Otherwise torch gives it to what is enqueued next on another stream; 0 and 1 are the default stream."""
    tensors.empty("out", torch.ones(2).as_subclass(OnCuda), (3,), "bf16", stream)
    assert streams == [current]


def test_a_rope_part_of_zeros_is_written_on_the_stream(streams):
    rows = torch.ones(3, 512).as_subclass(OnCuda)
    _, rope = tensors.with_rope(rows, 576, STREAM)
    assert (rope == 0).all()
    assert streams == [STREAM]


class OfCupy:
    """An array of CuPy, of which what allocates beside it is read."""

    __module__ = "cupy"
    device = nullcontext()
    __dlpack__ = None

    dtype = "float32"


@pytest.mark.parametrize("release", [13, 14])
def test_memory_of_cupy_is_of_the_stream_too(monkeypatch, release):
    """CuPy 14 takes what has the method of CUDA's protocol, and warns of the address that CuPy 13 takes."""
    current: list[int] = []

    @contextmanager
    def on(address):
        current.append(address)
        yield

    new = SimpleNamespace(from_external=lambda stream: on(stream.__cuda_stream__()[1]))
    cuda = SimpleNamespace(Stream=new if release >= 14 else object, ExternalStream=on)
    made = SimpleNamespace(cuda=cuda, empty=lambda shape, dtype: (shape, dtype, current[-1]))
    monkeypatch.setitem(sys.modules, "cupy", made)
    assert tensors.empty("out", OfCupy(), (3,), "fp32", STREAM) == ((3,), "float32", STREAM)


@pytest.mark.parametrize("stream", ["7", -1, 1 << 64, torch.ones(1)])
def test_what_is_no_address_is_left_to_the_launch(streams, stream):
    tensors.empty("out", torch.ones(2).as_subclass(OnCuda), (3,), "bf16", stream)
    assert streams == [None]


def test_the_host_has_no_streams(streams):
    tensors.empty("out", torch.ones(2), (3,), "bf16", STREAM)
    assert streams == [None]


@pytest.mark.parametrize("more", [{}, {"max_splits": 4}])
def test_every_allocation_of_a_call_is_told_the_stream(monkeypatch, more):
    told: list[tuple[str, object]] = []

    def watched(argument, like, shape, dtype, stream=None):
        told.append((argument, stream))
        return tensors.empty(argument, like, shape, dtype, stream)

    for module in (ops, planned):
        monkeypatch.setattr(module, "empty", watched)
    q, cache = torch.ones(2, 1, 4, 576), torch.ones(2, 640, 576)
    mla.decode(q, cache, seq_lens=torch.tensor([640, 9]).int(), softmax_scale=SCALE, stream=STREAM, **more)
    assert {"out", "lse"} < {name for name, _ in told}
    assert {stream for _, stream in told} == {STREAM}
