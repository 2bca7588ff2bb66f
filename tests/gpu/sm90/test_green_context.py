"""Attention of the sm90 payload on a stream that has some of the multiprocessors only, those of a green context."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch

from tests.gpu.support.availability import refuse, require_payload
from tests.gpu.support.sm90 import each_sparse_decode, each_with
from tests.gpu.support.sparse_results import compare_results, empty_results
from tests.gpu.support.tensors import poisoned_workspace
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row
from tests.support.sparse import SparseDecode

SM_RESOURCE, DEFAULT_STREAM, NON_BLOCKING = 1, 1, 1
RESOURCE_BYTES = 144
FEWEST = 16


def check(status: int, what: str) -> None:
    if status != 0:
        refuse(f"{what} failed with {status}")


@pytest.fixture(scope="module")
def few_multiprocessors() -> Iterator[torch.cuda.ExternalStream]:
    """A stream of 16 multiprocessors, made by the driver's own functions."""
    require_payload()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    if not hasattr(driver, "cuGreenCtxCreate"):
        refuse("a driver without green contexts")
    device = ctypes.c_int()
    check(driver.cuDeviceGet(ctypes.byref(device), torch.cuda.current_device()), "cuDeviceGet")
    whole, part, rest = (ctypes.create_string_buffer(RESOURCE_BYTES) for _ in range(3))
    check(driver.cuDeviceGetDevResource(device, whole, SM_RESOURCE), "cuDeviceGetDevResource")
    groups = ctypes.c_uint(1)
    split = driver.cuDevSmResourceSplitByCount(part, ctypes.byref(groups), whole, rest, 0, FEWEST)
    check(split, "cuDevSmResourceSplitByCount")
    description, context, stream = (ctypes.c_void_p() for _ in range(3))
    check(driver.cuDevResourceGenerateDesc(ctypes.byref(description), part, 1), "cuDevResourceGenerateDesc")
    check(driver.cuGreenCtxCreate(ctypes.byref(context), description, device, DEFAULT_STREAM), "cuGreenCtxCreate")
    made = driver.cuGreenCtxStreamCreate(ctypes.byref(stream), context, NON_BLOCKING, 0)
    check(made, "cuGreenCtxStreamCreate")
    yield torch.cuda.ExternalStream(int(stream.value or 0))
    torch.cuda.synchronize()
    check(driver.cuStreamDestroy_v2(stream), "cuStreamDestroy")
    check(driver.cuGreenCtxDestroy(context), "cuGreenCtxDestroy")


@each_with("num_heads", [16, 128])
@pytest.mark.parametrize("lengths", [(3000,), (700, 0, 2500, 64)])
def test_blocks_that_cannot_all_run_at_once(
    variant: Row, num_heads: int, lengths: tuple[int, ...], few_multiprocessors: torch.cuda.ExternalStream
) -> None:
    """Splits that the blocks would combine together are combined by a kernel of its own."""
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads)
    inputs = problem.tensors()
    workspace = poisoned_workspace()
    torch.cuda.synchronize()
    with torch.cuda.stream(few_multiprocessors):
        out, lse = problem.launch(inputs, workspace=workspace)
    few_multiprocessors.synchronize()
    problem.compare(out, lse, *problem.expected())
    again, _ = problem.launch(inputs)
    torch.cuda.synchronize()
    problem.compare(again, lse, *problem.expected())
    assert_same_bytes("out", again, problem.launch(inputs)[0])


@each_sparse_decode
@pytest.mark.parametrize("num_heads", [16, 128])
def test_requests_that_cannot_be_split(
    variant: Row, num_heads: int, few_multiprocessors: torch.cuda.ExternalStream
) -> None:
    """Sparse attention splits no request where its blocks cannot all run at once."""
    problem = SparseDecode(variant.name, num_heads=variant.heads(num_heads), topk=1000, num_pages=40, sink=True)
    inputs = problem.tensors()
    results = empty_results(problem)
    workspace = poisoned_workspace()
    torch.cuda.synchronize()
    with torch.cuda.stream(few_multiprocessors):
        problem.launch(inputs, **results, workspace=workspace)
    few_multiprocessors.synchronize()
    compare_results(problem, results)
