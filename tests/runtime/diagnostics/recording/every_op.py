"""A call of each op, with most of its arguments, small enough to record and replay in milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import mla_kernels as mla
import torch

from tests.runtime.small_decode import SCALE, Decode


def slots(*shape: int, end: int = 144) -> torch.Tensor:
    """Slots in an order that looks random, some of them absent."""
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.int32) * 37 % (end + 1) - 1).reshape(shape)


def decode() -> None:
    Decode().call()


def decode_of_pairs() -> None:
    """Pairs, strides, a plan with numbers of its own, several query tokens, outputs of the caller."""
    pool = torch.randn(9, 16, 1152).bfloat16()
    pair, rows = torch.randn(3, 2, 4, 576).bfloat16().split([512, 64], -1), (pool[..., :512], pool[..., 512:576])
    given = Decode().arguments(q=pair, kv_cache=rows, seq_lens=torch.tensor([0, 17, 40], dtype=torch.int32))
    mla.decode(
        **given, max_splits=3, batch_invariant=True, causal=False, lse=False, out=torch.empty(3, 2, 4, 512).bfloat16()
    )


def decode_without_pages() -> None:
    mla.decode(
        torch.randn(2, 1, 4, 576), torch.randn(2, 9, 576), seq_lens=torch.tensor([3, 9]).int(), softmax_scale=SCALE
    )


def decode_of_ragged_queries() -> None:
    """Requests with none, two and three query tokens, and one that belongs to no request."""
    small = Decode()
    q, bounds = torch.randn(1, 6, 4, 576).bfloat16(), torch.tensor([0, 0, 2, 5], dtype=torch.int32)
    mla.decode(**small.arguments(q=q, cu_seqlens_q=bounds, max_q_len=3))


def decode_by_lengths_of_tokens() -> None:
    """Tokens see fewer keys than their requests have."""
    small = Decode()
    q, lengths = torch.randn(3, 2, 4, 576).bfloat16(), small.seq_lens[:, None]
    mla.decode(**small.arguments(q=q, token_seq_lens=torch.cat([lengths, lengths // 3], 1)))


def decode_by_lengths_of_ragged_tokens() -> None:
    """The last one belongs to no request."""
    small = Decode()
    q, bounds = torch.randn(1, 6, 4, 576).bfloat16(), torch.tensor([0, 0, 2, 5], dtype=torch.int32)
    stated = torch.tensor([[17, 4, 0, 48, 21, -9]], dtype=torch.int32)
    mla.decode(**small.arguments(q=q, cu_seqlens_q=bounds, max_q_len=3, token_seq_lens=stated))


def sparse_decode() -> None:
    """A sink, a second cache, lengths of both, and the largest logits."""
    small = Decode()
    mla.sparse_decode(
        small.q,
        small.kv_cache,
        slots(3, 1, 6),
        topk_length=small.seq_lens.clamp(max=6),
        attn_sink=torch.arange(4.0),
        extra_kv_cache=small.kv_cache[:5],
        extra_indices=slots(3, 1, 4, end=80),
        softmax_scale=SCALE,
        return_max_logits=True,
    )


def sparse_decode_of_bytes() -> None:
    cache = torch.zeros(6, 16, 656, dtype=torch.uint8)
    rows = torch.randn(96, 576).bfloat16()
    mla.store_kv(rows[:, :512], rows[:, 512:], cache, torch.arange(96))
    mla.sparse_decode(Decode().q, cache, slots(3, 1, 20, end=40), softmax_scale=SCALE)


def sparse_prefill() -> None:
    queries, rows = torch.randn(5, 4, 576).half(), torch.randn(300, 576).half()
    mla.sparse_prefill(queries, rows, slots(5, 7, end=200), topk_length=torch.arange(5).int(), softmax_scale=SCALE)


def merge_states() -> None:
    mla.merge_states(torch.randn(3, 2, 4, 512), torch.randn(3, 2, 4), torch.tensor([3, 1]).int(), out_dtype="bf16")


def store_kv() -> None:
    cache = torch.zeros(6, 16, 576, dtype=torch.float8_e4m3fn)
    rows, where = torch.randn(4, 576).bfloat16(), torch.tensor([80, -1, 3, 81])
    mla.store_kv(rows[:, :512], rows[:, 512:], cache, where, scale=torch.tensor([0.01]))


def gather_kv() -> None:
    cache = torch.randn(6, 16, 576).to(torch.float8_e4m3fn)
    mla.gather_kv(cache, torch.tensor([90, -1, 5, 5]).int(), out_dtype="bf16", kv_scale=0.5)


def gather_kv_apart() -> None:
    out = torch.empty(2, 512).half(), torch.empty(2, 64).half()
    mla.gather_kv(torch.randn(6, 16, 576).half(), torch.tensor([90, 5]).int(), out=out)


def to_global_indices() -> None:
    table = torch.tensor([[4, 2], [7, -1]], dtype=torch.int32)
    mla.to_global_indices(torch.tensor([1, 0]).int(), table, slots(2, 5, end=40), page_size=16)


CALLS: tuple[Callable[[], None], ...] = (
    decode,
    decode_of_pairs,
    decode_without_pages,
    decode_of_ragged_queries,
    decode_by_lengths_of_tokens,
    decode_by_lengths_of_ragged_tokens,
    sparse_decode,
    sparse_decode_of_bytes,
    sparse_prefill,
    merge_states,
    store_kv,
    gather_kv,
    gather_kv_apart,
    to_global_indices,
)
