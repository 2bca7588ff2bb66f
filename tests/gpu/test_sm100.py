"""The sm100 payload end to end on a GPU that is not Blackwell: everything but the tensor-core kernel itself.

The payload under test is built for this GPU with a plain kernel in place of CUTLASS's (``nox -s emulation``). That
kernel reads the parameters that CUTLASS's would get, so a test sees what the host and the kernels around it make of
a problem.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import ValueRangeError

from tests.gpu.conftest import refuse
from tests.support import memory
from tests.support.compare import SPARSE, assert_close, assert_same_bytes
from tests.support.problems import Decode, garbage_workspace, peak_of, tolerances
from tests.support.rows import Row, rows
from tests.support.sparse import SparseDecode

ARCH = "sm100f"
DENSE = [row for row in rows("decode") if row.arch == ARCH]
SPARSE_ROWS = [row for row in rows("sparse_decode") if row.arch == ARCH]
TMA = [row for row in DENSE if row.load == "tma"]
CPASYNC = [row for row in DENSE if row.load == "cpasync"]
SPLITTING = [row for row in DENSE if row.schedule == "individual"]
COMPUTE, IDLE, NOTHING, CHECK_MAPS = range(4)


def each(variants: list[Row]) -> Any:
    return pytest.mark.parametrize("variant", variants, ids=[row.name for row in variants])


@pytest.fixture(autouse=True, scope="module")
def library() -> ctypes.CDLL:
    """The emulating payload."""
    if not mla.variants(arch=ARCH):
        refuse(f"{ARCH}: no payload built for this GPU is installed (nox -s emulation)")
    from mla_kernels.discovery import payloads

    found = ctypes.CDLL(str(payloads().found["sm100"].folder / "libmla_sm100.so"))
    if not hasattr(found, "mla_emulation_mode"):
        refuse(f"{ARCH}: the payload is built for Blackwell")
    return found


@pytest.fixture(autouse=True)
def mode(library: ctypes.CDLL) -> Iterator[ctypes.c_int]:
    """What a launch does; put back to computing after each test."""
    mode = ctypes.c_int.in_dll(library, "mla_emulation_mode")
    mode.value = COMPUTE
    yield mode
    mode.value = COMPUTE


def page_of(variant: Row) -> int:
    return 128 if variant.load == "tma" else 64


def problem(variant: Row, **options: Any) -> Decode:
    return Decode(variant.name, **{"page_size": page_of(variant), "finite": True, **options})


@each(DENSE)
@pytest.mark.parametrize("num_heads", [1, 16, 63, 128])
def test_heads(variant: Row, num_heads: int) -> None:
    run_in_place(problem(variant, lengths=(300, 128, 20, 1, 0), num_heads=num_heads, seed=num_heads))


def run_in_place(case: Decode) -> None:
    """``check`` of a problem; with 128 heads the output is contiguous between its guards."""
    if case.num_heads < 128:
        case.check()
        return
    inputs, batch = case.tensors(), len(case.lengths)
    rows_of_out = memory.guarded((batch * case.q_len * 128 * 512,), memory.DTYPES[case.row.out_dtype], "cuda", pad=64)
    out = rows_of_out.view.view(batch, case.q_len, 128, 512)
    lse = memory.guarded((batch, 128, case.q_len), torch.float32, "cuda", pad=1)
    workspace = garbage_workspace("cuda").fill_(0xFF)
    case.launch(inputs, out=out, lse=lse.view, workspace=workspace)
    rows_of_out.assert_guards("out")
    lse.assert_guards("lse")
    case.compare(out, lse.view, *case.expected())


@each(CPASYNC)
@pytest.mark.parametrize("page_size", [1, 2, 4, 8, 16, 32, 64, 128])
def test_page_sizes(variant: Row, page_size: int) -> None:
    problem(variant, lengths=(300, 0, 129, 1), page_size=page_size, num_heads=9).check()


@each(SPLITTING)
@pytest.mark.parametrize("max_splits", [2, 3, 7, 32, 256])
def test_splits(variant: Row, max_splits: int) -> None:
    case = problem(variant, lengths=(1400, 900, 640, 128, 20, 0), max_splits=max_splits)
    run_in_place(case)
    run_in_place(replace(case, num_heads=128))


@each(DENSE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("q_len", [2, 4, 67])
def test_query_tokens(variant: Row, q_len: int, causal: bool) -> None:
    problem(variant, lengths=(140, 20, 1, 0), q_len=q_len, num_heads=3, causal=causal, seed=q_len).check()


@each(DENSE)
def test_query_tokens_of_128_heads(variant: Row) -> None:
    run_in_place(problem(variant, lengths=(140, 1, 0, 300), q_len=3, num_heads=128))


@each(TMA)
@pytest.mark.parametrize("num_heads", [5, 128])
def test_contiguous(variant: Row, num_heads: int) -> None:
    run_in_place(problem(variant, lengths=(20, 140, 0, 1, 300), paged=False, num_heads=num_heads))


@each(SPLITTING)
@pytest.mark.parametrize("deviation", [20.0, 100.0])
def test_large_queries_with_splits(variant: Row, deviation: float) -> None:
    if variant.q_dtype == "e4m3" and deviation == 100.0:
        deviation = 60.0  # beyond it, codes saturate
    problem(variant, lengths=(700, 260, 20), q_len=2, max_splits=5, q_deviation=deviation).check()


@each(DENSE)
@pytest.mark.parametrize("split_q", [False, True])
def test_strided_pools_and_queries(variant: Row, split_q: bool) -> None:
    case = problem(variant, strided=True, q_len=2, num_heads=7, split_q=split_q, out_scale=0.7)
    case.check()
    replace(case, split_kv=True, strided=False).check()


@each(DENSE)
def test_queries_of_128_heads_that_must_be_packed(variant: Row) -> None:
    case = problem(variant, num_heads=128, strided=True)
    run_in_place(case)


@each(DENSE)
def test_many_rows(variant: Row) -> None:
    lengths = tuple((17 * b) % 200 for b in range(150))
    problem(variant, lengths=lengths, num_heads=2).check()


@each(DENSE)
def test_pages_that_do_not_exist_are_skipped(variant: Row) -> None:
    """As if the tokens of such a page were not there; nothing outside the cache is read."""
    case = problem(variant, lengths=(700, 300, 128), num_heads=4, causal=False)
    size = case.page_size
    inputs = case.tensors()
    want_inputs = {**inputs, "block_table": inputs["block_table"].clone(), "seq_lens": inputs["seq_lens"].clone()}
    table, want_table = inputs["block_table"], want_inputs["block_table"]
    want_table[0, 1:-1] = table[0, 2:]
    want_inputs["seq_lens"][0] -= size
    table[0, 1] = 2**31 - 1
    table[2, :] = -5
    want_inputs["seq_lens"][2] = 0
    want = case.launch(want_inputs)
    got = case.launch(inputs)
    assert_same_bytes("out", got[0], want[0])
    assert_same_bytes("lse", got[1], want[1])
    assert got[1][2].isneginf().all()


@each(DENSE)
def test_wild_lengths_are_clamped(variant: Row) -> None:
    case = problem(variant, lengths=(256, 256, 256), num_heads=4, spare=0)
    inputs = case.tensors()
    want = case.launch(inputs)
    inputs["seq_lens"].copy_(torch.tensor([2**31 - 1, 256, -(2**31)], dtype=torch.int32))
    got = case.launch(inputs)
    assert_same_bytes("out", got[0][:2], want[0][:2])
    assert (got[0][2] == 0).all()
    assert got[1][2].isneginf().all()


@each(DENSE)
def test_lse_may_be_left_out(variant: Row) -> None:
    case = problem(variant, lengths=(300, 0))
    inputs = case.tensors()
    want, _ = case.launch(inputs)
    out, lse = case.launch(inputs, lse=False)
    assert lse is None
    assert_same_bytes("out", out, want)


@each(SPLITTING)
def test_graph_replay_after_lengths_change(variant: Row) -> None:
    case = problem(variant, lengths=(1000, 700, 64, 0), num_heads=16, max_splits=4)
    inputs = case.tensors()
    kernel = case.kernel()
    kernel.prepare(torch.cuda.current_device())
    out, lse = case.launch(inputs)
    workspace = garbage_workspace("cuda")
    plan = case.plan(kernel, inputs["seq_lens"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(**inputs, **case.scalars(), plan=plan, out=out, lse=lse, workspace=workspace)
    for lengths in ((1000, 700, 64, 0), (3, 0, 60, 0), (640, 641, 64, 0)):
        inputs["seq_lens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        want = reference.decode(**inputs, **case.scalars(), dtype=torch.float64)
        case.compare(out, lse, *want)


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
        out = torch.empty(4, 1, case.num_heads, 512, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
        case.launch(inputs, out=out)
        torch.cuda.synchronize()
    after = counted(library)
    assert after[0] - before[0] > 4 * 3 * 36
    assert after[1] == before[1] == 0


def counted(library: ctypes.CDLL) -> tuple[int, int]:
    pointer = ctypes.POINTER(ctypes.c_ulonglong * 2).in_dll(library, "mla_emulation_counted")
    return (pointer.contents[0], pointer.contents[1]) if pointer else (0, 0)


@each(SPARSE_ROWS)
@pytest.mark.parametrize("options", [
    {},
    {"num_heads": 128, "topk": 256},
    {"q_len": 5, "num_heads": 3, "counts": True},
    {"lead": 40, "absent": 0.5},
    {"page_size": 1, "num_pages": 300},
    {"page_size": 48, "strided": True},
    {"topk": 512, "max_splits": 3},
    {"topk": 1},
], ids=str)  # fmt: skip
def test_sparse(variant: Row, options: dict[str, Any]) -> None:
    case = SparseDecode(variant.name, **options)
    inputs = case.tensors()
    shape = (case.batch, case.q_len, case.num_heads, 512)
    lse = memory.guarded((case.batch, case.num_heads, case.q_len), torch.float32, "cuda", pad=1)
    flat = memory.guarded((shape[0] * shape[1] * shape[2] * 512,), memory.DTYPES[variant.out_dtype], "cuda", pad=64)
    case.launch(inputs, out=flat.view.view(shape), lse=lse.view)
    flat.assert_guards("out")
    lse.assert_guards("lse")
    want = case.expected(inputs)
    for_out, for_lse = tolerances(variant, SPARSE, exact_scales=True, peak=peak_of(want[1]))
    assert_close("lse", lse.view, want[1], for_lse)
    assert_close("out", flat.view.view(shape), want[0], for_out)


@pytest.mark.parametrize("out_dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("states", [1, 2, 5, 32, 33, 256])
@pytest.mark.parametrize("counted", [False, True])
def test_the_reduction_alone(out_dtype: str, states: int, counted: bool) -> None:
    tokens, source = 7, torch.Generator("cuda").manual_seed(states)
    memory_of_o = torch.randn(tokens, 128, states, 512, device="cuda", generator=source)
    memory_of_lse = torch.randn(tokens, states, 128, device="cuda", generator=source) * 5
    o, lse = memory_of_o.permute(2, 0, 1, 3), memory_of_lse.permute(1, 0, 2)
    memory_of_lse[3] = float("-inf")
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


@each(DENSE)
def test_nothing_to_do(variant: Row) -> None:
    for lengths in ((), (0,), (0, 0, 0)):
        case = problem(variant, lengths=lengths, num_heads=3)
        out, lse = case.launch(case.tensors())
        assert (out == 0).all()
        assert lse.isneginf().all()


@each(DENSE[:1])
@pytest.mark.parametrize(("name", "place", "value"), [
    ("seq_lens", (1,), 1000),
    ("seq_lens", (0,), -1),
    ("block_table", (0, 1), 99),
    ("block_table", (0, 0), -1),
])  # fmt: skip
def test_checked_values(variant: Row, name: str, place: tuple[int, ...], value: int) -> None:
    case = problem(variant, lengths=(300, 128))
    inputs = case.tensors()
    case.launch(inputs, check=True)
    inputs[name][place] = value
    with pytest.raises(ValueRangeError, match=rf"^{name}\["):
        case.launch(inputs, check=True)
