"""Around attention: merging partial results, writing and reading caches, translating indices."""

from __future__ import annotations

from codegen.ops.common import KV_DTYPE, KV_SCALE, POOL
from codegen.signature.arguments import Op, Option, Scalar, Tensor

MERGE_STATES = Op(
    "merge_states",
    ("in_dtype", "out_dtype", "schedule"),
    (
        Tensor(
            "o",
            "in_dtype",
            ("num_states", "num_tokens", "num_heads"),
            ("n", "t", "h"),
            "head_dim",
            takes="fp32, or the type of the output",
        ),
        Tensor(
            "lse",
            "float32",
            ("num_states", "num_tokens", "num_heads"),
            ("n", "t", "h"),
            doc="Natural logarithms; a state with -inf or +inf is empty, and adds nothing. One with NaN makes the whole"
            " row NaN.",
        ),
        Tensor(
            "counts",
            "int32",
            ("num_tokens",),
            ("t",),
            optional=True,
            doc="Only the first so many states of a token count.",
        ),
        Tensor(
            "out",
            "out_dtype",
            ("num_tokens", "num_heads"),
            ("t", "h"),
            "head_dim",
            role="output",
            doc="0 where no state counts, or all are empty.",
        ),
        Tensor(
            "out_lse",
            "float32",
            ("num_tokens", "num_heads"),
            ("t", "h"),
            optional=True,
            role="output",
            made="unless_false",
            doc="-inf there.",
        ),
    ),
    selects=("o", "out"),
    options=(Option("out_dtype", "By default the type of ``out``, otherwise of ``o``."),),
    summary="Merge partial attention results: ``lse = logsumexp_i lse_i``, ``out = sum_i exp(lse_i - lse) o_i``.",
)

POWER_OF_TWO_SCALES = Scalar(
    "power_of_two_scales",
    "int32",
    "flag",
    0,
    doc="Whether the scales in the rows of an fp8_ds_mla cache are powers of two: the least one from"
    " ``max(amax / 448, 1e-4)``, as vLLM and FlashMLA store it. By default a scale is ``amax / 448``, and that of a"
    " group of zeros 2^-126. Refused for other caches.",
)

STORE_KV = Op(
    "store_kv",
    ("in_dtype", "kv_dtype", "d_qk", "d_v"),
    (
        Tensor(
            "latent",
            "in_dtype",
            ("num_tokens",),
            ("t",),
            "latent",
            takes="{in_dtype}",
            doc="``d_latent`` and ``d_rope`` are the columns of the format; most have 512 and 64.",
        ),
        Tensor(
            "rope",
            "in_dtype",
            ("num_tokens",),
            ("t",),
            "rope",
            takes="the type of ``latent``; or None where the format has no rope part",
        ),
        Tensor(
            "kv_cache",
            "kv_dtype",
            *POOL,
            "mla",
            role="updated",
            takes="the type of ``latent`` or e4m3; uint8 {rows}",
        ),
        Tensor(
            "slot_mapping",
            "int64",
            ("num_tokens",),
            ("",),
            doc="Where each token goes, ``page * page_size + offset``; a token with a negative slot is skipped. Of"
            " two tokens with one slot, either stays.",
        ),
        Tensor(
            "scale",
            "float32",
            (),
            (),
            1,
            optional=True,
            keyword=True,
            doc="What one unit of an e4m3 element stands for; needed for e4m3, refused otherwise.",
        ),
    ),
    (POWER_OF_TWO_SCALES,),
    selects=("latent", "kv_cache"),
    options=(KV_DTYPE,),
    summary="Write new tokens into a KV cache, quantising where its format is quantised.",
)

GATHER_KV = Op(
    "gather_kv",
    ("kv_dtype", "out_dtype", "d_qk", "d_v"),
    (
        Tensor("kv_cache", "kv_dtype", *POOL, "mla", takes="{elements}; uint8 {rows}"),
        Tensor("indices", "int32", ("num_rows",), ("",), doc="Global slots; a negative one gives a row of zeros."),
        Tensor(
            "out",
            "out_dtype",
            ("num_rows",),
            ("row",),
            "mla",
            role="output",
            doc="A tuple of latent and rope where one was given.",
        ),
    ),
    (KV_SCALE,),
    selects=("kv_cache", "out"),
    options=(
        KV_DTYPE,
        Option(
            "out_dtype",
            "By default the type of ``out``, otherwise of the cache; ``bf16`` for a quantised one.",
        ),
    ),
    summary="Read selected rows of a KV cache, dequantised.",
)

TO_GLOBAL_INDICES = Op(
    "to_global_indices",
    (),
    (
        Tensor(
            "req_id",
            "int32",
            ("num_tokens",),
            ("",),
            doc="The request of each token: its row of the block table.",
        ),
        Tensor("block_table", "int32", ("num_requests", "table_width"), ("b", "")),
        Tensor(
            "token_indices",
            "int32",
            ("num_tokens", "topk"),
            ("t", ""),
            doc="Positions within the request; a negative one is absent.",
        ),
        Tensor(
            "out",
            "int32",
            ("num_tokens", "topk"),
            ("t", ""),
            role="output",
            doc="``block_table[req, position // page_size] * page_size + position % page_size``; -1 for an absent"
            " position, one past the table, a page that is negative, or a slot beyond int32.",
        ),
    ),
    (Scalar("page_size", "int64", "positive", configured=True, doc="Slots of a page."),),
    selects=("token_indices",),
    summary="Translate positions within a request to global slots of a paged cache.",
)
