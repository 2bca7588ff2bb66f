"""Dense decode of the sm90 payload: every variant over shapes, layouts and schedules, with unused memory poisoned."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import InvalidArgumentError

from tests.gpu.conftest import refuse
from tests.gpu.sm90 import DENSE, MIXED, each, each_with, hopper
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.invariance import check_batch_invariance
from tests.support.problems import Decode, garbage_workspace
from tests.support.rows import Row

__all__ = ["hopper"]

TMA = [row for row in DENSE if row.load == "tma"]
PAGES = (1, 2, 8, 16, 24, 32, 48, 61, 64, 128, 192, 576)

each_layout = pytest.mark.parametrize(
    ("variant", "paged"),
    [(row, True) for row in DENSE] + [(row, False) for row in TMA],
    ids=lambda value: value.name if isinstance(value, Row) else ("paged" if value else "contiguous"),
)


@each_with("num_heads", [1, 3, 9, 15, 16, 32, 63, 64, 65, 126, 127, 128])
def test_heads(variant: Row, num_heads: int) -> None:
    Decode(variant.name, num_heads=num_heads, seed=num_heads).check()


@each_with("page_size, num_heads", [(page_size, num_heads) for page_size in PAGES for num_heads in (9, 128)])
def test_page_sizes(variant: Row, page_size: int, num_heads: int) -> None:
    Decode(variant.name, lengths=(140, 0, 20, 1, page_size, 700), page_size=page_size, num_heads=num_heads).check()


@each_with("page_size", [8, 16, 64])
def test_page_sizes_of_long_requests(variant: Row, page_size: int) -> None:
    """More pages than a warp reads ahead at once."""
    Decode(variant.name, lengths=(9000, 3000, 1), page_size=page_size, num_heads=16).check()


@pytest.mark.parametrize("causal", [True, False])
@each_with(
    "q_len, num_heads", [(2, 3), (2, 9), (2, 16), (4, 16), (67, 3), (68, 1), (100, 4), (127, 3), (128, 2), (2, 128)]
)
def test_query_tokens(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    lengths = (q_len + 9, 140, 20, 1, 0, 700)
    Decode(variant.name, lengths=lengths, q_len=q_len, num_heads=num_heads, causal=causal, seed=q_len).check()


@each_with("q_len", [1, 2, 3], TMA)
@pytest.mark.parametrize("causal", [True, False])
def test_contiguous(variant: Row, q_len: int, causal: bool) -> None:
    lengths = (20, 140, 0, 1, 97, 640)
    Decode(variant.name, lengths=lengths, paged=False, q_len=q_len, causal=causal, num_heads=16).check()


@each_with("num_heads", [16, 128], TMA)
@pytest.mark.parametrize("capacity", [700, 701, 704, 712])
def test_contiguous_of_any_capacity(variant: Row, capacity: int, num_heads: int) -> None:
    """Caches whose tokens the accelerator takes in groups of eight, and ones that end inside a group."""
    lengths = (700, 1, 650)
    problem = Decode(variant.name, lengths=lengths, paged=False, num_heads=num_heads, spare=capacity - max(lengths))
    assert problem.capacity == capacity
    problem.check()


@each
@pytest.mark.parametrize(
    "lengths",
    [
        (1,),
        (2,),
        (63,),
        (64,),
        (65,),
        (127,),
        (128,),
        (129,),
        (0,),
        (0, 0, 0),
        (8192,),
        (1, 0, 0, 33),
        MIXED,
        MIXED * 30,
    ],
)
def test_lengths(variant: Row, lengths: tuple[int, ...]) -> None:
    Decode(variant.name, lengths=lengths, num_heads=5, seed=len(lengths)).check()


@each
def test_a_large_batch_padded_for_a_graph(variant: Row) -> None:
    Decode(variant.name, lengths=(70,) + (0,) * 2999 + (130, 1), num_heads=2).check()


@each
def test_the_largest_batch_of_a_grid(variant: Row) -> None:
    """Two requests, far apart among empty ones, give what they give alone."""
    batch, places = 65535, (3, 65534)
    alone = Decode(variant.name, lengths=(130, 70), num_heads=2)
    inputs = alone.tensors()
    large = {
        "q": torch.zeros(batch, *inputs["q"].shape[1:], dtype=inputs["q"].dtype, device="cuda"),
        "kv_cache": inputs["kv_cache"],
        "block_table": torch.full((batch, inputs["block_table"].shape[1]), memory.UNUSED_PAGE, device="cuda").int(),
        "seq_lens": torch.zeros(batch, dtype=torch.int32, device="cuda"),
    }
    for request, place in enumerate(places):
        for name in ("q", "block_table", "seq_lens"):
            large[name][place] = inputs[name][request]
    kernel = alone.kernel()
    out, lse = kernel(**large, **alone.scalars(), plan=kernel.plan(large["seq_lens"], num_heads=2, q_len=1))
    alone.compare(out[list(places)], lse[list(places)], *alone.expected())
    empty = torch.ones(batch, dtype=torch.bool)
    empty[list(places)] = False
    assert not out[empty.cuda()].any()
    assert bool((lse[empty.cuda()] == -torch.inf).all())


@each_with("num_heads", [9, 16, 64, 126, 128])
def test_many_requests_of_each_block(variant: Row, num_heads: int) -> None:
    """Queries that pack into tiles and ones that do not take turns with KV in the same memory."""
    Decode(variant.name, lengths=(700, 64, 1, 300, 129) * 60, num_heads=num_heads, q_len=2, seed=num_heads).check()


@each_with("num_heads", [16, 128])
def test_one_long_request_among_short_ones(variant: Row, num_heads: int) -> None:
    Decode(variant.name, lengths=(100,) * 20 + (20000,) + (300,) * 11, num_heads=num_heads).check()


@each_with("num_heads", [16, 64, 128])
@pytest.mark.parametrize("long", [9000, 40000])
def test_one_long_request_among_many(variant: Row, long: int, num_heads: int) -> None:
    """Requests of two pieces, which blocks finish, beside one of many, which all merge."""
    Decode(variant.name, lengths=(500,) * 90 + (long,) + (700,) * 30, num_heads=num_heads).check()


@each_with("num_heads", [5, 16, 128])
@pytest.mark.parametrize("batch", [1, 2, 5, 16, 40, 100])
def test_requests_in_any_number_of_parts(variant: Row, num_heads: int, batch: int) -> None:
    """From parts for all multiprocessors to fewer parts than requests: every way to merge what was split."""
    lengths = tuple(900 + 37 * (i % 5) for i in range(batch))
    Decode(variant.name, lengths=lengths, num_heads=num_heads, q_len=min(2, variant.most("q_len")), seed=batch).check()


PAIRS = {5: 66, 16: 64, 48: 40, 64: 66, 65: 33, 128: 32}
"""To heads, as many equal requests as take two blocks each, or two clusters, of 132 multiprocessors."""


@each_with("num_heads", PAIRS)
def test_requests_that_two_blocks_share(variant: Row, num_heads: int) -> None:
    Decode(variant.name, lengths=(1000,) * PAIRS[num_heads], num_heads=num_heads).check()


@each_with("num_heads", PAIRS)
def test_shared_requests_whose_lengths_change_after_the_plan(variant: Row, num_heads: int) -> None:
    """One of the two blocks has nothing to sum then, or both."""
    lengths = tuple((1000, 3, 0, 513, 600)[i % 5] for i in range(PAIRS[num_heads]))
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads)
    inputs, kernel = problem.tensors(), problem.kernel()
    plan = kernel.plan(torch.full_like(inputs["seq_lens"], 1000), num_heads=num_heads, q_len=1)
    out, lse = kernel(**inputs, **problem.scalars(), plan=plan, workspace=garbage_workspace("cuda").fill_(0xFF))
    problem.compare(out, lse, *problem.expected())


@each_with("num_heads", PAIRS)
def test_requests_of_two_pieces_whose_lengths_change_after_the_plan(variant: Row, num_heads: int) -> None:
    """The block that finishes a request has the first piece of it; either may have nothing to sum then."""
    batch, most = 150, 1050
    lengths = tuple((most, 3, 0, 513, 600, 1)[i % 6] for i in range(batch))
    problem = Decode(variant.name, lengths=lengths, num_heads=num_heads)
    inputs, kernel = problem.tensors(), problem.kernel()
    planned = torch.tensor([900 + 37 * (i % 5) for i in range(batch)], dtype=torch.int32, device="cuda")
    plan = kernel.plan(planned, num_heads=num_heads, q_len=1)
    out, lse = kernel(**inputs, **problem.scalars(), plan=plan, workspace=garbage_workspace("cuda").fill_(0xFF))
    problem.compare(out, lse, *problem.expected())


@each
@pytest.mark.parametrize("max_splits", [1, 2, 3, 7, 32])
def test_splits(variant: Row, max_splits: int) -> None:
    Decode(variant.name, lengths=(700, 333, 20, 1, 0, 3000), q_len=2, max_splits=max_splits).check()


@each
@pytest.mark.parametrize("max_splits", [None, 2, 5])
@pytest.mark.parametrize("deviation", [20.0, 100.0])
def test_large_queries_with_splits(variant: Row, max_splits: int | None, deviation: float) -> None:
    lengths = (500, 260, 20, 2000)
    Decode(variant.name, lengths=lengths, q_len=2, max_splits=max_splits, q_deviation=deviation).check()


@each
@pytest.mark.parametrize("softmax_scale", [0.0, -0.05, 576**-0.5])
@pytest.mark.parametrize("num_heads", [16, 7])
def test_scales(variant: Row, softmax_scale: float, num_heads: int) -> None:
    Decode(variant.name, softmax_scale=softmax_scale, out_scale=0.7, num_heads=num_heads).check()


@each_layout
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("num_heads", [7, 16, 128])
def test_strides(variant: Row, paged: bool, split: bool, num_heads: int) -> None:
    num_heads = min(num_heads, variant.most("num_heads"))
    Decode(variant.name, strided=True, q_len=2, paged=paged, num_heads=num_heads, split_q=split, split_kv=split).check()


@each_with("num_heads", [16, 64, 128])
@pytest.mark.parametrize("q_len", [1, 2])
def test_longer_sequences(variant: Row, num_heads: int, q_len: int) -> None:
    Decode(variant.name, lengths=MIXED, num_heads=num_heads, q_len=q_len, seed=4096).check()


@each_with("q_len", [2, 128])
def test_nothing_but_masked_blocks_before_the_first_key(variant: Row, q_len: int) -> None:
    Decode(variant.name, lengths=(1, 2, 0, 65), q_len=q_len, num_heads=2, max_splits=3).check()


@each
def test_queries_at_odd_addresses(variant: Row) -> None:
    problem = Decode(variant.name, num_heads=16, q_len=2)
    inputs = problem.tensors()
    inputs["q"] = memory.guarded(inputs["q"].shape, inputs["q"].dtype, "cuda", pad=3).view.copy_(inputs["q"])
    out, lse = problem.launch(inputs)
    problem.compare(out, lse, *problem.expected())


@each
def test_outputs_at_odd_addresses(variant: Row) -> None:
    problem = Decode(variant.name, num_heads=16, q_len=2, lengths=(2000, 140, 1))
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    out = memory.guarded(want_out.shape, want_out.dtype, "cuda", pad=3)
    lse = memory.guarded(want_lse.shape, want_lse.dtype, "cuda", pad=3)
    problem.launch(inputs, out=out.view, lse=lse.view)
    assert_same_bytes("out", out.view, want_out)
    assert_same_bytes("lse", lse.view, want_lse)
    out.assert_guards("out")
    lse.assert_guards("lse")


@each
def test_lse_may_be_left_out(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(3000, 20))
    inputs = problem.tensors()
    want, _ = problem.launch(inputs)
    out, lse = problem.launch(inputs, lse=False)
    assert lse is None
    assert_same_bytes("out", out, want)


@each
def test_a_plan_serves_other_lengths(variant: Row) -> None:
    planned = Decode(variant.name, lengths=(5000, 20, 0), seed=1)
    kernel = planned.kernel()
    for options in ({}, {"max_splits": 4}):
        plan = kernel.plan(planned.tensors()["seq_lens"], num_heads=16, q_len=1, **options)
        for lengths in ((5000, 20, 0), (100, 3, 0), (0, 0, 0), (5020, 44, 9)):
            current = replace(planned, lengths=lengths, seed=sum(lengths))
            out, lse = kernel(**current.tensors(), **current.scalars(), plan=plan)
            current.compare(out, lse, *current.expected())


@each
@pytest.mark.parametrize("max_splits", [None, 3])
def test_batch_invariance(variant: Row, max_splits: int | None) -> None:
    """A request gives the same bytes alone, in company, and at another place, with batch_invariant plans."""
    company = Decode(
        variant.name, lengths=(900, 333, 1, 20, 64, 5000), num_heads=16, batch_invariant=True, max_splits=max_splits
    )
    check_batch_invariance(company, ([0], [1], [5], [3, 0], [5, 4, 3, 2, 1, 0], [1] * 9, [5] * 40))


@each_with("page_size", [16, 64])
def test_wild_lengths_and_pages_read_nothing_outside_the_cache(variant: Row, page_size: int) -> None:
    """Absent pages are as if their tokens were not there; lengths end with the table."""
    problem = Decode(variant.name, lengths=(640, 200, 64), page_size=page_size, num_heads=16, seed=5)
    inputs = problem.tensors()
    table, pool = inputs["block_table"], inputs["kv_cache"]
    for page in (-1, -(2**31), 2**31 - 1, len(pool)):
        wild = table.clone()
        wild[0, 3] = page
        out, lse = problem.launch({**inputs, "block_table": wild})
        kept = [problem.slots[0][i] for i in range(640) if i // page_size != 3]
        rows = pool.view(-1, 576)[torch.stack(kept).cuda()][None]
        want = reference.decode(
            inputs["q"][:1], rows, None, torch.tensor([len(kept)], device="cuda", dtype=torch.int32),
            **problem.scalars(), dtype=torch.float64,
        )  # fmt: skip
        replace(problem, lengths=(len(kept),)).compare(out[:1], lse[:1], *want)
    whole = table[:, :1].clamp(0, len(pool) - 1).contiguous()
    full = {**inputs, "block_table": whole, "seq_lens": torch.full((3,), page_size, dtype=torch.int32, device="cuda")}
    full["kv_cache"] = torch.nan_to_num(pool.float()).to(pool.dtype)
    want_out, want_lse = problem.launch(full)
    for length in (page_size + 1, 2**31 - 1):
        lengths = torch.full((3,), length, dtype=torch.int32, device="cuda")
        out, lse = problem.launch({**full, "seq_lens": lengths})
        assert_same_bytes("out", out, want_out)
        assert_same_bytes("lse", lse, want_lse)
    out, lse = problem.launch({**full, "seq_lens": torch.full_like(lengths, -(2**31))})
    assert not out.any()
    assert bool((lse == -torch.inf).all())


@each
def test_pools_beyond_two_to_the_31_elements(variant: Row) -> None:
    pages = (1 << 31) // (64 * 576) + 50
    pool = torch.empty(pages, 64, 576, dtype=memory.DTYPES[variant.kv_dtype], device="cuda")
    small = Decode(variant.name, lengths=(640, 100), num_heads=16)
    inputs = small.tensors()
    table = inputs["block_table"].clone()
    used = table < len(inputs["kv_cache"])
    pool[table[used] + (pages - 40)] = inputs["kv_cache"][table[used]]
    table[used] += pages - 40
    out, lse = small.launch({**inputs, "kv_cache": pool, "block_table": table})
    small.compare(out, lse, *small.expected())


@each
def test_a_page_that_a_table_names_a_million_times(variant: Row) -> None:
    """Pieces end more than 2^26 tokens before their request, of whose halves 2^31 copies of 16 bytes are made."""
    page, times = 64, 1_100_000
    problem = Decode(variant.name, lengths=(page,), page_size=page, num_heads=16, causal=False)
    inputs = problem.tensors()
    table = inputs["block_table"][:, :1].expand(1, times).contiguous()
    lengths = torch.full((1,), page * times, dtype=torch.int32, device="cuda")
    out, lse = problem.launch({**inputs, "block_table": table, "seq_lens": lengths})
    want_out, want_lse = problem.expected()
    problem.compare(out, lse - math.log(times), want_out, want_lse)


@each
def test_one_call_is_lookup_plan_and_launch(variant: Row) -> None:
    problem = Decode(variant.name, q_len=2, lengths=(3000, 20))
    out, lse = mla.decode(**problem.tensors(), **problem.scalars())
    problem.compare(out, lse, *problem.expected())


@each
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"q_scale": 0.5}, "q_scale"),
        ({"softmax_scale": float("nan")}, "softmax_scale"),
        ({"workspace": torch.empty(16, dtype=torch.uint8)}, "workspace"),
    ],
)
def test_refusals_before_the_launch(variant: Row, change: dict[str, Any], says: str) -> None:
    problem = Decode(variant.name, lengths=(3000, 20))
    inputs = problem.tensors()
    out = torch.full((2, 1, 16, 512), 7, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
    change = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in change.items()}
    with pytest.raises(InvalidArgumentError, match=says):
        problem.kernel()(**{**inputs, **problem.scalars(), **change}, out=out)
    assert bool((out == 7).all())


@each
def test_caches_that_16_bytes_do_not_divide(variant: Row) -> None:
    problem = Decode(variant.name)
    inputs = problem.tensors()
    shape = inputs["kv_cache"].shape
    inputs["kv_cache"] = torch.zeros(shape[0], shape[1], 580, dtype=inputs["kv_cache"].dtype, device="cuda")[..., 1:577]
    with pytest.raises(InvalidArgumentError, match="kv_cache"):
        problem.launch(inputs)


def test_cupy_and_jax_arrays(cupy: Any) -> None:
    problem = Decode("sm90a_decode_qfp16_kvfp16_ofp16_tma_rows_m64", lengths=(300, 20))
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    arrays = {name: cupy.from_dlpack(tensor) for name, tensor in inputs.items()}
    out, lse = problem.kernel()(**arrays, **problem.scalars(), stream=int(torch.cuda.current_stream().cuda_stream))
    assert_same_bytes("out", torch.from_dlpack(out), want_out)
    assert_same_bytes("lse", torch.from_dlpack(lse), want_lse)
    if find_spec("jax") is None:
        refuse("no JAX")
    import jax

    arrays = {name: jax.dlpack.from_dlpack(tensor) for name, tensor in inputs.items()}
    kernel = problem.kernel()
    own = {"out": torch.empty_like(want_out), "lse": torch.empty_like(want_lse)}
    own["workspace"] = torch.empty(kernel.workspace_size(**inputs), dtype=torch.uint8, device="cuda")
    plan = kernel.plan(inputs["seq_lens"])
    kernel(**arrays, **problem.scalars(), **own, plan=plan, stream=int(torch.cuda.current_stream().cuda_stream))
    assert_same_bytes("out", own["out"], want_out)
