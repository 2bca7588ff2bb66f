"""``remove`` takes a value out of a list, or a row out of the matrix, and leaves every other line as it was."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest

from codegen.edit import remove as removal
from codegen.edit.add import add
from codegen.edit.point import parse
from codegen.edit.remove import remove
from codegen.load import load
from codegen.schema import MatrixError
from codegen.validate import checked
from tests.codegen.conftest import ARCH


def changes(folder, name, pairs):
    """The lines that a removal takes out of a file (``- ``) and writes (``+ ``)."""
    before = (folder / name).read_text().splitlines()
    remove(parse(pairs), folder)
    after = (folder / name).read_text().splitlines()
    # Rows that occur in several tables are no junk.
    differing = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [
        line
        for kind, i, to_i, j, to_j in differing
        if kind != "equal"
        for line in (*(f"- {line}" for line in before[i:to_i]), *(f"+ {line}" for line in after[j:to_j]))
    ]


def test_a_value_leaves_the_list_of_its_row(real):
    assert changes(real, "cpu.toml", ["op=decode", "arch=cpu", "q_dtype=bf16", "kv_dtype=e4m3"]) == [
        '-   { q_dtype = "bf16", kv_dtype = ["bf16", "e4m3", "fp8_ds_mla"], out_dtype = "bf16" },',
        '+   { q_dtype = "bf16", kv_dtype = ["bf16", "fp8_ds_mla"], out_dtype = "bf16" },',
    ]


def test_a_row_leaves_its_table_and_comments_stay(real):
    path = real / "sm90.toml"
    row = '  { q_dtype = "fp16", kv_dtype = "fp16", out_dtype = "fp16" },\n'
    first, _, rest = path.read_text().rpartition(row)
    path.write_text(f"{first}  # A comment about the row below it.\n{row}{rest}")
    pairs = ["op=sparse_prefill", "arch=sm90a", "schedule=swap_ab", "q_dtype=fp16"]
    assert changes(real, "sm90.toml", pairs) == [f"- {row.rstrip()}"]


def test_a_table_goes_with_its_last_row(real):
    pairs = ["op=decode", "arch=sm90a", "schedule=swap_ab", "kv_dtype=e4m3"]
    gone = [line[2:] for line in changes(real, "sm90.toml", pairs)]
    assert [line for line in gone if line] == [
        "[[kernel]]", 'op = "decode"', 'arch = "sm90a"', 'q_dtype = "bf16"', 'kv_dtype = "e4m3"', 'out_dtype = "bf16"',
        'load = "tma"', 'schedule = "swap_ab"', "priority = 15",
    ]  # fmt: skip
    assert "\n\n\n" not in (real / "sm90.toml").read_text()
    assert add(parse([*pairs, "q_dtype=bf16", "priority=15"]), real) == ("sm90a_decode_qbf16_kve4m3_obf16_tma_swap_ab",)


def test_a_table_goes_with_all_of_its_rows_at_once(real):
    pairs = ["op=sparse_prefill", "arch=sm90a", "schedule=swap_ab"]
    tables = (real / "sm90.toml").read_text().count('op = "sparse_prefill"')
    removed = remove(parse(pairs), real)
    assert [name.split("_")[3] for name in removed] == ["qfp16", "qbf16"]
    assert len(remove(parse([*pairs, "d_qk=512"]), real)) == 2
    text = (real / "sm90.toml").read_text()
    assert text.count('op = "sparse_prefill"') == tables - 1, "the tables of what is allowed stay"
    assert add(parse([*pairs, "q_dtype=bf16", "kv_dtype=bf16", "priority=20"]), real) == removed[1:]
    added = (
        '[[kernel]]\nop = "sparse_prefill"\narch = "sm90a"\nq_dtype = "bf16"\nkv_dtype = "bf16"\nout_dtype = "bf16"\n'
        'load = "gather"\nschedule = "swap_ab"\npriority = 20\n\n'
    )
    assert (real / "sm90.toml").read_text().replace(added, "") == text


def test_all_variants_of_a_point_go_from_all_of_its_rows(real):
    removed = remove(parse(["op=decode", "arch=sm100f", "q_dtype=e4m3", "out_dtype=fp16"]), real)
    assert len(removed) == 4
    left = {variant.name for variant in checked(load(real))}
    assert not left & set(removed)
    assert "sm100f_decode_qe4m3_kve4m3_obf16_tma_persistent" in left


def test_a_table_of_a_device_loses_a_point_for_all_of_its_archs(real):
    assert remove(parse(["op=to_global_indices", "arch=sm90a"]), real) == (
        "sm100f_to_global_indices",
        "sm90a_to_global_indices",
    )


def test_a_value_that_is_accepted_leaves_the_list(real):
    pairs = ["op=decode", "arch=sm90a", "schedule=swap_ab", "kv_dtype=e4m3", "kv_layout=contiguous"]
    (name,) = remove(parse(pairs), real)
    variant = next(each for each in checked(load(real)) if each.name == name)
    assert dict(variant.accepts)["kv_layout"] == ("paged",)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["op=decode", "arch=cpu", "kv_dtype=bf16", "q_dtype=fp32"], "the matrix holds no such variant"),
        (["op=decode", "arch=sm90a", "schedule=swap_ab", "page_size=64"], "page_size is no list with 64 in it"),
        (["op=gather_kv", "arch=cpu", "kv_dtype=e4m3", "out_dtype=fp16"], "write it as two rows first"),
        (["op=decode", "arch=sm100f", "q_dtype=e4m3", "out_dtype=fp16", "load=cpasync", "schedule=individual",
          "page_size=1"], r"sm100\.toml:\d+ makes other variants too; write it as two rows first"),
        (["op=decode", "arch=cpu", "colour=red"], "unknown field 'colour'"),
        (["op=encode", "arch=cpu"], "op: got 'encode'"),
    ],
)  # fmt: skip
def test_a_refusal_says_why_and_changes_nothing(real, pairs, said):
    before = {path: path.read_text() for path in real.iterdir()}
    with pytest.raises(MatrixError, match=said):
        remove(parse(pairs), real)
    assert {path: path.read_text() for path in real.iterdir()} == before


ROW = """
[[kernel]]
op = "store_kv"
arch = "cpu"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('rows = [{ in_dtype = "fp32", kv_dtype = ["fp32", "e4m3"] }]\n',
         "cpu.toml:19: rows: write each on a line of its own, in braces, below 'rows = ['"),
        ('in_dtype = "fp32"\nkv_dtype = [\n  "fp32",\n  "e4m3",\n]\n',
         "cpu.toml:23: kv_dtype: write the list on one line"),
    ],
)  # fmt: skip
def test_a_row_that_is_written_in_another_form_is_refused(folder, text, said):
    path = folder / "cpu.toml"
    path.write_text(ARCH + ROW + text)
    with pytest.raises(MatrixError) as caught:
        remove(parse(["op=store_kv", "arch=cpu", "kv_dtype=e4m3"]), folder)
    assert caught.value.problems == [said]
    assert path.read_text() == ARCH + ROW + text


def test_a_removal_that_changes_nothing_is_no_success(real, monkeypatch):
    monkeypatch.setattr(removal, "without", lambda lines, _: lines)
    with pytest.raises(MatrixError, match=r"cpu\.toml:\d+: nothing changed; change the row by hand"):
        remove(parse(["op=to_global_indices", "arch=cpu"]), real)
