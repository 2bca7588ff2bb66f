"""A list of a trait is one variant each, of another field what is accepted at run time; one function makes the name."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codegen.load import load
from codegen.model import Range, Trait
from codegen.validate import checked
from tests.codegen.conftest import ROW


def test_a_list_is_one_variant_each(matrix_of):
    text = ROW.replace('in_dtype = "fp32"', 'in_dtype = ["fp32", "bf16"]')
    names = [variant.name for variant in checked(matrix_of(text))]
    assert names == [f"cpu_store_kv_i{i}_kv{kv}" for i in ("fp32", "bf16") for kv in ("fp32", "e4m3")]


def test_a_range_a_list_and_a_scalar_become_accepted_values(matrix_of):
    for stated, accepts in (
        ("page_size = { min = 1 }", Range(1)),
        ("page_size = 64", (64,)),
        ("page_size = [16, 64]", (16, 64)),
        ("", Range(1)),
    ):
        (first, _) = checked(matrix_of(ROW.replace("page_size = { min = 1 }", stated)))
        assert dict(first.accepts) == {"page_size": accepts}


def test_what_a_row_leaves_out_is_accepted_as_far_as_there_are_kernels():
    variant = next(v for v in checked(load()) if v.name == "sm90a_decode_qbf16_kve4m3_obf16_tma_swap_ab")
    assert dict(variant.accepts)["num_heads"] == Range(1, 16)
    assert dict(variant.accepts)["kv_layout"] == ("contiguous", "paged")


def test_rows_vary_what_their_table_leaves_open(matrix_of):
    text = """
[[kernel]]
op = "store_kv"
arch = "cpu"
priority = 3
rows = [
  { in_dtype = "fp32", kv_dtype = ["fp32", "e4m3"] },  # two of one row
  # A comment stands between rows.
  { in_dtype = "bf16", kv_dtype = "bf16", priority = 4 },
]
"""
    found = [(variant.name, variant.priority, variant.where) for variant in checked(matrix_of(text))]
    assert [name for name, _, _ in found] == [
        "cpu_store_kv_ifp32_kvfp32", "cpu_store_kv_ifp32_kve4m3", "cpu_store_kv_ibf16_kvbf16",
    ]  # fmt: skip
    assert [priority for _, priority, _ in found] == [3, 3, 4]
    assert len({where for _, _, where in found}) == 2


def test_a_trait_is_left_out_of_names_where_it_is_unnamed():
    matrix = load()
    odd = replace(matrix, traits={**matrix.traits, "load": Trait("load", "Load", "", "direct")})
    traits = {"q_dtype": "bf16", "load": "direct", "schedule": "split"}
    assert odd.variant_name("cpu", "decode", traits) == "cpu_decode_qbf16_split"
    assert odd.unit_name("cpu", "decode", {**traits, "load": "tma"}) == "decode_qbf16_tma_split"


def test_variants_that_share_a_kernel_are_in_one_unit():
    """On Blackwell, rows of 512 columns have the kernel of rows of 576, and those of 320 have another."""
    unit = "decode_qbf16_tma_individual"
    found = {variant.name: variant.unit for variant in checked(load()) if variant.unit.startswith(unit)}
    name = "sm100f_decode_qbf16_kvbf16_obf16_tma_individual"
    assert found == {name: unit, f"{name}_d512": unit, f"{name}_d320_v256": f"{unit}_v256"}


def test_names_are_unique_and_follow_the_order_of_the_traits():
    matrix = load()
    variants = checked(matrix)
    assert len({variant.name for variant in variants}) == len(variants)
    traits = {"schedule": "persistent", "load": "cpasync", "out_dtype": "bf16", "kv_dtype": "e4m3", "q_dtype": "e4m3"}
    assert matrix.variant_name("sm100f", "decode", traits) == "sm100f_decode_qe4m3_kve4m3_obf16_cpasync_persistent"


@given(
    st.integers(0, 50), st.integers(0, 50), st.integers(1, 8), st.integers(0, 50), st.integers(0, 50), st.integers(1, 8)
)
def test_range_relations_agree_with_sets(low, size, step, other_low, other_size, other_step):
    left, right = Range(low, low + size, step), Range(other_low, other_low + other_size, other_step)
    lefts, rights = ({value for value in range(128) if value in each} for each in (left, right))
    if left.covers(right):
        assert rights <= lefts
    if lefts & rights:
        assert left.meets(right)
    wider = left.with_value(other_low)
    assert other_low in wider
    assert wider.covers(left)
