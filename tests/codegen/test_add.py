"""``add`` puts a point into the matrix, or says why it cannot and leaves every file as it was."""

from __future__ import annotations

import pytest

from codegen.edit.add import add
from codegen.edit.point import parse
from codegen.load import load
from codegen.schema import MatrixError
from codegen.validate import checked


def variant(folder, name):
    return next(each for each in checked(load(folder)) if each.name == name)


def lines_of(folder, name):
    return (folder / name).read_text().splitlines()


def test_a_value_joins_the_list_of_the_row_that_lacks_only_it(real):
    before = lines_of(real, "cpu.toml")
    assert add(parse(["op=decode", "arch=cpu", "q_dtype=fp32", "kv_dtype=bf16", "out_dtype=fp32"]), real) == (
        "cpu_decode_qfp32_kvbf16_ofp32_direct_split",
    )
    after = lines_of(real, "cpu.toml")
    assert [line for line in after if line not in before] == [
        '  { q_dtype = "fp32", kv_dtype = ["fp32", "e4m3", "fp8_ds_mla", "bf16"], out_dtype = "fp32" },'
    ]
    assert len(after) == len(before)


def test_a_point_no_row_is_near_becomes_a_row_below_those_of_its_op_and_arch(real):
    point = parse(["op=decode", "arch=cpu", "q_dtype=fp16", "kv_dtype=bf16", "out_dtype=fp32"])
    before = lines_of(real, "cpu.toml")
    assert add(point, real) == ("cpu_decode_qfp16_kvbf16_ofp32_direct_split",)
    row = '  { q_dtype = "fp16", kv_dtype = "bf16", out_dtype = "fp32" },'
    after = lines_of(real, "cpu.toml")
    assert [line for line in after if line != row] == before
    assert after[after.index(row) - 1] == (
        '  { q_dtype = "bf16", d_qk = 320, d_v = 256, kv_dtype = ["bf16", "e4m3"], out_dtype = "bf16" },'
    )


def test_a_table_of_a_device_serves_all_of_its_archs(real):
    assert add(parse(["op=gather_kv", "arch=sm90a", "kv_dtype=fp16", "out_dtype=bf16"]), real) == (
        "sm100f_gather_kv_kvfp16_obf16",
        "sm90a_gather_kv_kvfp16_obf16",
    )
    assert add(parse(["op=store_kv", "arch=sm90a", "in_dtype=fp32", "kv_dtype=e4m3"]), real) == (
        "sm100f_store_kv_ifp32_kve4m3",
        "sm90a_store_kv_ifp32_kve4m3",
    )
    assert variant(real, "sm90a_store_kv_ifp32_kve4m3").folder == "cuda"


def test_a_row_in_a_table_that_has_none_stands_in_a_table_below_it(real):
    path = real / "cpu.toml"
    text = path.read_text().replace(
        'in_dtype = "fp32", out_dtype = ["fp32", "fp16", "bf16"] },\n',
        'in_dtype = "fp32", out_dtype = "fp32" },\n',
    )
    first = text.index("rows = [", text.index('[[kernel]]\nop = "merge_states"'))
    last = text.index("]\n\n# Cache writes")
    path.write_text(text[:first] + 'in_dtype = "fp32"\nout_dtype = "fp32"\n' + text[last + 2 :])
    add(parse(["op=merge_states", "arch=cpu", "in_dtype=bf16", "out_dtype=fp16"]), real)
    before, _, after = path.read_text().partition('out_dtype = "fp32"\n')
    assert before.endswith('schedule = "rows"\nin_dtype = "fp32"\n')
    assert after.startswith(
        '\n[[kernel]]\nop = "merge_states"\narch = "cpu"\nin_dtype = "bf16"\nout_dtype = "fp16"\nschedule = "rows"\n\n#'
    )


def test_the_first_row_of_an_op_stands_below_what_allows_it(real):
    path = real / "cpu.toml"
    text = path.read_text()
    path.write_text(text[: text.index('\n[[kernel]]\nop = "to_global_indices"')])
    assert add(parse(["op=to_global_indices", "arch=cpu"]), real) == ("cpu_to_global_indices",)
    assert path.read_text().endswith(
        '[[allow]]\nop = "to_global_indices"\narch = "cpu"\n\n[[kernel]]\nop = "to_global_indices"\narch = "cpu"\n'
    )


