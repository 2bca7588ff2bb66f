"""Ranks that share the caches of all requests: the dense backend's layers, combined as vLLM combines them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from mla_kernels.compat._vllm.token_lengths import TokenLengths

from tests.runtime.compat.stand_ins import RELEASES, Overrides, installed
from tests.runtime.compat.steps.ranks import Ranks, held

LENGTHS = [70, 3, 33, 16]
"""Tokens of requests, of which the second has none on some ranks."""


@pytest.fixture(params=list(RELEASES))
def vllm(monkeypatch, request) -> Iterator[Overrides]:
    """Install a package ``vllm`` of stand-ins of a release; the classes for GPUs run on the host."""
    for overrides in installed(monkeypatch, request.param):
        monkeypatch.setattr("mla_kernels.compat._vllm.dense.current_arch", lambda: "cpu")
        yield overrides


def run(ranks: Ranks) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [ranks.layer(rank, ranks.metadata(rank)) for rank in range(ranks.world_size)]


@pytest.mark.parametrize("q_lens", [(1,) * 4, (2,) * 4, (3,) * 4, (3, 1, 2, 1), (3, 0, 1, 2)], ids=str)
@pytest.mark.parametrize(("world_size", "interleave"), [(2, 1), (3, 1), (2, 4), (4, 16), (8, 2)])
def test_ranks_together_attend_to_whole_caches(vllm, world_size, interleave, q_lens):
    ranks = Ranks(vllm, "cpu", world_size, interleave, heads=24, most=LENGTHS, q_lens=q_lens)
    results = run(ranks)
    ranks.check(results)
    for out, lse in results:
        assert lse.shape == out.shape[:2]
        assert lse.is_contiguous()


def test_a_causal_mask_of_a_ranks_own_tokens_would_be_wrong(vllm):
    ranks = Ranks(vllm, "cpu", 2, 1, heads=8, most=LENGTHS, q_lens=(3,) * 4)
    metadata = [ranks.metadata(rank) for rank in range(2)]
    for each in metadata:
        each.token_seq_lens = None
    with pytest.raises(AssertionError):
        ranks.check([ranks.layer(rank, each) for rank, each in enumerate(metadata)])


@pytest.mark.parametrize("q_lens", [(2,) * 4, (3, 0, 1, 2)], ids=str)
def test_the_next_step_of_a_shape_is_where_a_graph_reads_it(vllm, q_lens):
    """Metadata of the first step serve layers of the second one."""
    ranks = Ranks(vllm, "cpu", 2, 4, heads=8, most=LENGTHS, q_lens=q_lens)
    first = [ranks.metadata(rank) for rank in range(2)]
    ranks.advance([41, 3, 9, 2])
    second = [ranks.metadata(rank) for rank in range(2)]
    for before, after in zip(first, second, strict=True):
        assert before.token_seq_lens.data_ptr() == after.token_seq_lens.data_ptr()
    ranks.check([ranks.layer(rank, each) for rank, each in enumerate(first)])


def test_requests_that_pad_a_graph_see_nothing(vllm):
    ranks = Ranks(vllm, "cpu", 2, 1, heads=8, most=[70, 5, 3], q_lens=(2, 2, 2))
    ranks.advance([70, 5, 0])
    for rank in range(2):
        metadata = ranks.metadata(rank)
        assert metadata.token_seq_lens[2].tolist() == [0, 0]
        out, lse = ranks.layer(rank, metadata)
        assert not out[4:].any()
        assert bool((lse[4:] == -torch.inf).all())


@pytest.mark.parametrize("interleave", [1, 4])
def test_one_new_token_needs_no_lengths(vllm, interleave):
    """Nor does a step of one rank."""
    assert Ranks(vllm, "cpu", 2, interleave, 8, LENGTHS, (1,) * 4).metadata(0).token_seq_lens is None
    assert Ranks(vllm, "cpu", 2, interleave, 8, LENGTHS, (1, 0, 1, 1)).metadata(0).token_seq_lens is None
    assert Ranks(vllm, "cpu", 1, interleave, 8, LENGTHS, (2,) * 4).metadata(0).token_seq_lens is None


def test_vllm_may_decode_several_new_tokens_on_ranks(vllm):
    """Its base then leaves the threshold between decode and prefill as it is, and does not refuse an interleave."""
    ranks = Ranks(vllm, "cpu", 2, 4, heads=8, most=LENGTHS, q_lens=(2,) * 4)
    assert ranks.builders[0].supports_dcp_with_varlen is True
    assert ranks.impls[0].supports_mtp_with_cp_non_trivial_interleave_size is True


@pytest.mark.parametrize("interleave", [1, 3, 16])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_lengths_of_tokens_count_what_a_rank_has(world_size, interleave):
    totals, bounds = torch.tensor([50, 0, 131, 7]).int(), torch.tensor([0, 3, 3, 7, 8]).int()
    seen = [48, 49, 50, 128, 129, 130, 131, 7]
    for rank in range(world_size):
        mine = held(torch.arange(200), rank, world_size, interleave)
        lengths = TokenLengths(rank, world_size, interleave)
        ragged = lengths.of_ragged(totals, bounds, 10, 4)
        assert ragged.dtype == torch.int32
        assert ragged[0, :8].tolist() == [int(mine[:n].sum()) for n in seen]
        batch = lengths.of_batch(totals, 2)
        assert batch.tolist() == [[int(mine[: max(n + at, 0)].sum()) for at in (-1, 0)] for n in totals.tolist()]


def test_nothing_waits_for_a_device():
    """Tensors of the device ``meta`` have no values that a host could read."""
    lengths = TokenLengths(1, 2, 4)
    totals, bounds = torch.empty(4, dtype=torch.int32, device="meta"), torch.empty(5, dtype=torch.int32, device="meta")
    assert lengths.of_batch(totals, 3).shape == (4, 3)
    assert lengths.of_ragged(totals, bounds, 7, 3).shape == (1, 7)
