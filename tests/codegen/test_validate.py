"""Each kind of mistake in a matrix is found, with all others, and said in one line."""

from __future__ import annotations

import pytest

from codegen.load import MatrixError, load
from codegen.validate import checked
from tests.codegen.conftest import ARCH, ROW


def test_the_real_matrix_is_sound():
    assert len(checked(load())) > 40


def test_a_sound_row_has_no_problem(problems_of):
    assert problems_of(ROW) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('op = "store_kv"', 'op = "stove_kv"', "op: got 'stove_kv'; accepts decode"),
        ("page_size", "pagesize", "unknown field 'pagesize'"),
        ("page_size", "pagesize", "field 'page_size' is missing"),
        ('in_dtype = "fp32"', 'in_dtype = "fp64"', "in_dtype = 'fp64' is outside its domain: fp32, fp16, bf16"),
        ('["fp32", "e4m3"]', '["fp32", "e5m2"]', "kv_dtype = 'e5m2' is outside its domain"),
        ("{ min = 1 }", "{ min = 0 }", "page_size accepts 0 and up, outside its domain: 1 and up"),
        ("{ accepts = { min = 1 } }", "{ accept = { min = 1 } }", "a table says {accepts = ...} and nothing else"),
        ('["fp32", "e4m3"]', '{ accepts = ["fp32"] }', "kv_dtype is a trait in the variant's name"),
        ('arch = "cpu"\nin', 'arch = "gpu"\nin', "arch = 'gpu' is outside its domain"),
        ('arch = "cpu"\nin', 'priority = "high"\narch = "cpu"\nin', "priority: got 'high'; accepts an integer"),
        ('["fp32", "e4m3"]', '["fp32", "fp32"]', "the name cpu_store_kv_ifp32_kvfp32 is taken by"),
    ],
)
def test_each_mistake_is_said(problems_of, before, after, said):
    assert before in ROW
    found = problems_of(ROW.replace(before, after))
    assert any(said in problem for problem in found), found


def test_all_problems_come_at_once(problems_of):
    bad = ROW.replace('"fp32"\n', '"fp64"\n').replace("page_size", "pagesize")
    found = problems_of(bad + ROW + ROW)
    assert {"fp64", "pagesize", "is taken by"} <= {
        word for word in ("fp64", "pagesize", "is taken by") if word in str(found)
    }


def test_a_tie_is_a_problem_until_priorities_differ(problems_of):
    rows = [
        f"""
[[kernel]]
op = "decode"
arch = "cpu"
q_dtype = "bf16"
kv_dtype = "bf16"
out_dtype = "bf16"
load = "direct"
schedule = "{schedule}"
priority = {{priority}}
kv_layout = {{{{ accepts = ["paged"] }}}}
page_size = {{{{ accepts = {{{{ min = {minimum}, max = {maximum} }}}} }}}}
num_heads = {{{{ accepts = {{{{ min = 1 }}}} }}}}
q_len = {{{{ accepts = {{{{ min = 1 }}}} }}}}
"""
        for schedule, minimum, maximum in (("split", 1, 64), ("rows", 64, 128))
    ]
    tied = "".join(row.format(priority=0) for row in rows)
    (problem,) = problems_of(tied)
    assert "cpu_decode_qbf16_kvbf16_obf16_direct_rows ties with cpu_decode_qbf16_kvbf16_obf16_direct_split" in problem
    assert problems_of(rows[0].format(priority=0) + rows[1].format(priority=1)) == []
    assert problems_of(tied.replace("min = 64, max = 128", "min = 65, max = 128")) == []


def test_a_limit_of_the_arch_binds(problems_of):
    arch = ARCH + "limits = { page_size = { min = 1, max = 128 } }\n"
    assert any("beyond the limit of cpu: 1 to 128" in problem for problem in problems_of(ROW, arch))
    assert problems_of(ROW.replace("min = 1", "min = 1, max = 128"), arch) == []


def test_an_exclude_says_why(matrix_of):
    with pytest.raises(MatrixError, match="no reason; every exclude says why"):
        matrix_of(ROW + '[[exclude]]\nmatch = { op = "store_kv" }\nreason = " "\n')


def test_an_exclude_stays_in_the_domains(problems_of):
    text = ROW + '[[exclude]]\nmatch = { kv_dtype = "fp4" }\nreason = "no such type"\n'
    assert any("kv_dtype = 'fp4' is outside its domain" in problem for problem in problems_of(text))


def test_an_exclude_removes_its_points(matrix_of):
    text = ROW + '[[exclude]]\nmatch = { kv_dtype = "e4m3" }\nreason = "for this test"\n'
    assert [variant.name for variant in checked(matrix_of(text))] == ["cpu_store_kv_ifp32_kvfp32"]


def test_broken_toml_names_its_file(folder):
    (folder / "extra.toml").write_text("[[kernel]\n")
    with pytest.raises(MatrixError, match=r"extra\.toml"):
        load(folder)