@pytest.mark.parametrize(
    ("pairs", "name", "field", "text"),
    [
        (["q_dtype=bf16", "kv_dtype=bf16", "page_size=8"], "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64",
         "page_size", "8 and up, multiples of 8"),
        (["q_dtype=bf16", "kv_dtype=bf16", "load=tma", "page_size=24"], "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64",
         "page_size", "16 and up, multiples of 8"),
    ],
)  # fmt: skip
def test_a_row_is_widened_to_accept_a_number(real, pairs, name, field, text):
    add(parse(["op=decode", "arch=sm90a", "load=tma", *pairs]), real)
    assert str(dict(variant(real, name).accepts)[field]) == text
    untouched = dict(variant(real, "sm90a_decode_qfp16_kvfp16_ofp16_tma_rows_m64").accepts)
    assert str(untouched[field]) == "16 and up, multiples of 16"


def test_a_new_row_has_the_priority_that_the_point_says(real):
    pairs = ["op=decode", "arch=cpu", "q_dtype=fp32", "kv_dtype=bf16", "priority=-3"]
    (name,) = add(parse(pairs), real)
    assert variant(real, name).priority == -3


def test_a_row_that_makes_several_variants_is_not_widened_for_one(real):
    path = real / "cpu.toml"
    table = '[[kernel]]\nop = "gather_kv"\narch = "cpu"\n'
    path.write_text(path.read_text().replace(table, f"{table}page_size = 64\n"))
    with pytest.raises(MatrixError, match=r"cpu\.toml:\d+ makes other variants too; write it as two rows first"):
        add(parse(["op=gather_kv", "arch=cpu", "kv_dtype=e4m3", "out_dtype=fp16", "page_size=16"]), real)


def test_a_payload_names_its_arch(real):
    point = parse(["op=decode", "arch=sm90", "load=tma", "q_dtype=bf16", "kv_dtype=bf16", "page_size=8"])
    assert add(point, real) == ("sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64",)


def test_comments_survive(real):
    before = [line for line in (real / "cpu.toml").read_text().splitlines() if line.startswith("#")]
    add(parse(["op=decode", "arch=cpu", "q_dtype=fp32", "kv_dtype=bf16"]), real)
    assert [line for line in (real / "cpu.toml").read_text().splitlines() if line.startswith("#")] == before


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["op=decode", "arch=cpu", "q_dtype=e4m3", "kv_dtype=e4m3"], "the CPU engine keeps Q and P"),
        (["op=decode", "arch=cpu", "q_dtype=bf16", "kv_dtype=bf16"], "the matrix holds this point already: cpu_decode"),
        (["op=decode", "arch=sm90a", "q_dtype=bf16", "kv_dtype=bf16", "page_size=24"],
         "the matrix holds this point already: sm90a_decode_qbf16_kvbf16_obf16_gather_rows_m64"),
        (["op=decode", "arch=sm90a", "q_dtype=bf16", "kv_dtype=bf16", "load=tma", "page_size=24", "priority=99"],
         r"priority: sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64 stands at sm90\.toml:\d+; change its priority there"),
        (["op=decode", "arch=cpu", "q_dtype=fp64", "kv_dtype=bf16"], "q_dtype fp64 is outside the domain"),
        (["op=decode", "arch=tpu"], "arch: got 'tpu'; accepts cpu"),
        (["op=decode"], "arch is missing; accepts cpu, sm100f, sm90a"),
        (["arch=cpu"], "op is missing; accepts decode"),
        (["op=encode", "arch=cpu"], "op: got 'encode'"),
        (["op=decode", "arch=cpu", "colour=red"], "unknown field 'colour'"),
        (["op=decode", "arch"], "'arch': write <field>=<value>"),
        (["op=decode", "arch=cpu", "kv_dtype=bf16"], "q_dtype is missing"),
        (
            ["op=decode", "arch=sm100f", "q_dtype=fp16", "kv_dtype=e4m3"],
            "it cannot be added: .* multiplies equal types",
        ),
        (["op=decode", "arch=sm100f", "q_dtype=bf16", "kv_dtype=bf16", "schedule=reduction"], "two tile schedulers"),
        (["op=decode", "arch=sm100f", "q_dtype=bf16", "kv_dtype=bf16", "load=tma", "page_size=64"], "one tile of 128"),
        (["op=decode", "arch=sm90a", "q_dtype=bf16", "kv_dtype=bf16", "out_dtype=fp32"], "the element type of Q"),
        (["op=sparse_prefill", "arch=sm100f", "q_dtype=bf16", "kv_dtype=bf16"], "has no sparse prefill"),
    ],
)  # fmt: skip
def test_a_refusal_says_why_and_changes_nothing(real, pairs, said):
    before = {path: path.read_text() for path in real.iterdir()}
    with pytest.raises(MatrixError, match=said):
        add(parse(pairs), real)
    assert {path: path.read_text() for path in real.iterdir()} == before
