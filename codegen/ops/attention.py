"""Attention: over a dense cache, over selected slots of a cache, and over selected rows."""

from __future__ import annotations

from dataclasses import replace

from codegen.ops.common import COMPUTE_DTYPE, EXTRA_KV_DTYPE, KV_DTYPE, KV_SCALE, POOL, UNIT
from codegen.signature.arguments import LATENT, Op, Ragged, Scalar, Tensor

ATTENTION = ("q_dtype", "kv_dtype", "out_dtype", "load", "schedule", "d_qk", "d_v")
SCALES = (
    Scalar(
        "softmax_scale",
        "float",
        "finite",
        doc="Factor of the logits: ``head_dim ** -0.5`` of the head before absorption, which has ``qk_nope_head_dim +"
        " qk_rope_head_dim`` columns. With YaRN it is multiplied by ``m ** 2``, where ``m = 0.1 * mscale_all_dim *"
        " ln(factor) + 1``. For DeepSeek-V3 it is 0.1352, ``192 ** -0.5 * 1.3689 ** 2``, and never ``576 ** -0.5``; for"
        " DeepSeek-V4, whose heads have 512 columns, ``512 ** -0.5``.",
    ),
    Scalar("q_scale", "float", "finite", 1.0, doc=UNIT),
    KV_SCALE,
    Scalar("out_scale", "float", "finite", 1.0, doc="Factor of the output."),
)
FACTORS = {"q_scale": "Factor of ``q``.", "kv_scale": "Factor of ``kv``, of keys and of values."}
FLOAT_SCALES = tuple(replace(scale, doc=FACTORS.get(scale.name, scale.doc)) for scale in SCALES)
"""The scales of an op without elements of e4m3."""
MAX_SPLITS = Scalar(
    "max_splits",
    "int64",
    "count",
    0,
    doc="The most parts that a row is split into; 0 lets the payload choose, or is 1 with"
    " ``mla_kernels.batch_invariant``.",
)
OF_THE_PLAN = "Only without ``plan``. With a plan, pass it to ``kernel.plan``."

CACHE = "the type of ``q`` or e4m3; uint8 {rows}"
PER_QUERY = (("batch", "q_len", "num_heads"), ("b", "s", "h"))
PER_HEAD = (("batch", "num_heads", "q_len"), ("b", "h", "s"))
PER_TOKEN = (("q_len", "num_heads"), ("s", "h"))
EXTRA_POOL = (("extra_num_pages", "extra_page_size"), ("page", "token"))

COUNTS = "Only so many of a row's indices count; the others may be anything."
SECOND = "A second cache, attended together with the first."
LSE = "Natural logarithm of the sum of exponentials; -inf where "
ATTN_SINK = Tensor(
    "attn_sink",
    "float32",
    ("num_heads",),
    ("",),
    optional=True,
    keyword=True,
    doc="A logit without a value: ``out`` is multiplied by ``1 / (1 + exp(attn_sink - lse))``; ``lse`` is unchanged.",
)

DECODE = Op(
    "decode",
    (*ATTENTION, "compute_dtype"),
    (
        Tensor(
            "q",
            "q_dtype",
            *PER_QUERY,
            "mla",
            takes="{q_dtype}",
            doc="The absorbed queries of the ``q_len`` newest tokens of each request.",
        ),
        Tensor(
            "kv_cache",
            "kv_dtype",
            *POOL,
            "mla",
            takes=CACHE,
            doc="Without a block table, page ``b`` is the cache of request ``b``. Keys that any token of a request sees"
            " must be finite: a NaN or an infinity reaches the outputs of all its tokens, also of those that do not see"
            " it.",
        ),
        Tensor(
            "block_table",
            "int32",
            ("num_requests", "table_width"),
            ("b", ""),
            optional=True,
            doc="The pages of each request in order; entries past its length are not read.",
        ),
        Tensor(
            "seq_lens",
            "int32",
            ("num_requests",),
            ("",),
            doc="Tokens in the cache of each request, the new ones included; 0 is allowed. There are ``batch``"
            " requests, or as many as ``cu_seqlens_q`` says.",
        ),
        Tensor("out", "out_dtype", *PER_QUERY, "d_v", role="output", doc="0 where a token sees no key."),
        Tensor(
            "lse",
            "float32",
            *PER_HEAD,
            optional=True,
            role="output",
            made="unless_false",
            doc=LSE + "a token sees no key.",
        ),
        Tensor(
            "cu_seqlens_q",
            "int32",
            ("num_bounds",),
            ("",),
            optional=True,
            keyword=True,
            doc="For requests with different numbers of new tokens: request ``r`` has tokens ``cu_seqlens_q[r]`` to"
            " ``cu_seqlens_q[r + 1]`` of ``q``, whose ``batch`` is then 1. It has ``num_requests + 1`` elements; tokens"
            " from the last one on belong to no request, and nothing is written for them.",
        ),
        Tensor(
            "token_seq_lens",
            "int32",
            ("batch", "q_len"),
            ("b", "s"),
            optional=True,
            keyword=True,
            doc="How many of its request's first keys each query token sees, 0 to ``seq_lens``; [1, num_tokens] with"
            " ``cu_seqlens_q``, and tokens of no request may say anything. ``causal`` has no effect then.",
        ),
    ),
    (
        *SCALES,
        Scalar(
            "causal",
            "int32",
            "flag",
            1,
            doc="New token ``s`` sees ``seq_lens - q_len + 1 + s`` keys (aligned at the bottom right); otherwise all.",
        ),
        replace(MAX_SPLITS, planned=True, doc=OF_THE_PLAN),
        Scalar(
            "batch_invariant",
            "int32",
            "flag",
            0,
            planned=True,
            doc=OF_THE_PLAN + " ``mla_kernels.batch_invariant`` switches it on for all calls.",
        ),
        Scalar(
            "max_q_len",
            "int64",
            "count",
            0,
            planned=True,
            doc="With ``cu_seqlens_q``: the most new tokens of a request. " + OF_THE_PLAN,
        ),
    ),
    selects=("q", "kv_cache", "out"),
    options=(COMPUTE_DTYPE,),
    layout="block_table",
    ragged=Ragged("cu_seqlens_q", "max_q_len", "num_requests", "batch"),
    plans="seq_lens",
    summary="Attend from new tokens to a dense KV cache (absorbed MLA; DeepSeek-V2, arXiv:2405.04434, 2.1).",
    doc="With K the rows of the cache and V their first ``d_v`` columns,"
    " ``P = softmax(softmax_scale * q_scale * kv_scale * Q K^T)`` and ``out = out_scale * kv_scale * P V``.",
)

