"""``add`` puts a point into the matrix, or says why it cannot and leaves every file as it was."""

from __future__ import annotations

import shutil

import pytest

from codegen.add import add, parse
from codegen.load import MATRIX, MatrixError, load
from codegen.validate import checked


@pytest.fixture
def real(tmp_path):
    folder = tmp_path / "matrix"
    shutil.copytree(MATRIX, folder)
    return folder


def test_a_value_joins_the_list_of_the_row_that_lacks_only_it(real):
    rows = len(load(real).rows)
    assert add(parse(["op=decode", "arch=cpu", "q_dtype=fp32", "kv_dtype=bf16", "out_dtype=fp32"]), real) == (
        "cpu_decode_qfp32_kvbf16_ofp32_direct_split",
    )
    assert len(load(real).rows) == rows


def test_a_point_no_row_is_near_becomes_a_row(real):
    rows = len(load(real).rows)
    point = parse(["op=decode", "arch=cpu", "q_dtype=fp16", "kv_dtype=bf16", "out_dtype=fp32"])
    assert add(point, real) == ("cpu_decode_qfp16_kvbf16_ofp32_direct_split",)
    assert len(load(real).rows) == rows + 1
    checked(load(real))


def test_a_shared_row_serves_every_arch_that_it_names(real):
    assert add(parse(["op=gather_kv", "arch=sm90a", "kv_dtype=fp16", "out_dtype=bf16"]), real) == (
        "sm90a_gather_kv_kvfp16_obf16",
        "sm100f_gather_kv_kvfp16_obf16",
    )


def test_a_row_beside_a_shared_one_keeps_its_folder(real):
    point = parse(["op=store_kv", "arch=sm90a", "in_dtype=fp32", "kv_dtype=e4m3"])
    assert add(point, real) == ("sm90a_store_kv_ifp32_kve4m3",)
    variant = next(v for v in checked(load(real)) if v.name == "sm90a_store_kv_ifp32_kve4m3")
    assert variant.folder == "cuda"


def test_comments_survive(real):
    before = [line for line in (real / "cpu.toml").read_text().splitlines() if line.startswith("#")]
    add(parse(["op=decode", "arch=cpu", "q_dtype=fp32", "kv_dtype=bf16"]), real)
    assert [line for line in (real / "cpu.toml").read_text().splitlines() if line.startswith("#")] == before


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["op=decode", "arch=cpu", "q_dtype=e4m3", "kv_dtype=e4m3"], "excluded: the CPU engine keeps Q and P"),
        (["op=decode", "arch=cpu", "q_dtype=bf16", "kv_dtype=bf16"], "the matrix holds this point already"),
        (["op=decode", "arch=cpu", "q_dtype=fp64", "kv_dtype=bf16"], "q_dtype = 'fp64' is outside its domain"),
        (["op=decode", "arch=tpu"], "arch: got 'tpu'; accepts cpu"),
        (["op=encode", "arch=cpu"], "op: got 'encode'"),
        (["op=decode", "arch=cpu", "colour=red"], "unknown field 'colour'"),
        (["op=decode", "arch"], "'arch': write <field>=<value>"),
        (["op=decode", "arch=cpu", "kv_dtype=bf16"], "q_dtype is missing"),
        (["op=decode", "arch=sm100f", "q_dtype=fp16", "kv_dtype=e4m3"], "excluded: .* multiplies equal types"),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(real, pairs, said):
    before = (real / "cpu.toml").read_text()
    with pytest.raises(MatrixError, match=said):
        add(parse(pairs), real)
    assert (real / "cpu.toml").read_text() == before
