"""``python -m codegen`` prints what it did and fails with reasons."""

from __future__ import annotations

import re
import shutil

import pytest

from codegen import sync
from codegen.__main__ import main
from codegen.edit.add import add
from codegen.edit.remove import remove
from codegen.load import load
from codegen.render import render
from codegen.schema import MATRIX
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
        "cpu_decode_qbf16_kvbf16_obf16_direct_split_d512",
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_d512",
        "cpu_decode_qbf16_kvbf16_obf16_direct_split_d320_v256",
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_d320_v256",
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_mmae4m3",
        "cpu_decode_qbf16_kve4m3_obf16_direct_split_d512_mmae4m3",
    ]


def test_list_knows_payloads_and_what_is_accepted_at_run_time(capsys):
    assert main(["list", "op=decode", "arch=sm90", "q_dtype=bf16", "kv_dtype=bf16", "d_qk=576", "page_size=24"]) == 0
    assert capsys.readouterr().out.splitlines() == ["sm90a_decode_qbf16_kvbf16_obf16_gather_rows_m64"]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["op=decod"], "op: got 'decod'; accepts decode, "),
        (["arch=sm80"], "arch: got 'sm80'; accepts cpu, "),
        (["kv_dtyp=bf16"], "unknown field 'kv_dtyp'; accepts op, arch, q_dtype, "),
        (["op=store_kv", "q_dtype=bf16"], "unknown field 'q_dtype'; accepts op, arch, in_dtype, "),
        (["kv_dtype=bf61"], "kv_dtype: got 'bf61'; accepts fp32, fp16, bf16, "),
        (["page_size=0"], "page_size: got 0; accepts 1 and up"),
    ],
)
def test_list_refuses_what_no_variant_could_have(capsys, pairs, said):
    assert main(["list", *pairs]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(said)
    assert captured.out == ""


def test_explain_names_row_and_unit(capsys):
    assert main(["explain", "cpu_decode_qbf16_kve4m3_obf16_direct_split"]) == 0
    out = capsys.readouterr().out
    (row,) = re.findall(r"row       cpu\.toml:(\d+)\n", out)
    assert (MATRIX / "cpu.toml").read_text().splitlines()[int(row) - 1].startswith('  { q_dtype = "bf16"')
    assert "generated/cpu/decode_qbf16_direct_split.cpp" in out
    assert "  accuracy  " not in out
    assert main(["explain", "cpu_decode_qbf16_kve4m3_obf16_direct_split_mmae4m3"]) == 0
    assert "  accuracy  Q and P are rounded to e4m3" in capsys.readouterr().out


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Commands change a copy of the matrix and of generated/."""
    shutil.copytree(MATRIX, tmp_path / "matrix")
    shutil.copytree(sync.GENERATED, tmp_path / "generated")
    for function, folder in ((load, "matrix"), (add, "matrix"), (remove, "matrix"), (sync.compare, "generated")):
        *others, _ = function.__defaults__
        monkeypatch.setattr(function, "__defaults__", (*others, tmp_path / folder))
    monkeypatch.setattr(sync.write, "__defaults__", (tmp_path / "generated",))
    monkeypatch.setattr(sync, "GENERATED", tmp_path / "generated")  # and no README beside it
    return tmp_path


def test_add_then_remove(copy, capsys):
    before = (copy / "matrix" / "sm90.toml").read_text()
    point = ["op=decode", "arch=sm90a", "load=gather", "q_dtype=fp16"]
    assert main(["remove", *point]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "sm90a_decode_qfp16_kvfp16_ofp16_gather_rows_m64",
        "removed generated/sm90/decode_qfp16_gather_rows_m64.cu, which no row makes",
    ]
    assert main(["check"]) == 0
    assert main(["add", *point, "kv_dtype=fp16", "priority=10"]) == 0
    assert "sm90a_decode_qfp16_kvfp16_ofp16_gather_rows_m64" in capsys.readouterr().out
    assert (copy / "generated" / "sm90" / "decode_qfp16_gather_rows_m64.cu").is_file()
    assert sorted((copy / "matrix" / "sm90.toml").read_text().split()) == sorted(before.split())


def test_add_says_what_a_variant_accepts_now(copy, capsys):
    point = ["op=decode", "arch=sm90a", "load=tma", "q_dtype=bf16", "kv_dtype=bf16", "page_size=8"]
    assert main(["add", *point]) == 0
    name, accepts, *_ = capsys.readouterr().out.splitlines()
    assert name == "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64"
    assert accepts.startswith(
        "  accepts   kv_layout contiguous, paged; page_size 8 and up, multiples of 8; num_heads 1"
    )


def test_check_names_orphans_after_a_revert_and_what_mends_them(copy, capsys):
    (copy / "generated" / "sm90" / "decode_qfp32_tma_swap_ab.cu").write_text("template struct ...")
    assert main(["check"]) == 1
    said = capsys.readouterr().err
    assert "orphan: sm90/decode_qfp32_tma_swap_ab.cu: no row makes it; nox -s generate deletes it" in said


def test_a_refusal_is_printed_and_fails(capsys):
    assert main(["add", "op=decode", "arch=cpu", "q_dtype=e4m3", "kv_dtype=e4m3"]) == 1
    assert capsys.readouterr().err.startswith("it cannot be added: the CPU engine keeps Q and P")


def test_an_unknown_name_fails_with_a_hint(capsys):
    assert main(["explain", "cpu_nothing"]) == 1
    assert "python -m codegen list prints all" in capsys.readouterr().err


def test_a_synthetic_matrix_holds_what_it_says():
    matrix = synthetic(1_000, load())
    variants = checked(matrix)
    assert len(variants) == 1_000
    assert render(matrix, variants)["cpu/registry.json"].count('"name": "synthetic_decode') == 1_000
