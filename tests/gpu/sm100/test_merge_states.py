"""CUTLASS's reduction, as the merge_states of the sm100 payload for the states of 128 heads."""

from __future__ import annotations

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference

from tests.gpu.support.sm100 import ARCH


@pytest.mark.parametrize("out_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("states", [1, 2, 5, 32, 33, 256])
@pytest.mark.parametrize("counted", [False, True])
def test_the_reduction_alone(out_dtype: str, states: int, counted: bool) -> None:
    tokens, source = 7, torch.Generator("cuda").manual_seed(states)
    memory_of_o = torch.randn(tokens, 128, states, 512, device="cuda", generator=source)
    memory_of_lse = torch.randn(tokens, states, 128, device="cuda", generator=source) * 5
    o, lse = memory_of_o.permute(2, 0, 1, 3), memory_of_lse.permute(1, 0, 2)
    memory_of_lse[3], memory_of_lse[4] = float("-inf"), float("inf")  # without tokens, ours and FlashMLA's
    memory_of_lse[5, 0, ::2] = float("inf")
    counts = None
    if counted:
        counts = torch.randint(0, states + 1, (tokens,), device="cuda", dtype=torch.int32)
        counts[:3] = torch.tensor([0, 1, 2**31 - 1], dtype=torch.int32)
    kernel = mla.lookup(
        op="merge_states",
        arch=ARCH,
        in_dtype="fp32",
        out_dtype=out_dtype,
        schedule="reduction",
        num_heads=128,
        head_dim=512,
    )
    out, out_lse = kernel(o, lse, counts)
    clamped = None if counts is None else counts.clamp(0, states)
    want, want_lse = reference.merge_states(o, lse, clamped)
    torch.testing.assert_close(out.float(), want.float(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(out_lse, want_lse, rtol=1e-5, atol=1e-5)
