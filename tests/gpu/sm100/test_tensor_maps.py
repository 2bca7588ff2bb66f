"""Every tensor map of the sm100 payload names the bytes that CUTLASS's kernel should load."""

from __future__ import annotations

import ctypes

import pytest
import torch

from tests.gpu.support.sm100 import TMA, each, problem
from tests.support import memory
from tests.support.rows import Row

CHECK_MAPS = 3
"""The mode in which the plain kernel loads each box and compares its bytes with those at the addresses meant."""


@each(TMA)
@pytest.mark.parametrize("paged", [True, False])
def test_every_tensor_map_loads_the_bytes_that_it_should(
    variant: Row, paged: bool, library: ctypes.CDLL, mode: ctypes.c_int
) -> None:
    mode.value = CHECK_MAPS
    before = counted(library)
    for options in ({}, {"strided": True}, {"split_kv": True, "split_q": True}, {"num_heads": 128}):
        case = problem(variant, lengths=(300, 128, 0, 1), paged=paged, **options)
        inputs = case.tensors()
        out = torch.empty(4, 1, case.num_heads, variant.form.d_v, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
        case.launch(inputs, out=out)
        torch.cuda.synchronize()
    after = counted(library)
    assert after[0] - before[0] > 4 * 3 * 36
    assert after[1] == before[1] == 0


def counted(library: ctypes.CDLL) -> tuple[int, int]:
    pointer = ctypes.POINTER(ctypes.c_ulonglong * 2).in_dll(library, "mla_emulation_counted")
    return (pointer.contents[0], pointer.contents[1]) if pointer else (0, 0)
