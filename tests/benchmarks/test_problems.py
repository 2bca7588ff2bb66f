"""What the bench measures: cells, lengths, their FLOP and bytes, and the random tensors of a cell."""

from __future__ import annotations

import mla_kernels as mla
import pytest
import torch
from mla_kernels.diagnostics.bench.problems import SUITES, Problem, problems, shapes
from mla_kernels.diagnostics.bench.tensors import Tensors
from mla_kernels.errors import ValueRangeError

from benchmarks.ops import run_cuda

CPU = torch.device("cpu")


def test_cells_are_every_combination():
    cells = problems(("bf16", "bf16:e4m3"), shapes((16, 64), (1, 2), (8,), (100, 200)), (64, 128))
    assert len(cells) == len(set(cells)) == 32
    assert cells[0] == Problem("bf16", "bf16", 16, 8, 100)
    assert cells[-1] == Problem("bf16", "e4m3", 64, 8, 200, q_len=2, page_size=128)


def test_the_suite_is_every_kind_of_rows_with_every_cache():
    assert len(SUITES["h200"]) == len(set(SUITES["h200"])) == 20


@pytest.mark.parametrize(
    ("changes", "option"),
    [({"heads": (0,)}, "heads"), ({"q_lens": (-1,)}, "q-len"), ({"batches": (0,)}, "batch"), ({"seqs": (0,)}, "seq")],
)
def test_numbers_are_positive(changes, option):
    given = {"heads": (16,), "q_lens": (1,), "batches": (1,), "seqs": (1,)}
    with pytest.raises(ValueRangeError, match=rf"^{option}: got"):
        problems(("bf16",), shapes(**{**given, **changes}))
    with pytest.raises(ValueRangeError, match=r"^page-size: got 0"):
        problems(("bf16",), shapes(**given), (0,))


@pytest.mark.parametrize(("batch", "mean"), [(1, 1), (128, 1), (128, 2), (7, 3), (128, 4096), (1, 8192)])
def test_normal_lengths_have_the_same_total(batch, mean):
    lengths = Problem("bf16", "bf16", 16, batch, mean, lengths="normal").seq_lens
    assert len(lengths) == batch
    assert sum(lengths) == batch * mean
    assert min(lengths) >= 1


def test_normal_lengths_deviate_by_half_the_mean():
    lengths = torch.tensor(Problem("bf16", "bf16", 16, 512, 4096, lengths="normal").seq_lens).double()
    assert 0.4 < float(lengths.std() / lengths.mean()) < 0.6


def test_one_long_request():
    (cell,) = problems(("bf16",), shapes((16,), (1,), (4,), (100, 200)), lengths="long")
    assert cell.seq_lens == (65536, 1024, 1024, 1024)
    assert cell.seq == 65536


@pytest.mark.parametrize("batch", [1, 32, 128])
def test_zipf_lengths_fall_with_the_rank_and_are_the_same_in_every_run(batch):
    (cell,) = problems(("bf16",), shapes((16,), (1,), (batch,), (100,)), lengths="zipf")
    lengths = sorted(cell.seq_lens, reverse=True)
    assert (cell.seq, len(lengths), lengths[0]) == (65536, batch, 65536)
    assert batch == 1 or lengths[-1] == 256
    assert len(set(lengths)) > 0.9 * batch
    assert batch == 1 or list(cell.seq_lens) != lengths
    assert cell.seq_lens == Problem("bf16", "bf16", 128, batch, 65536, lengths="zipf").seq_lens


def test_flop_and_bytes():
    equal = Problem("bf16", "bf16", 128, 128, 8192, q_len=2)
    assert equal.flop == 2 * 128 * 2 * 128 * 8192 * 1088
    assert equal.bytes == 128 * 8192 * 1152 + 128 * 2 * 128 * (576 + 512) * 2
    ragged = Problem("bf16", "fp8_ds_mla", 16, 3, 0, q_len=2, lengths="long")
    assert ragged.flop == 2 * 2 * 16 * (65536 + 2 * 1024) * 1088
    assert ragged.bytes == (65536 + 2 * 1024) * 656 + 3 * 2 * 16 * 1088 * 2


@pytest.mark.parametrize(("batch", "seq", "count"), [(1, 8192, 24), (16, 8192, 8), (128, 8192, 2), (128, 1 << 20, 2)])
def test_problems_exceed_the_cache(batch, seq, count):
    cell = Problem("bf16", "bf16", 16, batch, seq)
    assert run_cuda.count(cell.input_bytes) == count


@pytest.mark.parametrize("page_size", [1, 16, 48, 64, 256])
def test_tables_are_disjoint_and_random(page_size):
    cell = Problem("bf16", "bf16", 2, 5, 300, page_size=page_size, lengths="normal")
    tensors = Tensors(cell, CPU, 3)
    pages = [-(-length // page_size) for length in cell.seq_lens]
    used = [int(page) for table in tensors.block_table for row, n in zip(table, pages, strict=True) for page in row[:n]]
    assert sorted(used) == list(range(len(tensors.kv_cache)))
    assert used != sorted(used)
    assert page_size > 128 or 128 % page_size or tensors.block_table.shape[2] * page_size % 128 == 0


def test_tensors_are_the_same_in_every_process():
    cell = Problem("bf16", "bf16", 2, 5, 300, lengths="normal")
    one, other = Tensors(cell, CPU, 2), Tensors(cell, CPU, 2)
    for name in ("q", "kv_cache", "block_table", "seq_lens"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert not torch.equal(one.q[0], one.q[1])


@pytest.mark.parametrize("kv_dtype", ["bf16", "e4m3", "fp8_ds_mla"])
def test_tensors_are_of_the_cell(kv_dtype):
    cell = Problem("bf16", kv_dtype, 2, 2, 70, q_len=3)
    tensors = Tensors(cell, CPU, 2)
    kernel = mla.lookup(**cell.config("cpu"))
    out, lse = kernel(tensors.q[1], tensors.kv_cache, tensors.block_table[1], tensors.seq_lens, softmax_scale=1.0)
    assert (out.shape, lse.shape) == (tensors.out[1].shape, tensors.lse[1].shape)
    assert out.dtype == tensors.out.dtype
    assert out.isfinite().all()
