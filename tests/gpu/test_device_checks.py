"""``check=True`` reads the device's values and raises what the CPU payload raises in every launch."""

from __future__ import annotations

from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import ValueRangeError


def tensors(device: str) -> dict[str, Any]:
    return {
        "cache": torch.zeros(4, 16, 576, dtype=torch.bfloat16, device=device),
        "rows": torch.zeros(3, 576, dtype=torch.bfloat16, device=device),
    }


def store(device: str, slot: int) -> None:
    given = tensors(device)
    slots = torch.tensor([0, slot, -1], device=device)
    mla.store_kv(given["rows"][:, :512], given["rows"][:, 512:], given["cache"], slots, check=True)


def store_scaled(device: str, scale: float) -> None:
    given = tensors(device)
    cache = given["cache"].to(torch.float8_e4m3fn)
    slots = torch.tensor([0, 1, 2], device=device)
    factor = torch.tensor([scale], device=device)
    mla.store_kv(given["rows"][:, :512], given["rows"][:, 512:], cache, slots, scale=factor, check=True)


def gather(device: str, index: int) -> None:
    indices = torch.tensor([3, index], dtype=torch.int32, device=device)
    mla.gather_kv(tensors(device)["cache"], indices, check=True)


def merge(device: str, count: int) -> None:
    o, lse = torch.zeros(2, 2, 3, 8, device=device), torch.zeros(2, 2, 3, device=device)
    mla.merge_states(o, lse, torch.tensor([1, count], dtype=torch.int32, device=device), check=True)


def translate(device: str, request: int) -> None:
    table = torch.zeros(2, 3, dtype=torch.int32, device=device)
    tokens = torch.zeros(2, 4, dtype=torch.int32, device=device)
    mla.to_global_indices(
        torch.tensor([0, request], dtype=torch.int32, device=device), table, tokens, page_size=16, check=True
    )


@pytest.mark.parametrize(
    ("run", "value", "fine"),
    [(store, 64, 63), (store_scaled, 0.0, 0.5), (gather, 64, 63), (merge, 3, 2), (merge, -1, 0), (translate, 2, 1)],
)
def test_a_value_out_of_range_is_refused_as_on_the_host(run: Any, value: Any, fine: Any) -> None:
    run("cuda", fine)
    with pytest.raises(ValueRangeError) as on_host:
        run("cpu", value)
    with pytest.raises(ValueRangeError) as on_device:
        run("cuda", value)
    assert (on_device.value.argument, on_device.value.got) == (on_host.value.argument, on_host.value.got)
