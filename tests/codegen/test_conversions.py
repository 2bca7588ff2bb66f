"""A conversion between problem structs accounts for every field, or nothing is rendered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen import abi
from codegen.schema import MatrixError
from codegen.signature.arguments import Scalar
from codegen.signature.conversions import CONVERSIONS, assignments

AS_DECODE, AS_GATHER, AS_EXTRA = CONVERSIONS
SOFT_CAP = Scalar("logits_soft_cap", "float", "finite", 0.0)


def test_a_prefill_is_the_decode_of_one_request():
    values = assignments(AS_DECODE)
    assert values["op"] == "MLA_OP_SPARSE_DECODE"
    assert (values["batch"], values["num_pages"], values["extra_num_pages"]) == ("1", "1", "1")
    assert (values["page_size"], values["extra_page_size"]) == ("problem.kv_len", "problem.extra_kv_len")
    assert (values["attn_sink"], values["q_rope_stride_h"]) == ("problem.attn_sink", "problem.q_rope_stride_h")
    assert not {"q_latent_stride_b", "kv_latent_stride_page", "max_splits", "reserved"} & values.keys()


def test_what_a_gather_is_given_and_what_it_copies():
    values = assignments(AS_GATHER)
    assert (values["indices"], values["num_rows"], values["kv_scale"]) == ("indices", "num_rows", "1")
    assert values["kv_rope_stride_page"] == "problem.kv_rope_stride_page"


def test_the_extra_cache_stands_where_the_first_was():
    values = assignments(AS_EXTRA)
    for name in (
        "kv_latent",
        "kv_rope_stride_page",
        "indices_stride_s",
        "topk_length",
        "num_pages",
        "page_size",
        "topk",
    ):
        assert values[name] == f"problem.extra_{name}"
    assert (values["q_latent"], values["attn_sink"]) == ("problem.q_latent", "problem.attn_sink")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("sparse_decode",), "as_decode: nothing gives sparse_decode.logits_soft_cap a value"),
        (("sparse_prefill",), "as_decode: sparse_prefill.logits_soft_cap goes nowhere"),
    ],
)
def test_an_argument_that_only_one_of_the_two_has_is_refused(monkeypatch, changed, message):
    add(monkeypatch, changed)
    with pytest.raises(MatrixError, match=message):
        assignments(AS_DECODE)


def test_an_argument_that_both_have_is_copied(monkeypatch):
    add(monkeypatch, ("sparse_decode", "sparse_prefill"))
    assert assignments(AS_DECODE)["logits_soft_cap"] == "problem.logits_soft_cap"


def test_a_dimension_without_a_rule_is_refused():
    with pytest.raises(MatrixError, match=r"nothing gives sparse_decode\.page_size a value"):
        assignments(replace(AS_DECODE, renamed={}))


def add(monkeypatch, names):
    for name in names:
        op = abi.OP[name]
        monkeypatch.setitem(abi.OP, name, replace(op, scalars=(*op.scalars, SOFT_CAP)))
