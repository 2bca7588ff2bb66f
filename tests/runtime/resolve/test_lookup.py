"""From a config to a variant: equality on baked traits, membership on accepted ones, priority, and explanations."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace

import mla_kernels as mla
import pytest
from mla_kernels import _launcher
from mla_kernels._types import FIELDS
from mla_kernels.errors import ValueRangeError, VariantNotFoundError
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Choices, Range, Variant
from mla_kernels.resolve import explanation

NEAREST = 8


def test_lookup_finds_the_exact_variant():
    config = {"op": "decode", "arch": "cpu", "q_dtype": "bf16", "kv_dtype": "e4m3", "out_dtype": "bf16"}
    kernel = mla.lookup(**config, load="direct", schedule="split", kv_layout="paged", page_size=64, num_heads=128)
    assert kernel.variant.name == "cpu_decode_qbf16_kve4m3_obf16_direct_split"
    assert kernel.config["page_size"] == 64
    assert repr(kernel) == "<Kernel cpu_decode_qbf16_kve4m3_obf16_direct_split, page_size=64, num_heads=128>"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"op": "decode", "q_dtype": "fp32"}, "cpu_decode_qfp32_kvfp32_ofp32_direct_split"),
        ({"op": "sparse_prefill", "q_dtype": "fp16"}, "cpu_sparse_prefill_qfp16_kvfp16_ofp16_direct_rows"),
        ({"op": "merge_states", "in_dtype": "fp32", "out_dtype": "bf16"}, "cpu_merge_states_ifp32_obf16_rows"),
        ({"op": "store_kv", "in_dtype": "bf16", "kv_dtype": "fp8_ds_mla"}, "cpu_store_kv_ibf16_kvfp8_ds_mla"),
        ({"op": "gather_kv", "kv_dtype": "e4m3", "out_dtype": "fp16"}, "cpu_gather_kv_kve4m3_ofp16"),
        ({"op": "to_global_indices", "page_size": 64}, "cpu_to_global_indices"),
    ],
)
def test_cache_and_output_follow_the_input_unless_stated(config, name):
    assert mla.lookup(**config).variant.name == name


def test_a_config_has_the_fields_of_the_matrix():
    assert tuple(inspect.signature(mla.lookup).parameters) == FIELDS


def test_lookup_is_cached_per_config():
    config = {"op": "decode", "q_dtype": "bf16", "num_heads": 16}
    assert mla.lookup(**config) is mla.lookup(**config, arch="cpu")
    assert mla.lookup(**config) is not mla.lookup(**config, q_len=2)


def test_every_variant_is_found_by_its_own_traits():
    listed = mla.variants()
    assert len(listed) == len({variant.name for variant in listed})
    for variant in listed:
        assert mla.lookup(op=variant.op, arch=variant.arch, **variant.baked).variant is variant


def test_variants_filters():
    assert {variant.op for variant in mla.variants()} == set(_launcher.OPS)
    for variant in mla.variants(op="decode", kv_dtype="e4m3"):
        assert (variant.op, variant.baked["kv_dtype"]) == ("decode", "e4m3")
    assert {variant.op for variant in mla.variants(kv_dtype="fp8_ds_mla")} >= {"decode", "store_kv", "gather_kv"}
    assert mla.variants(op="decode", page_size=48) == mla.variants(op="decode")
    assert mla.variants(op="decode", arch="sm90a") == ()


def toy(name: str, priority: int = 0, schedule: str = "a", **accepts: Choices | Range) -> Variant:
    return Variant(name, "decode", "toy", "toy", priority, {"q_dtype": "bf16", "schedule": schedule}, accepts)


def test_priority_decides_and_then_the_name():
    index = Index([toy("b"), toy("c", 2), toy("a"), toy("d", -1)])
    assert [variant.name for variant in index.matching({"q_dtype": "bf16"})] == ["c", "a", "b", "d"]
    assert index.best({"arch": "toy"}).name == "c"
    assert index.best({"arch": "other"}) is None


def test_accepted_sets_and_ranges():
    exact = toy("exact", page_size=Choices((64, 128)))
    wide = toy("wide", -1, page_size=Range(16, 256, 16))
    index = Index([exact, wide])
    assert index.best({"page_size": 64}) is exact
    assert index.best({"page_size": 48}) is wide
    assert index.matching({}) == (exact, wide)
    assert index.matching({"page_size": 56}) == ()
    assert index.matching({"page_size": 272}) == ()


def test_numbers_of_query_rows_that_are_left_open_stay_open():
    few = toy("few", 5, num_heads=Range(1, 16), q_len=Range(1, 2))
    many = toy("many", num_heads=Range(1, 128), q_len=Range(1))
    index = Index([few, many])
    assert index.best({"arch": "toy", "num_heads": 16, "q_len": 2}) is few
    assert index.best({"arch": "toy", "num_heads": 16, "q_len": 3}) is many
    for config in ({}, {"num_heads": 16}, {"q_len": 1}):
        assert index.matching({"arch": "toy", **config}) == (many, few)
    assert index.matching({}) == (few, many), "variants of several archs are no choice"


def test_explain_says_what_to_name_for_a_higher_priority(monkeypatch):
    few = toy("few", 5, num_heads=Range(1, 16), q_len=Range(1, 2))
    many = toy("many", num_heads=Range(1, 128), q_len=Range(1))
    found = SimpleNamespace(indices={"decode": Index([few, many])}, rejected=())
    monkeypatch.setattr(explanation, "payloads", lambda: found)
    (other,) = explanation.explained("decode", {"arch": "toy"}).candidates
    assert other.reason == "matches too, priority 5, preferred if you name a num_heads of 1 to 16 and a q_len of 1 to 2"
    (other,) = explanation.explained("decode", {"arch": "toy", "num_heads": 16, "q_len": 1}).candidates
    assert other.reason == "matches too, priority 0"


def test_nearest_misses_the_fewest_fields_first():
    near = toy("near", page_size=Choices((64,)))
    far = toy("far", 5, "b", page_size=Choices((64,)))
    index = Index([far, near])
    config = {"arch": "toy", "q_dtype": "bf16", "schedule": "a", "page_size": 32}
    assert index.nearest(config, 8) == ((near, "page_size"), (far, "schedule"))
    assert index.nearest(config, 1) == ((near, "page_size"),)


def test_explain_says_which_and_why():
    explanation = mla.explain({"op": "decode", "kv_dtype": "e4m3", "schedule": "split"}, q_dtype="bf16")
    assert explanation.chosen.name == "cpu_decode_qbf16_kve4m3_obf16_direct_split"
    assert "is served by cpu_decode_qbf16_kve4m3_obf16_direct_split: priority 0, the only match" in str(explanation)
    both = mla.explain(op="decode", kv_dtype="e4m3")
    assert "the first of 3 matches" in str(both)
    assert len(both.candidates) == 2
    json.dumps(both.as_dict())


def test_not_found_lists_the_nearest_with_one_reason_each_and_the_command():
    with pytest.raises(VariantNotFoundError) as caught:
        mla.lookup(op="decode", arch="cpu", q_dtype="bf16", kv_dtype="fp32", page_size=64, num_heads=128)
    asked, *lines = str(caught.value).splitlines()
    assert asked.startswith("no variant serves op=decode arch=cpu q_dtype=bf16 kv_dtype=fp32 out_dtype=bf16")
    assert lines[0] == "  cpu_decode_qbf16_kvbf16_obf16_direct_split: kv_dtype is fp32; accepts bf16"
    assert len(lines) == NEAREST + 1
    assert all(line.startswith("  cpu_decode_") and line.count(": ") == 1 for line in lines[:NEAREST])
    assert lines[-1] == (
        "to add it: nox -s generate -- add op=decode arch=cpu q_dtype=bf16 kv_dtype=fp32 out_dtype=bf16 "
        "load=direct schedule=split"
    )
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"op": "store_kv", "in_dtype": "fp16", "kv_dtype": "bf16"}, "store_kv copies or quantises"),
        ({"op": "decode", "q_dtype": "e4m3"}, "the CPU engine keeps Q and P in at least 16 bits"),
        ({"op": "decode", "num_heads": 0}, "num_heads 0 is outside the domain of the matrix: 1 and up"),
        ({"op": "decode", "arch": "sm90a"}, "no payload for arch sm90a is installed; installed: cpu"),
        ({"op": "decode", "schedule": "seesaw"}, "schedule seesaw is outside the domain of the matrix: split, rows"),
    ],
)
def test_no_command_where_the_matrix_has_no_place(config, reason):
    explanation = mla.explain(config)
    assert explanation.chosen is None
    assert explanation.command is None
    assert explanation.refusal.startswith(reason)
    with pytest.raises(VariantNotFoundError) as caught:
        mla.lookup(**config)
    assert f"\n{'it cannot be added: ' * bool(explanation.candidates)}{reason}" in str(caught.value)
    assert "nox -s generate" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "argument", "accepts"),
    [
        ({"op": "encode"}, "op", "decode, sparse_decode, sparse_prefill"),
        ({"op": None}, "op", "decode"),
        ({"op": "decode", "q_dtype": "float64"}, "q_dtype", "fp32, fp16, bf16, e4m3"),
        ({"op": "decode", "kv_layout": "ragged"}, "kv_layout", "contiguous, paged"),
        ({"op": "decode", "page_size": -1}, "page_size", "an integer from 0"),
        ({"op": "decode", "page_size": 64.0}, "page_size", "an integer from 0"),
        ({"op": "decode", "q_len": True}, "q_len", "an integer from 0"),
        ({"op": "decode", "arch": 90}, "arch", "cpu, sm100f (or sm100; compute capability 10.0 or 10.3), sm90a"),
        ({"op": "merge_states", "page_size": 64}, "config field of merge_states", "arch, in_dtype, out_dtype"),
        ({"op": "decode", "q_dtype": ["bf16"]}, "q_dtype", "fp32"),
    ],
)
def test_what_no_variant_could_have_is_refused_by_name(config, argument, accepts):
    with pytest.raises(ValueRangeError) as caught:
        mla.lookup(**config)
    assert caught.value.argument == argument
    assert accepts in caught.value.accepts
    assert str(caught.value) == f"{argument}: got {caught.value.got}; accepts {caught.value.accepts}"


def test_unknown_fields_are_refused():
    with pytest.raises(ValueRangeError, match="config field: got 'heads'; accepts op, arch"):
        mla.variants(heads=128)
    with pytest.raises(ValueRangeError, match="config field"):
        mla.explain(op="decode", heads=128)


def test_widths_that_are_left_out_are_the_default_ones():
    config = {"op": "decode", "arch": "cpu", "q_dtype": "bf16"}
    kernel = mla.lookup(**config, d_qk=576, d_v=512)
    assert kernel.variant is mla.lookup(**config).variant
    assert kernel.variant.baked["d_qk"] == 576
    assert "d_qk" not in mla.lookup(**config).config
    assert str(mla.explain(**config)).startswith("op=decode arch=cpu q_dtype=bf16 kv_dtype=bf16 out_dtype=bf16\n")


@pytest.mark.parametrize("op", ["decode", "sparse_decode", "sparse_prefill"])
def test_widths_that_no_variant_has_are_refused_with_candidates_and_the_reason(op):
    with pytest.raises(VariantNotFoundError) as caught:
        mla.lookup(op=op, arch="cpu", q_dtype="bf16", d_qk=288, d_v=256)
    message = str(caught.value)
    assert f"cpu_{op}_qbf16_kvbf16_obf16_direct_" in message
    assert "d_qk is 288; accepts 576" in message
    assert "it cannot be added: d_qk 288 is outside the domain of the matrix: 576, 512, 320" in message


def test_an_op_without_a_cache_has_no_widths():
    with pytest.raises(ValueRangeError, match="d_qk"):
        mla.lookup(op="merge_states", arch="cpu", in_dtype="fp32", d_qk=576)


@pytest.mark.parametrize(("name", "arch"), [("sm90", "sm90a"), ("sm100", "sm100f"), ("sm90a", "sm90a"), ("cpu", "cpu")])
def test_an_arch_is_also_found_by_its_payload(name, arch):
    assert mla.explain(op="decode", arch=name).config["arch"] == arch
    assert mla.variants(arch=name) == mla.variants(arch=arch)


@pytest.mark.parametrize("name", ["hopper", "cuda", "sm_90", "sm80", ""])
@pytest.mark.parametrize("function", [mla.lookup, mla.explain, mla.variants])
def test_an_arch_that_nothing_is_for_is_refused(function, name):
    accepts = r"accepts cpu, sm100f \(or sm100; compute .* 10.0 or 10.3\), sm90a \(or sm90; compute capability 9.0\)"
    with pytest.raises(ValueRangeError, match=f"arch: got '{name}'; {accepts}"):
        function(op="decode", arch=name)


def test_a_format_that_has_one_width_says_it():
    config = {"op": "sparse_decode", "arch": "cpu", "q_dtype": "bf16", "kv_dtype": "fp8_ds_v4"}
    assert mla.lookup(**config).variant.baked["d_qk"] == 512
    assert mla.explain(**config).chosen is mla.lookup(**config, d_qk=512).variant
    with pytest.raises(VariantNotFoundError, match="d_qk is 576"):
        mla.lookup(**config, d_qk=576)


def test_types_that_a_field_never_has_are_not_listed():
    with pytest.raises(ValueRangeError, match="q_dtype: got 'fp8'; accepts fp32, fp16, bf16, e4m3; fp8 with one"):
        mla.lookup(op="decode", q_dtype="fp8")
    with pytest.raises(ValueRangeError, match=r"kv_dtype: .*, nvfp4_ds_mla; fp8 .* e4m3; rows of 656 bytes are"):
        mla.lookup(op="decode", q_dtype="bf16", kv_dtype="fp8")
    with pytest.raises(ValueRangeError, match=r"out_dtype: got 'e2m1'; accepts fp32, fp16, bf16$"):
        mla.lookup(op="decode", q_dtype="bf16", out_dtype="e2m1")


def test_every_field_is_part_of_the_cached_key():
    config = {"op": "sparse_decode", "arch": "cpu", "q_dtype": "bf16"}
    kernel = mla.lookup(**config)
    assert mla.lookup(**config) is kernel
    values = {"d_qk": 576, "d_v": 512, "topk": 8, "load": "direct", "page_size": 16, "num_heads": 4, "q_len": 2}
    for field, value in {**values, "kv_dtype": "e4m3", "schedule": "split"}.items():
        assert mla.lookup(**config, **{field: value}).config == kernel.config | {field: value}
    dense = {**config, "op": "decode"}
    for layout in ("paged", "contiguous"):
        assert mla.lookup(**dense, kv_layout=layout).config == kernel.config | {"kv_layout": layout}
    assert mla.lookup(**{**config, "q_dtype": "fp16"}).config["kv_dtype"] == "fp16"
    with pytest.raises(VariantNotFoundError):
        mla.lookup(**config, d_qk=0)
