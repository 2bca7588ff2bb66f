"""``python -m codegen`` prints what it did and fails with reasons."""

from __future__ import annotations

from codegen.__main__ import main
from codegen.load import load
from codegen.render import render
from codegen.synthetic import synthetic
from codegen.validate import checked


def test_check_and_list(capsys):
    assert main(["check"]) == 0
    capsys.readouterr()
    assert main(["list", "op=decode", "arch=cpu", "q_dtype=bf16"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cpu_decode_qbf16_kvbf16_obf16_direct_split",
        "cpu_decode_qbf16_kve4m3_obf16_direct_split",
        "cpu_decode_qbf16_kvfp8_ds_mla_obf16_direct_split",
    ]


def test_explain_names_row_and_unit(capsys):
    assert main(["explain", "cpu_decode_qbf16_kve4m3_obf16_direct_split"]) == 0
    out = capsys.readouterr().out
    assert "cpu.toml: kernel row 3 (decode)" in out
    assert "generated/cpu/decode_qbf16_direct_split.cpp" in out


def test_an_unknown_name_fails_with_a_hint(capsys):
    assert main(["explain", "cpu_nothing"]) == 1
    assert "python -m codegen list prints all" in capsys.readouterr().err


def test_a_synthetic_matrix_holds_what_it_says():
    matrix = synthetic(1_000, load())
    variants = checked(matrix)
    assert len(variants) == 1_000
    assert render(matrix, variants)["cpu/registry.json"].count('"name": "synthetic_decode') == 1_000
