"""Lists multiply, scalars are baked, ``{accepts = ...}`` is served at run time; one function makes the name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegen.load import load
from codegen.model import Range
from codegen.validate import checked
from tests.codegen.conftest import ROW


def test_a_list_is_one_variant_each(matrix_of):
    text = ROW.replace('in_dtype = "fp32"', 'in_dtype = ["fp32", "bf16"]')
    names = [variant.name for variant in checked(matrix_of(text))]
    assert names == [f"cpu_store_kv_i{i}_kv{kv}" for i in ("fp32", "bf16") for kv in ("fp32", "e4m3")]


def test_accepts_and_scalars_become_accepted_values(matrix_of):
    (served, _) = checked(matrix_of(ROW))
    assert dict(served.accepts) == {"page_size": Range(1)}
    (baked, _) = checked(matrix_of(ROW.replace("{ accepts = { min = 1 } }", "64")))
    assert dict(baked.accepts) == {"page_size": (64,)}


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
