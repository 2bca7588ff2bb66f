"""The schemas of ``torch.library``, and how their values are read. Generated; see codegen/ops."""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    """A tensor that an op returns; an extent is a number, an input and one of its dimensions, or the cache's width."""

    name: str
    dtype: str
    made: str
    shape: tuple[int | str | tuple[str, int], ...]


class Signature(NamedTuple):
    """An op as torch sees it.

    The arguments are in ``order``; those that are ``packed`` become two values, latent and rope, and a plan becomes
    three. The kernel is selected by the types of the tensors ``selects`` and by ``selects_by``, of which
    ``selects_only`` are no arguments of its launch, and by whether the tensor ``layout`` is there. A plan is made from
    the tensor ``plans``, and ``planned`` are its scalars; ``ragged`` is the one that is not 0 where requests have
    different numbers of query tokens.
    """

    schema: str
    order: tuple[str, ...]
    outputs: tuple[Output, ...]
    selects: tuple[str, ...]
    packed: tuple[str, ...] = ()
    selects_by: tuple[str, ...] = ()
    selects_only: tuple[str, ...] = ()
    layout: str = ""
    plans: str = ""
    ragged: str = ""
    planned: tuple[str, ...] = ()


SIGNATURES: dict[str, Signature] = {
    "decode": Signature(
        schema=(
            "("
            "Tensor q, "
            "Tensor? q_rope, "
            "Tensor kv_cache, "
            "Tensor? kv_rope, "
            "Tensor? block_table, "
            "Tensor seq_lens, "
            "Tensor? cu_seqlens_q, "
            "Tensor? token_seq_lens, "
            "Tensor? plan, "
            "str plan_variant, "
            "SymInt[] plan_shape, "
            "str? compute_dtype, "
            "float softmax_scale, "
            "float q_scale, "
            "float kv_scale, "
            "float out_scale, "
            "bool causal, "
            "SymInt max_splits, "
            "bool batch_invariant, "
            "SymInt max_q_len"
            ") -> (Tensor, Tensor)"
        ),
        order=(
            "q",
            "kv_cache",
            "block_table",
            "seq_lens",
            "cu_seqlens_q",
            "token_seq_lens",
            "plan",
            "compute_dtype",
            "softmax_scale",
            "q_scale",
            "kv_scale",
            "out_scale",
            "causal",
            "max_splits",
            "batch_invariant",
            "max_q_len",
        ),
        packed=("q", "kv_cache"),
        selects=("q", "kv_cache", "out"),
        selects_by=("compute_dtype",),
        selects_only=("compute_dtype",),
        layout="block_table",
        plans="seq_lens",
        ragged="max_q_len",
        planned=("max_splits", "batch_invariant", "max_q_len"),
        outputs=(
            Output("out", "out_dtype", "always", (("q", 0), ("q", 1), ("q", 2), "d_v")),
            Output("lse", "float32", "unless_false", (("q", 0), ("q", 2), ("q", 1))),
        ),
    ),
    "sparse_decode": Signature(
        schema=(
            "("
            "Tensor q, "
            "Tensor? q_rope, "
            "Tensor kv_cache, "
            "Tensor? kv_rope, "
            "Tensor indices, "
            "Tensor? topk_length, "
            "Tensor? attn_sink, "
            "Tensor? extra_kv_cache, "
            "Tensor? extra_kv_rope, "
            "Tensor? extra_indices, "
            "Tensor? extra_topk_length, "
            "str? kv_dtype, "
            "str? extra_kv_dtype, "
            "float softmax_scale, "
            "float q_scale, "
            "float kv_scale, "
            "float out_scale, "
            "SymInt max_splits"
            ") -> (Tensor, Tensor, Tensor)"
        ),
        order=(
            "q",
            "kv_cache",
            "indices",
            "topk_length",
            "attn_sink",
            "extra_kv_cache",
            "extra_indices",
            "extra_topk_length",
            "kv_dtype",
            "extra_kv_dtype",
            "softmax_scale",
            "q_scale",
            "kv_scale",
            "out_scale",
            "max_splits",
        ),
        packed=("q", "kv_cache", "extra_kv_cache"),
        selects=("q", "kv_cache", "indices", "extra_kv_cache", "out"),
        selects_by=("kv_dtype", "extra_kv_dtype"),
        selects_only=("kv_dtype", "extra_kv_dtype"),
        outputs=(
            Output("out", "out_dtype", "always", (("q", 0), ("q", 1), ("q", 2), "d_v")),
            Output("lse", "float32", "unless_false", (("q", 0), ("q", 2), ("q", 1))),
            Output("max_logits", "float32", "on_request", (("q", 0), ("q", 2), ("q", 1))),
        ),
    ),
    "sparse_prefill": Signature(
        schema=(
            "("
            "Tensor q, "
            "Tensor? q_rope, "
            "Tensor kv, "
            "Tensor? kv_rope, "
            "Tensor indices, "
            "Tensor? topk_length, "
            "Tensor? attn_sink, "
            "Tensor? extra_kv, "
            "Tensor? extra_kv_rope, "
            "Tensor? extra_indices, "
            "Tensor? extra_topk_length, "
            "float softmax_scale, "
            "float q_scale, "
            "float kv_scale, "
            "float out_scale"
            ") -> (Tensor, Tensor, Tensor)"
        ),
        order=(
            "q",
            "kv",
            "indices",
            "topk_length",
            "attn_sink",
            "extra_kv",
            "extra_indices",
            "extra_topk_length",
            "softmax_scale",
            "q_scale",
            "kv_scale",
            "out_scale",
        ),
        packed=("q", "kv", "extra_kv"),
        selects=("q", "kv", "indices", "out"),
        outputs=(
            Output("out", "out_dtype", "always", (("q", 0), ("q", 1), "d_v")),
            Output("max_logits", "float32", "always", (("q", 0), ("q", 1))),
            Output("lse", "float32", "always", (("q", 0), ("q", 1))),
        ),
    ),
    "merge_states": Signature(
        schema=(
            "("
            "Tensor o, "
            "Tensor lse, "
            "Tensor? counts, "
            "str? out_dtype"
            ") -> (Tensor, Tensor)"
        ),
        order=("o", "lse", "counts", "out_dtype"),
        selects=("o", "out"),
        selects_by=("out_dtype",),
        selects_only=("out_dtype",),
        outputs=(
            Output("out", "out_dtype", "always", (("o", 1), ("o", 2), ("o", 3))),
            Output("out_lse", "float32", "unless_false", (("o", 1), ("o", 2))),
        ),
    ),
    "store_kv": Signature(
        schema=(
            "("
            "Tensor latent, "
            "Tensor? rope, "
            "Tensor(a!) kv_cache, "
            "Tensor(b!)? kv_rope, "
            "Tensor slot_mapping, "
            "Tensor? scale, "
            "str? kv_dtype, "
            "bool power_of_two_scales"
            ") -> ()"
        ),
        order=("latent", "rope", "kv_cache", "slot_mapping", "scale", "kv_dtype", "power_of_two_scales"),
        packed=("kv_cache",),
        selects=("latent", "kv_cache"),
        selects_by=("kv_dtype",),
        selects_only=("kv_dtype",),
        outputs=(),
    ),
    "gather_kv": Signature(
        schema=(
            "("
            "Tensor kv_cache, "
            "Tensor? kv_rope, "
            "Tensor indices, "
            "str? kv_dtype, "
            "str? out_dtype, "
            "float kv_scale"
            ") -> Tensor"
        ),
        order=("kv_cache", "indices", "kv_dtype", "out_dtype", "kv_scale"),
        packed=("kv_cache",),
        selects=("kv_cache", "out"),
        selects_by=("kv_dtype", "out_dtype"),
        selects_only=("kv_dtype", "out_dtype"),
        outputs=(Output("out", "out_dtype", "always", (("indices", 0), "d_qk")),),
    ),
    "to_global_indices": Signature(
        schema=(
            "("
            "Tensor req_id, "
            "Tensor block_table, "
            "Tensor token_indices, "
            "SymInt page_size"
            ") -> Tensor"
        ),
        order=("req_id", "block_table", "token_indices", "page_size"),
        selects=("token_indices",),
        selects_by=("page_size",),
        outputs=(Output("out", "int32", "always", (("req_id", 0), ("token_indices", 1))),),
    ),
}
"""The signature of each op."""
