"""Ranks that share the caches of all requests, on one GPU: layers of vLLM's dense backend, eager and in a graph."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.gpu.support.availability import require_op
from tests.gpu.support.launches import captured
from tests.gpu.support.tensors import set_all_bits
from tests.runtime.compat.stand_ins import RELEASES, Overrides, installed
from tests.runtime.compat.steps.ranks import Ranks

MOST, OTHERS = [700, 65, 1300, 4], [301, 64, 1299, 3]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch, arch: str) -> Iterator[Overrides]:
    """Install a package ``vllm`` of stand-ins of the newest release."""
    require_op(arch, "decode")
    *_, release = RELEASES
    yield from installed(monkeypatch, release)


@pytest.mark.parametrize("heads", [16, 128])
@pytest.mark.parametrize("q_lens", [(1,) * 4, (2,) * 4, (4,) * 4, (3, 1, 0, 2)], ids=str)
@pytest.mark.parametrize(("world_size", "interleave"), [(2, 1), (4, 16)])
def test_a_graph_replays_other_lengths(
    vllm: Overrides, world_size: int, interleave: int, q_lens: tuple[int, ...], heads: int
) -> None:
    """Nothing that describes a step waits for the device."""
    ranks = Ranks(vllm, "cuda", world_size, interleave, heads, MOST, q_lens)
    metadata = [ranks.metadata(rank) for rank in range(world_size)]
    ranks.check([ranks.layer(rank, each) for rank, each in enumerate(metadata)])
    results: list[tuple[torch.Tensor, torch.Tensor]] = []
    graph = captured(lambda: results.extend(ranks.layer(rank, each) for rank, each in enumerate(metadata)))
    ranks.advance(OTHERS)
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for rank in range(world_size):
            ranks.metadata(rank)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    set_all_bits(*(tensor for pair in results for tensor in pair))
    graph.replay()
    torch.cuda.synchronize()
    ranks.check(results)
