"""What ``get_mla_metadata`` gives with arguments serves callers of both conventions of FlashMLA."""

from __future__ import annotations

import copy
import pickle

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat.flash_mla import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata
from mla_kernels.errors import ValueRangeError

from tests.support.flash_mla import FlashMla
from tests.support.rows import rows

BF16 = next(row.name for row in rows("decode") if row.device == "cpu" and row.q_dtype == row.kv_dtype == "bf16")


def test_metadata_is_two_tensors_and_an_object():
    """Older callers slice, copy and compare the first result; newer ones ask it for its class and its fields."""
    lengths = torch.tensor([140, 20], dtype=torch.int32)
    meta, num_splits = get_mla_metadata(lengths, 64, 2)
    assert isinstance(meta, torch.Tensor)
    assert isinstance(meta, FlashMLASchedMeta)
    assert (meta.have_initialized, meta.config, meta.tile_scheduler_metadata, meta.num_splits) == (False, *[None] * 3)
    buffer = torch.zeros(meta.size(0) + 1, 8, dtype=torch.int32)
    buffer[:-1].copy_(meta)
    assert torch.equal(buffer[:-1], meta)
    for computed in (buffer, meta[:1], meta.clone(), meta.to("cpu", copy=True), meta.new_zeros(1), num_splits):
        assert type(computed) is torch.Tensor
    assert {meta: 1}[meta] == 1
    assert torch.equal(copy.deepcopy(meta), meta)
    assert torch.equal(pickle.loads(pickle.dumps(meta)), meta)


def test_the_object_is_filled_from_the_lengths_of_the_call():
    """FlashMLA 9241ae3 reads no argument of get_mla_metadata: a call plans for its own shape and lengths."""
    problem = FlashMla(BF16, lengths=(40, 17))
    meta, _ = get_mla_metadata(torch.tensor([1, 2, 3], dtype=torch.int32), 8, 1)
    before = meta.clone()
    problem.compare(*flash_mla_with_kvcache(**problem.given(), tile_scheduler_metadata=meta))
    assert meta.have_initialized
    assert torch.equal(meta, before)
    want, splits = problem.metadata(problem.given()["cache_seqlens"])
    assert torch.equal(meta.tile_scheduler_metadata, want)
    assert meta.num_splits.shape == splits.shape
    problem.compare(*flash_mla_with_kvcache(**problem.given(), tile_scheduler_metadata=meta, num_splits=None))
    with pytest.raises(ValueRangeError, match="each configuration needs its own"):
        flash_mla_with_kvcache(**FlashMla(BF16, lengths=(40,)).given(), tile_scheduler_metadata=meta)


@pytest.mark.parametrize("convention", ["object", "tensors"])
def test_the_switch_of_all_calls_makes_results_batch_invariant(convention):
    """A plan of the block is one afterwards, too: its number of rows says so."""
    problem = FlashMla(BF16, lengths=(6000, 40, 17))
    given = problem.given()

    def results(requests: slice, schedule: tuple[object, object]) -> list[torch.Tensor]:
        own = {name: given[name][requests] for name in ("q", "block_table", "cache_seqlens")}
        meta, num_splits = schedule
        splits = {} if convention == "object" else {"num_splits": num_splits}
        return list(flash_mla_with_kvcache(**given | own, tile_scheduler_metadata=meta, **splits))

    def scheduled(requests: slice) -> tuple[object, object]:
        if convention == "object":
            return get_mla_metadata()
        return problem.metadata(given["cache_seqlens"][requests])

    whole = slice(0, 3)
    with mla.batch_invariant():
        schedule = scheduled(whole)
        together = results(whole, schedule)
        for request in range(3):
            one = slice(request, request + 1)
            for got, want in zip(results(one, scheduled(one)), together, strict=True):
                assert torch.equal(got, want[one])
    for got, want in zip(results(whole, schedule), together, strict=True):
        assert torch.equal(got, want)
    usual = results(whole, scheduled(whole))
    assert not all(torch.equal(got, want) for got, want in zip(usual, together, strict=True))


def test_sparse_decode_takes_either():
    """Callers of vLLM 0.33 pass the first result alone, older ones both."""
    q, cache = torch.ones(1, 1, 4, 576).bfloat16(), torch.ones(1, 4, 1, 576).bfloat16()
    indices = torch.tensor([[[2, -1]]], dtype=torch.int32)
    meta, num_splits = get_mla_metadata(torch.tensor([2], dtype=torch.int32), 4, 1, 4, False, 2)
    given = {"q": q, "k_cache": cache, "block_table": None, "cache_seqlens": None, "head_dim_v": 512}
    for more in ({"num_splits": num_splits}, {}, {"num_splits": None}):
        out, _ = flash_mla_with_kvcache(**given, tile_scheduler_metadata=meta, indices=indices, **more)
        assert (out == 1).all()
        assert meta.have_initialized == (more.get("num_splits") is None)
    assert meta.config is not None
    assert meta.config.topk == 2
