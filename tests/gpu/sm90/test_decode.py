"""Dense decode of the sm90 payload: every variant over heads, lengths and scales, with unused memory poisoned."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.support.sm90 import MIXED, each, each_with
from tests.support import memory
from tests.support.problems import Decode
from tests.support.rows import Row


@each_with("num_heads", [1, 3, 9, 15, 16, 32, 48, 63, 64, 65, 112, 126, 127, 128])
def test_heads(variant: Row, num_heads: int) -> None:
    Decode(variant.name, num_heads=num_heads, seed=num_heads).check()


@pytest.mark.parametrize("causal", [True, False])
@each_with(
    "q_len, num_heads", [(2, 3), (2, 9), (2, 16), (4, 16), (67, 3), (68, 1), (100, 4), (127, 3), (128, 2), (2, 128)]
)
def test_query_tokens(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    lengths = (q_len + 9, 140, 20, 1, 0, 700)
    Decode(variant.name, lengths=lengths, q_len=q_len, num_heads=num_heads, causal=causal, seed=q_len).check()


@pytest.mark.parametrize("causal", [True, False])
@each_with("q_len, num_heads", [(3, 16), (1, 48), (7, 16), (1, 112)])
def test_tiles_with_an_empty_quarter(variant: Row, q_len: int, num_heads: int, causal: bool) -> None:
    """One of the warps that combine a tile's rows has none, and reaches each barrier earlier than the others."""
    Decode(
        variant.name, lengths=(20, 140, 0, 1, 97, 640), q_len=q_len, num_heads=num_heads, causal=causal, page_size=64
    ).check()


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


@each_with("num_heads, q_len", [(num_heads, q_len) for num_heads in (16, 64, 128) for q_len in (1, 2)])
def test_longer_sequences(variant: Row, num_heads: int, q_len: int) -> None:
    Decode(variant.name, lengths=MIXED, num_heads=num_heads, q_len=q_len, seed=4096).check()


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
    """Queries take turns with KV in the same memory, whether they pack into tiles or not."""
    Decode(
        variant.name,
        lengths=(700, 64, 1, 300, 129) * 60,
        num_heads=num_heads,
        q_len=min(2, variant.most("q_len")),
        seed=num_heads,
    ).check()


@each
@pytest.mark.parametrize("softmax_scale", [0.0, -0.05, 576**-0.5])
@pytest.mark.parametrize("num_heads", [16, 7])
def test_scales(variant: Row, softmax_scale: float, num_heads: int) -> None:
    Decode(variant.name, softmax_scale=softmax_scale, out_scale=0.7, num_heads=num_heads).check()


@each_with("q_len", [2, 128])
def test_nothing_but_masked_blocks_before_the_first_key(variant: Row, q_len: int) -> None:
    Decode(variant.name, lengths=(1, 2, 0, 65), q_len=q_len, num_heads=2, max_splits=3).check()
