"""The reference agrees with torch SDPA in float64 and with cases worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from mla_kernels import reference
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tests.support.caches import encode
from tests.support.compare import SINGLE, Tolerance, assert_close, assert_same_bytes
from tests.support.problems import generator, random

DOUBLE = torch.float64
SCALE = 0.07
EXACT = Tolerance(1e-12, 1e-12)


def sdpa(q: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
    """q [s, h, 576], keys [n, 576], visible [s, n] -> [s, h, 512]."""
    shared = keys.expand(q.shape[1], -1, -1)
    attended = scaled_dot_product_attention(
        q.transpose(0, 1), shared, shared[..., :512], attn_mask=visible, scale=SCALE
    )
    return attended.transpose(0, 1)


def causal_mask(q_len: int, length: int) -> Tensor:
    return torch.ones(q_len, length, dtype=torch.bool).tril(length - q_len)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("q_len", "length"), [(1, 1), (1, 77), (4, 77), (9, 20), (20, 20)])
def test_decode_agrees_with_sdpa(causal: bool, q_len: int, length: int) -> None:
    source = generator(q_len)
    q, cache = random(source, 2, q_len, 3, 576).to(DOUBLE), random(source, 2, 90, 576).to(DOUBLE)
    lens = torch.tensor([length, length], dtype=torch.int32)
    out, lse = reference.decode(q, cache, seq_lens=lens, softmax_scale=SCALE, causal=causal, dtype=DOUBLE)
    mask = causal_mask(q_len, length) if causal else torch.ones(q_len, length, dtype=torch.bool)
    for b in range(2):
        assert_close("out", out[b], sdpa(q[b], cache[b, :length], mask), EXACT)
        logits = SCALE * torch.einsum("shd,nd->hsn", q[b], cache[b, :length]).masked_fill(~mask, -torch.inf)
        assert_close("lse", lse[b], logits.logsumexp(-1), EXACT)


def test_decode_by_hand() -> None:
    q = torch.zeros(1, 2, 1, 576)
    q[..., 0] = math.log(3.0)
    cache = torch.zeros(1, 2, 576)
    cache[0, 1, 0], cache[0, 0, 511], cache[0, 1, 511] = 1.0, 8.0, 4.0
    out, lse = reference.decode(q, cache, seq_lens=torch.tensor([2]), softmax_scale=1.0)
    # Token 0 sees key 0 alone; token 1 weighs the two keys 1 : 3.
    assert out[0, :, 0, 511].tolist() == pytest.approx([8.0, 5.0])
    assert out[0, :, 0, 0].tolist() == pytest.approx([0.0, 0.75])
    assert lse[0, 0].tolist() == pytest.approx([0.0, math.log(4.0)])


def test_causal_is_bottom_right_and_empty_rows_are_defined() -> None:
    q, cache = torch.zeros(3, 4, 2, 576), torch.ones(3, 5, 576)
    out, lse = reference.decode(q, cache, seq_lens=torch.tensor([0, 2, 5]), softmax_scale=1.0)
    infinite = -math.inf
    want = [[infinite] * 4, [infinite, infinite, 0.0, math.log(2)], [math.log(n) for n in (2, 3, 4, 5)]]
    for b in range(3):
        assert lse[b, 1].tolist() == pytest.approx(want[b])
        assert out[b, :, 1, 7].tolist() == [0.0 if value == infinite else 1.0 for value in want[b]]


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("split", [False, True])
def test_paging_and_split_tensors_change_nothing(page_size: int, split: bool) -> None:
    source = generator(5)
    lengths = (20, 7)
    rows, q = random(source, 2, 20, 576), random(source, 2, 2, 3, 576)
    lens = torch.tensor(lengths, dtype=torch.int32)
    plain = reference.decode(q, rows, seq_lens=lens, softmax_scale=SCALE)
    used = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(used), generator=source).int()
    table = torch.full((2, max(used)), 2147480000, dtype=torch.int32)
    pool = torch.full((sum(used), page_size, 576), torch.nan)
    for b, n in enumerate(lengths):
        table[b, : used[b]] = order[sum(used[:b]) :][: used[b]]
        for i in range(n):
            pool[table[b, i // page_size], i % page_size] = rows[b, i]
    cache = (pool[..., :512], pool[..., 512:]) if split else pool
    queries = (q[..., :512], q[..., 512:]) if split else q
    paged = reference.decode(queries, cache, table, lens, softmax_scale=SCALE)
    for name, got, want in zip(("out", "lse"), paged, plain, strict=True):
        assert_close(name, got, want, SINGLE)


@pytest.mark.parametrize("kv_dtype", ["e4m3", "fp8_ds_mla"])
def test_quantised_caches_are_read_from_their_bytes(kv_dtype: str) -> None:
    source = generator(6)
    values = random(source, 16, 576)
    stored = encode(values, kv_dtype, 0.013, exact_scales=False)
    if kv_dtype == "e4m3":
        known = stored.float() * 0.013
    else:
        scales = stored[:, 512:528].clone().view(torch.float32).repeat_interleave(128, -1)
        latent = stored[:, :512].clone().view(torch.float8_e4m3fn).float() * scales
        known = torch.cat([latent, stored[:, 528:].clone().view(torch.bfloat16).float()], -1)
    assert (known - values).abs().max() < 0.25
    q, lens = random(source, 1, 1, 4, 576), torch.tensor([16])
    got = reference.decode(
        q, stored[None], seq_lens=lens, softmax_scale=SCALE, kv_scale=0.013 if kv_dtype == "e4m3" else 1.0
    )
    want = reference.decode(q, known[None], seq_lens=lens, softmax_scale=SCALE)
    for name, got_part, want_part in zip(("out", "lse"), got, want, strict=True):
        assert_close(name, got_part, want_part, SINGLE)


def test_sparse_over_every_slot_is_dense() -> None:
    source = generator(7)
    q, pool = random(source, 1, 1, 3, 576), random(source, 4, 8, 576)
    dense = reference.decode(q, pool.view(1, 32, 576), seq_lens=torch.tensor([32]), softmax_scale=SCALE)
    shuffled = torch.randperm(32, generator=source).int()
    padded = torch.cat([torch.tensor([-1, -(2**31)], dtype=torch.int32), shuffled])
    sparse = reference.sparse_decode(q, pool, padded.view(1, 1, -1), softmax_scale=SCALE)
    out, max_logits, lse = reference.sparse_prefill(q[0], pool.view(32, 576), padded.view(1, -1), softmax_scale=SCALE)
    halves = reference.sparse_decode(
        q,
        pool,
        torch.tensor([[[*range(20), 99]]]),
        topk_length=torch.tensor([[20]]),
        softmax_scale=SCALE,
        extra_kv_cache=pool[2:],
        extra_indices=torch.tensor([[[*range(4, 16)]]]),
    )
    assert_close("out", sparse[0], dense[0], SINGLE)
    assert_close("lse", sparse[1], dense[1], SINGLE)
    assert_close("prefill out", out, dense[0][0], SINGLE)
    assert_close("prefill lse", lse, dense[1][0].T, SINGLE)
    assert_close("two caches", halves[0], dense[0], SINGLE)
    logits = SCALE * (q[0, 0] @ pool.view(32, 576).T)
    assert_close("max_logits", max_logits[0], logits.amax(-1), SINGLE)


def test_attention_sink_is_a_key_without_value() -> None:
    source = generator(8)
    q, pool, sink = random(source, 1, 1, 2, 576), random(source, 1, 6, 576), torch.tensor([0.3, -torch.inf])
    indices = torch.tensor([[[0, 1, 2, 3, 4, 5]]])
    out, lse = reference.sparse_decode(q, pool, indices, softmax_scale=SCALE, attn_sink=sink)
    logits = torch.cat([SCALE * (q[0, 0] @ pool[0].T), sink[:, None]], -1)
    values = torch.cat([pool[0, :, :512], torch.zeros(1, 512)])
    assert_close("out", out[0, 0], logits.softmax(-1) @ values, SINGLE)
    assert_close("lse", lse[0, :, 0], logits[:, :-1].logsumexp(-1), SINGLE)


def test_empty_selection_is_defined_with_any_sink() -> None:
    q, pool = torch.ones(1, 1, 2, 576), torch.full((1, 1, 576), torch.nan)
    sink = torch.tensor([-torch.inf, torch.inf])
    out, lse = reference.sparse_decode(q, pool, torch.tensor([[[-1]]]), softmax_scale=1.0, attn_sink=sink)
    assert (out == 0).all()
    assert torch.isneginf(lse).all()


def test_merge_of_parts_is_the_whole() -> None:
    source = generator(9)
    logits, values = random(source, 2, 3, 12, deviation=3.0), random(source, 12, 5)
    parts = [slice(0, 5), slice(5, 5), slice(5, 12), slice(0, 12)]
    lse = torch.stack([logits[..., part].logsumexp(-1) for part in parts])
    o = torch.stack([logits[..., part].softmax(-1) @ values[part] for part in parts])
    o[1] = torch.nan  # nobody wrote the empty part
    out, merged = reference.merge_states(o, lse, torch.tensor([3, 2], dtype=torch.int32))
    assert_close("out", out[0], logits[0].softmax(-1) @ values, SINGLE)
    assert_close("lse", merged[0], logits[0].logsumexp(-1), SINGLE)
    assert_close("out", out[1], o[0, 1], SINGLE)
    none, infinite = reference.merge_states(o, lse, torch.tensor([0, 0]))
    assert (none == 0).all()
    assert torch.isneginf(infinite).all()


def test_merge_by_hand() -> None:
    o = torch.tensor([8.0, 4.0]).view(2, 1, 1, 1)
    out, lse = reference.merge_states(o, torch.tensor([0.0, math.log(3.0)]).view(2, 1, 1))
    assert out.item() == pytest.approx(5.0)
    assert lse.item() == pytest.approx(math.log(4.0))


def test_store_quantises_by_hand() -> None:
    latent, rope = torch.zeros(2, 512), torch.zeros(2, 64)
    latent[0, :4] = torch.tensor([1.0, 1000.0, -0.26, 1e-9])
    cache = torch.zeros(2, 2, 576, dtype=torch.uint8)
    reference.store_kv(latent, rope, cache, torch.tensor([2, -1]), torch.tensor([0.5]))
    # 1 / 0.5 = 2 = 0x40; 1000 / 0.5 saturates at 448 = 0x7e; -0.52 rounds to -0.5 = 0xb0; the last underflows.
    assert cache[1, 0, :5].tolist() == [0x40, 0x7E, 0xB0, 0x00, 0x00]
    assert not cache[0].any()
    assert not cache[1, 1].any()


def test_store_ds_mla_by_hand() -> None:
    latent, rope = torch.zeros(1, 512), torch.full((1, 64), 1.5)
    latent[0, 128:130] = torch.tensor([896.0, -2.0])
    cache = torch.full((1, 1, 656), 0xFF, dtype=torch.uint8)
    reference.store_kv(latent, rope, cache, torch.tensor([0]))
    row = cache[0, 0]
    assert row[128:131].tolist() == [0x7E, 0xB8, 0x00]
    of_zeros = torch.finfo(torch.float32).tiny
    assert row[512:528].view(torch.float32).tolist() == [of_zeros, 2.0, of_zeros, of_zeros]
    assert (row[528:].view(torch.bfloat16) == 1.5).all()
    gathered = reference.gather_kv(cache, torch.tensor([-3, 0]), out_dtype="fp32")
    assert (gathered[0] == 0).all()
    assert gathered[1, 128:130].tolist() == [896.0, -2.0]


def test_store_copies_other_caches() -> None:
    source = generator(10)
    latent, rope = random(source, 3, 512).bfloat16(), random(source, 3, 64).bfloat16()
    cache = torch.zeros(2, 3, 576, dtype=torch.bfloat16)
    reference.store_kv(latent, rope, cache, torch.tensor([5, 0, 3]))
    assert_same_bytes("row", cache.view(6, 576)[[5, 0, 3]], torch.cat([latent, rope], -1))


def test_global_indices_by_hand() -> None:
    table = torch.tensor([[7, 5], [3, -1]], dtype=torch.int32)
    tokens = torch.tensor([[0, 4, 7, 8, -1], [3, 4, 0, -9, 2**31 - 1]], dtype=torch.int32)
    got = reference.to_global_indices(torch.tensor([0, 1]), table, tokens, page_size=4)
    assert got.tolist() == [[28, 20, 23, -1, -1], [15, -1, 12, -1, -1]]
