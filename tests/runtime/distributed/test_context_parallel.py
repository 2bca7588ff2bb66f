"""Decode context parallelism by two and four processes of gloo on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mla_kernels.distributed import local_lengths
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import D_V, FORMATS

ROOT = Path(__file__).parents[3]
MOST_SECONDS = 300


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize(
    "task",
    ["results", "symmetric_memory", "choices", "unequal_shapes", "other_queries", "a_failed_layer", "a_lost_rank"],
)
def test_ranks(task: str, world_size: int, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.distributed.worker", task, str(rank), str(world_size),
             str(tmp_path / "store")],
            cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    try:
        told = [rank.communicate(timeout=MOST_SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(told)


@pytest.mark.parametrize("interleave", [1, 3, 16, 64])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_every_token_is_on_one_rank(world_size: int, interleave: int) -> None:
    lengths = torch.arange(400, dtype=torch.int32)
    for rank in range(world_size):
        got = local_lengths(lengths, rank=rank, world_size=world_size, interleave=interleave)
        held = torch.arange(400) // interleave % world_size == rank
        assert got.dtype == torch.int32
        assert got.tolist() == [int(held[:length].sum()) for length in range(400)]


def test_a_request_of_no_tokens_is_on_no_rank() -> None:
    """Nor is its new token, which the guide asks for by one less: a request that pads a batch writes nothing."""
    lengths = torch.tensor([0, -1, -200], dtype=torch.int32)
    for rank in range(4):
        assert local_lengths(lengths, rank=rank, world_size=4, interleave=16).tolist() == [0, 0, 0]


def test_more_tokens_than_an_int32_are_refused() -> None:
    with pytest.raises(ValueRangeError, match=r"interleave: got 1073741824; accepts less than 2\*\*31 on all 2 ranks"):
        local_lengths(torch.zeros(1).int(), rank=0, world_size=2, interleave=2**30)


def test_the_columns_of_a_key_tell_those_of_its_value() -> None:
    assert [row.name for row in FORMATS if D_V[row.d_qk] != row.d_v] == []
