"""What every op computes, in plain torch: the answer that the kernels are checked against.

Each function takes the arguments of the public op of its name, reads the same bytes (quantised or not), and computes
one query token at a time in ``dtype`` (float32 unless told otherwise). Only rows that a token sees are read, so garbage
in other memory cannot reach its result. Kernels promise less: a row that one token of a request sees must be finite for
all of its tokens. Nothing here is fast.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mla_kernels.reference_rounding import rounded_queries, rounded_weights, rounds_to_e4m3
from mla_kernels.reference_rows import Packed, format_of, read_rows, slots_of, write_rows
from mla_kernels.tensors import DTypeLike, element_name

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def decode(
    q: Packed,
    kv_cache: Packed,
    block_table: Tensor | None = None,
    seq_lens: Tensor | None = None,
    *,
    softmax_scale: float,
    causal: bool = True,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    cu_seqlens_q: Tensor | None = None,
    token_seq_lens: Tensor | None = None,
    compute_dtype: DTypeLike | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Dense attention of each request's last ``q_len`` tokens over its cached keys.

    Parameters
    ----------
    q : [batch, q_len, num_heads, d_qk]
    kv_cache : [num_pages, page_size, d_qk], or uint8 [num_pages, page_size, bytes of a row]
    block_table : int32 [batch, table_width], optional
        Without one, page ``b`` holds request ``b``.
    seq_lens : int32 [batch]
    softmax_scale : float, factor of the logits
    causal : bool, whether a token sees only the keys up to its own
    q_scale : float, factor of the queries
    kv_scale : float, factor of the elements of an e4m3 cache
    out_scale : float, factor of the output
    cu_seqlens_q : int32 [num_requests + 1], optional
        The tokens of each request, where ``q`` is one batch of all; without it, request ``b`` has those of batch ``b``.
    token_seq_lens : int32 [batch, q_len], optional, how many of its request's first keys each token sees
    compute_dtype : str or dtype, optional, ``e4m3`` to round Q and P as kernels do that multiply in it
    dtype : torch.dtype, what the function computes in

    Returns
    -------
    out : [batch, q_len, num_heads, d_v]
    lse : [batch, num_heads, q_len], natural logarithm; -inf (and out 0) where nothing is seen, or of no request
    """
    if seq_lens is None:
        raise TypeError("decode needs seq_lens")
    rounds = rounds_to_e4m3(compute_dtype)
    queries = (rounded_queries(_packed(q)) if rounds else _packed(q)).to(dtype) * q_scale
    batch, q_len, num_heads, _ = queries.shape
    d_v = format_of(kv_cache).d_v
    out = queries.new_zeros(batch, q_len, num_heads, d_v)
    lse = queries.new_full((batch, num_heads, q_len), -torch.inf)
    bounds = None if cu_seqlens_q is None else cu_seqlens_q.tolist()
    for r, length in enumerate(seq_lens.tolist()):
        keys = read_rows(kv_cache, slots_of(kv_cache, block_table, r, length), kv_scale, dtype)
        b, begin, end = (r, 0, q_len) if bounds is None else (0, *bounds[r : r + 2])
        for s in range(begin, end):
            if token_seq_lens is None:
                seen = max(length - (end - 1 - s), 0) if causal else length
            else:
                seen = int(token_seq_lens[b, s])
            out[b, s], _, lse[b, :, s] = _attend(queries[b, s], keys[:seen], d_v, softmax_scale, rounds=rounds)
    return out * out_scale, lse


