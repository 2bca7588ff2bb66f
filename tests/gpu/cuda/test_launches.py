"""Every op around attention in a CUDA graph, on a stream of its own, and on every device."""

from __future__ import annotations

import mla_kernels as mla
import pytest
import torch

from tests.gpu.support.cases import EVERY, case
from tests.gpu.support.launches import check_devices, check_graph, check_streams

each = pytest.mark.parametrize(("op", "types"), EVERY, ids=["-".join((op, *types)) for op, types in EVERY])


@each
def test_graph(arch: str, op: str, types: tuple[str, ...]) -> None:
    check_graph(case(arch, op, types))


@each
def test_streams(arch: str, op: str, types: tuple[str, ...]) -> None:
    check_streams(case(arch, op, types))


@pytest.mark.parametrize(
    ("op", "types"),
    [
        ("store_kv", ("bf16", "e4m3")),
        ("gather_kv", ("e4m3", "bf16")),
        ("merge_states", ("fp32", "bf16")),
        ("to_global_indices", ()),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_devices(arch: str, op: str, types: tuple[str, ...]) -> None:
    check_devices(lambda device: case(arch, op, types, device))


@pytest.mark.usefixtures("arch")
@pytest.mark.parametrize("default", [True, False])
def test_memory_is_of_the_stream_that_is_given(default: bool) -> None:
    """What another stream still reads is not given to a launch."""
    rows = 1 << 16
    cache, indices = torch.zeros(1, 64, 576).bfloat16().cuda(), torch.zeros(rows, dtype=torch.int32).cuda()
    reader, writer = (torch.cuda.Stream(), torch.cuda.default_stream()) if default else (None, torch.cuda.Stream())
    mla.gather_kv(cache, indices, stream=writer.cuda_stream)  # loads the kernel
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with torch.cuda.stream(reader):
        read = torch.ones(rows, 576).bfloat16().cuda()
        torch.cuda.synchronize()
        torch.cuda._sleep(100_000_000)
        copy = read.clone()
        del read
        mla.gather_kv(cache, indices, stream=writer.cuda_stream)
        torch.cuda.synchronize()
    assert (copy == 1).all()
