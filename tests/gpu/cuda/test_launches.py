"""Every op around attention in a CUDA graph, on a stream of its own, and on every device."""

from __future__ import annotations

import pytest

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
