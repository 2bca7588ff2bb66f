"""Decode context parallelism by processes with a GPU each, compared with one device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.distributed.worker import LACKS
from tests.gpu.support.availability import devices_alike, require_op

ROOT = Path(__file__).parents[3]
MOST_SECONDS = 240


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("exchange", ["collectives", "copies", "symmetric_memory"])
@pytest.mark.parametrize("task", ["results", "replays", "collectives_on_another_stream", "a_lost_rank"])
def test_ranks(task: str, exchange: str, world_size: int, arch: str, tmp_path: Path) -> None:
    require_op(arch, "decode")
    alike = devices_alike()
    if len(alike) < world_size:
        pytest.skip(f"not run: {arch}: {world_size} GPUs are needed, here are {len(alike)}")
    if task == "a_lost_rank" and exchange == "collectives":
        pytest.skip("not run: NCCL ends the processes, at a time that torch chooses")
    environment = os.environ | {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "tests.gpu.distributed.worker", task, exchange, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world_size), str(device)],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, device in enumerate(alike[:world_size])
    ]  # fmt: skip
    try:
        told = [rank.communicate(timeout=MOST_SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if [rank.returncode for rank in ranks] == [LACKS] * world_size:
        pytest.skip(f"not run: {told[0].strip()}")
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(told)