SPARSE_DECODE = Op(
    "sparse_decode",
    (*ATTENTION, "extra_kv_dtype"),
    (
        Tensor("q", "q_dtype", *PER_QUERY, "mla", takes="{q_dtype}"),
        Tensor("kv_cache", "kv_dtype", *POOL, "mla", takes=CACHE),
        Tensor(
            "indices",
            "int32",
            ("batch", "q_len", "topk"),
            ("b", "s", ""),
            doc="Global slots, ``page * page_size + offset``; a negative one is absent.",
        ),
        Tensor("out", "out_dtype", *PER_QUERY, "d_v", role="output", doc="0 where no index counts."),
        Tensor(
            "lse",
            "float32",
            *PER_HEAD,
            optional=True,
            role="output",
            made="unless_false",
            doc=LSE + "no index counts.",
        ),
        Tensor(
            "max_logits",
            "float32",
            *PER_HEAD,
            optional=True,
            role="output",
            made="on_request",
            doc="The largest scaled logit; -inf where no index counts.",
        ),
        Tensor(
            "topk_length",
            "int32",
            ("batch", "q_len"),
            ("b", "s"),
            optional=True,
            keyword=True,
            broadcast="q_len",
            doc=COUNTS,
        ),
        ATTN_SINK,
        Tensor("extra_kv_cache", "extra_kv_dtype", *EXTRA_POOL, "mla", optional=True, keyword=True, doc=SECOND),
        Tensor(
            "extra_indices",
            "int32",
            ("batch", "q_len", "extra_topk"),
            ("b", "s", ""),
            optional=True,
            keyword=True,
            doc="Global slots of the second cache.",
        ),
        Tensor(
            "extra_topk_length",
            "int32",
            ("batch", "q_len"),
            ("b", "s"),
            optional=True,
            keyword=True,
            broadcast="q_len",
            doc=COUNTS,
        ),
    ),
    (*SCALES, MAX_SPLITS),
    selects=("q", "kv_cache", "indices", "extra_kv_cache", "out"),
    options=(KV_DTYPE, EXTRA_KV_DTYPE),
    together=("extra_kv_cache", "extra_indices", "extra_topk_length"),
    summary="Attend from new tokens to selected slots of a KV cache (DeepSeek Sparse Attention).",
    doc="Scales are as in ``decode``.",
)

SPARSE_PREFILL = Op(
    "sparse_prefill",
    ATTENTION,
    (
        Tensor(
            "q",
            "q_dtype",
            *PER_TOKEN,
            "mla",
            bare=True,
            takes="{q_dtype}",
            doc=f"Where there is no rope part, ``d_qk`` is {LATENT}.",
        ),
        Tensor(
            "kv",
            "kv_dtype",
            ("kv_len",),
            ("token",),
            "mla",
            bare=True,
            takes="the type of ``q``",
        ),
        Tensor(
            "indices",
            "int32",
            ("q_len", "topk"),
            ("s", ""),
            doc="Rows of ``kv``; a negative one is absent.",
        ),
        Tensor("out", "out_dtype", *PER_TOKEN, "d_v", role="output", doc="0 where no index counts."),
        Tensor(
            "max_logits",
            "float32",
            *PER_TOKEN,
            optional=True,
            role="output",
            doc="The largest scaled logit; -inf where no index counts.",
        ),
        Tensor(
            "lse",
            "float32",
            *PER_TOKEN,
            optional=True,
            role="output",
            doc=LSE + "no index counts. Always returned.",
        ),
        Tensor("topk_length", "int32", ("q_len",), ("s",), optional=True, keyword=True, doc=COUNTS),
        ATTN_SINK,
        Tensor(
            "extra_kv",
            "kv_dtype",
            ("extra_kv_len",),
            ("token",),
            "mla",
            optional=True,
            keyword=True,
            bare=True,
            doc="Further rows, attended together with the first.",
        ),
        Tensor(
            "extra_indices",
            "int32",
            ("q_len", "extra_topk"),
            ("s", ""),
            optional=True,
            keyword=True,
            doc="Rows of ``extra_kv``.",
        ),
        Tensor("extra_topk_length", "int32", ("q_len",), ("s",), optional=True, keyword=True, doc=COUNTS),
    ),
    FLOAT_SCALES,
    selects=("q", "kv", "indices", "out"),
    together=("extra_kv", "extra_indices", "extra_topk_length"),
    summary="Attend from the tokens of a prompt to selected rows of one unpaged KV tensor.",
    doc="Scales are as in ``decode``, and everything else as in ``sparse_decode``.",
)
