"""The scratch memory that layers share: it grows, and what a graph may read stays."""

from __future__ import annotations

import torch
from mla_kernels.compat._vllm.workspace import Workspace


def test_it_grows_by_powers_of_two_and_is_asked_once_for_a_shape():
    workspace, asked = Workspace(torch.device("cpu")), []

    def of(needed: int) -> torch.Tensor:
        def size() -> int:
            asked.append(needed)
            return needed

        return workspace.of(("shape", needed), size)

    first = of(0)
    assert first.numel() > 0
    assert of(1000).numel() == 1024
    assert of(1024) is of(1000) is of(0)
    assert of(1025).numel() == 2048
    assert asked == [0, 1000, 1024, 1025]


def test_a_buffer_that_became_too_small_is_kept():
    """As are all before it, in less than twice the bytes of the last."""
    workspace = Workspace(torch.device("cpu"))
    addresses = [workspace.of(size, lambda: size).data_ptr() for size in range(300, 100_000, 100)]  # noqa: B023
    assert len(set(addresses)) == len(workspace._kept) - 1
    assert {kept.data_ptr() for kept in workspace._kept[1:]} == set(addresses)
    assert sum(kept.numel() for kept in workspace._kept) < 2 * workspace._kept[-1].numel()