def sparse_decode(
    q: Packed,
    kv_cache: Packed,
    indices: Tensor,
    *,
    softmax_scale: float,
    topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    extra_kv_cache: Packed | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    return_max_logits: bool = False,
    kv_dtype: str | None = None,
    extra_kv_dtype: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, ...]:
    """Attention of each token over the rows that its indices select, twice over one selected twice; see :func:`decode`.

    Parameters
    ----------
    q : [batch, q_len, num_heads, d_qk]
    kv_cache : [num_pages, page_size, d_qk], or uint8 [num_pages, page_size, bytes of a row]
    indices : int32 [batch, q_len, topk], global slots; a negative one is absent
    softmax_scale : float
    topk_length : int32 [batch, q_len], how many leading indices count
    attn_sink : float32 [num_heads], the logit of a key without a value; it changes ``out`` only
    extra_kv_cache : [extra_num_pages, extra_page_size, d_qk], attended together with the first cache
    extra_indices : int32 [batch, q_len, extra_topk], global slots of the second cache
    extra_topk_length : int32 [batch, q_len], how many leading ones of them count
    q_scale : float
    kv_scale : float
    out_scale : float
    return_max_logits : bool
    kv_dtype : str, optional, the format of the first cache, where others have rows of as many bytes
    extra_kv_dtype : str, optional, that of the second cache; by default the first one's, if it has such rows
    dtype : torch.dtype

    Returns
    -------
    out : [batch, q_len, num_heads, d_v]
    lse : [batch, num_heads, q_len]
    max_logits : [batch, num_heads, q_len], only with ``return_max_logits``
    """
    queries = _packed(q).to(dtype) * q_scale
    batch, q_len, num_heads, _ = queries.shape
    d_v = format_of(kv_cache, kv_dtype).d_v
    out = queries.new_zeros(batch, q_len, num_heads, d_v)
    lse, max_logits = queries.new_zeros(2, batch, num_heads, q_len)
    for b in range(batch):
        for s in range(q_len):
            keys = read_rows(kv_cache, _selected(indices, topk_length, (b, s)), kv_scale, dtype, kv_dtype)
            if extra_kv_cache is not None and extra_indices is not None:
                slots = _selected(extra_indices, extra_topk_length, (b, s))
                keys = torch.cat([keys, read_rows(extra_kv_cache, slots, kv_scale, dtype, extra_kv_dtype or kv_dtype)])
            token = _attend(queries[b, s], keys, d_v, softmax_scale, attn_sink)
            out[b, s], max_logits[b, :, s], lse[b, :, s] = token
    return (out * out_scale, lse, max_logits) if return_max_logits else (out * out_scale, lse)


def sparse_prefill(
    q: Packed,
    kv: Packed,
    indices: Tensor,
    *,
    softmax_scale: float,
    topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    extra_kv: Packed | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    q_scale: float = 1.0,
    kv_scale: float = 1.0,
    out_scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`sparse_decode` without batch and pages; scales are as there.

    Parameters
    ----------
    q : [q_len, num_heads, d_qk]
    kv : [kv_len, d_qk]
    indices : int32 [q_len, topk]
        Rows of ``kv``; a negative one is absent.
    softmax_scale : float
    topk_length : int32 [q_len], how many leading indices count
    attn_sink : float32 [num_heads], the logit of a key without a value; it changes ``out`` only
    extra_kv : [extra_kv_len, d_qk], attended together with the first rows
    extra_indices : int32 [q_len, extra_topk], optional
        Rows of ``extra_kv``.
    extra_topk_length : int32 [q_len], how many leading ones of them count
    q_scale : float
    kv_scale : float
    out_scale : float
    dtype : torch.dtype

    Returns
    -------
    out : [q_len, num_heads, d_v]
    max_logits : [q_len, num_heads]
    lse : [q_len, num_heads]
    """
    out, lse, max_logits = sparse_decode(
        _packed(q)[None],
        _one_token_pages(kv),
        indices[None],
        softmax_scale=softmax_scale,
        topk_length=None if topk_length is None else topk_length[None],
        attn_sink=attn_sink,
        extra_kv_cache=None if extra_kv is None else _one_token_pages(extra_kv),
        extra_indices=None if extra_indices is None else extra_indices[None],
        extra_topk_length=None if extra_topk_length is None else extra_topk_length[None],
        q_scale=q_scale,
        kv_scale=kv_scale,
        out_scale=out_scale,
        return_max_logits=True,
        dtype=dtype,
    )
    return out[0], max_logits[0].T, lse[0].T


def merge_states(
    o: Tensor, lse: Tensor, counts: Tensor | None = None, *, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Attention over the union of disjoint key sets, from the attention over each.

    Parameters
    ----------
    o : [num_states, num_tokens, num_heads, head_dim]
    lse : [num_states, num_tokens, num_heads]
        A state whose lse is -inf or +inf is empty and adds nothing, whatever its ``o`` holds.
    counts : int32 [num_tokens], optional
        How many leading states of a token count.
    dtype : torch.dtype
        What the function computes in.

    Returns
    -------
    out : [num_tokens, num_heads, head_dim]
    lse : [num_tokens, num_heads]
    """
    absent = torch.isinf(lse)
    if counts is not None:
        state = torch.arange(len(o), device=o.device)
        absent = absent | (state[:, None] >= counts)[:, :, None]
    weights = lse.to(dtype).masked_fill(absent, -torch.inf)
    merged = weights.logsumexp(0)
    share = torch.exp(weights - merged).masked_fill(absent, 0.0)
    out = (share[..., None] * o.to(dtype).masked_fill(absent[..., None], 0.0)).sum(0)
    return out, merged


def store_kv(
    latent: Tensor,
    rope: Tensor | None,
    kv_cache: Packed,
    slot_mapping: Tensor,
    scale: Tensor | None = None,
    *,
    power_of_two_scales: bool = False,
    kv_dtype: str | None = None,
) -> None:
    """Write one cache row per token, quantising as the cache asks; a negative slot is skipped.

    Parameters
    ----------
    latent : [num_tokens, d_latent]
    rope : [num_tokens, d_rope], or None where the format has no rope part
    kv_cache : [num_pages, page_size, d_qk], or uint8 [num_pages, page_size, bytes of a row]
        It is written. An e4m3 cache holds value / scale, ``fp8_ds_mla`` a scale (amax / 448) per 128 columns.
    slot_mapping : int64 [num_tokens]
        Global slots.
    scale : float32 [1], optional
        The scale of an e4m3 cache.
    power_of_two_scales : bool
        Whether to round the scales in rows up, to ``2 ** ceil(log2(max(amax / 448, 1e-4)))``.
    kv_dtype : str, optional
        The format of the cache, where two have rows of as many bytes.
    """
    keep = slot_mapping >= 0
    rope = latent[:, :0] if rope is None else rope
    latent, rope, slots = latent[keep], rope[keep], slot_mapping[keep].long()
    write_rows(kv_cache, slots, latent, rope, scale, power_of_two_scales=power_of_two_scales, kv_dtype=kv_dtype)


def gather_kv(
    kv_cache: Packed,
    indices: Tensor,
    *,
    out_dtype: DTypeLike = "bf16",
    kv_scale: float = 1.0,
    kv_dtype: str | None = None,
) -> Tensor:
    """The dequantised rows [num_rows, d_qk] of a cache.

    Parameters
    ----------
    kv_cache : [num_pages, page_size, d_qk], or uint8 [num_pages, page_size, bytes of a row]
    indices : int32 [num_rows]
        Global slots; a negative one gives a row of zeros.
    out_dtype : str or dtype
        The type of the rows.
    kv_scale : float
        Factor of the elements of an e4m3 cache.
    kv_dtype : str, optional
        The format of the cache, where two have rows of as many bytes.
    """
    rows = read_rows(kv_cache, indices.clamp(min=0), kv_scale, torch.float32, kv_dtype)
    return rows.masked_fill(indices[:, None] < 0, 0.0).to(DTYPES[element_name(out_dtype)])


def to_global_indices(req_id: Tensor, block_table: Tensor, token_indices: Tensor, *, page_size: int) -> Tensor:
    """Each request's token positions as global slots; -1 where there is no such token or page.

    Parameters
    ----------
    req_id : int32 [num_tokens]
        The request of each token.
    block_table : int32 [num_requests, table_width]
    token_indices : int32 [num_tokens, topk]
        Positions within the request; a negative one is absent.
    page_size : int
        Slots of a page.
    """
    out = torch.full_like(token_indices, -1)
    for row, request in enumerate(req_id.tolist()):
        for column, token in enumerate(token_indices[row].tolist()):
            block = token // page_size
            if token >= 0 and block < block_table.shape[1]:
                page = int(block_table[request, block])
                out[row, column] = page * page_size + token % page_size if page >= 0 else -1
    return out


def _packed(value: Packed) -> Tensor:
    return torch.cat(value, -1) if isinstance(value, tuple) else value


def _one_token_pages(kv: Packed) -> Packed:
    return (kv[0][:, None], kv[1][:, None]) if isinstance(kv, tuple) else kv[:, None]


def _selected(indices: Tensor, topk_length: Tensor | None, token: tuple[int, ...]) -> Tensor:
    """The slots that one token's indices select."""
    slots = indices[token]
    if topk_length is not None:
        slots = slots[: int(topk_length[token])]
    return slots[slots >= 0]


def _attend(
    q: Tensor, keys: Tensor, d_v: int, softmax_scale: float, attn_sink: Tensor | None = None, *, rounds: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """One token: q [num_heads, d_qk] over keys [n, d_qk]; out [num_heads, d_v], max_logits and lse [num_heads]."""
    if len(keys) == 0:
        empty = q.new_full((len(q),), -torch.inf)
        return q.new_zeros(len(q), d_v), empty, empty
    logits = softmax_scale * (q @ keys.T)
    out = (rounded_weights(logits) if rounds else logits.softmax(-1)) @ keys[:, :d_v]
    lse = logits.logsumexp(-1)
    if attn_sink is not None:
        out = out / (1.0 + torch.exp(attn_sink.to(q.dtype) - lse))[:, None]
    return out, logits.amax(-1), lse
