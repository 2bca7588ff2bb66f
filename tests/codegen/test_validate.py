"""Each kind of mistake in a matrix is found, with all others, and said in one line."""

from __future__ import annotations

import pytest

from codegen.load import load
from codegen.schema import MatrixError
from codegen.validate import checked
from tests.codegen.conftest import ARCH, ROW

TABLE = """
[[kernel]]
op = "store_kv"
arch = "cpu"
priority = 3
rows = [
  { in_dtype = "fp32", kv_dtype = "fp32" },
  { in_dtype = "bf16", kv_dtype = "bf16" },
]
"""


def test_the_real_matrix_is_sound():
    assert len(checked(load())) > 40


def test_a_sound_row_has_no_problem(problems_of):
    assert problems_of(ROW) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('op = "store_kv"', 'op = "stove_kv"', "op: got 'stove_kv'; accepts decode"),
        ("page_size", "pagesize", "unknown field 'pagesize'; store_kv has in_dtype, kv_dtype, d_qk, d_v, page_size"),
        ('in_dtype = "fp32"\n', "", "trait 'in_dtype' is missing"),
        ('in_dtype = "fp32"', "in_dtype = { min = 1 }", "in_dtype is in the variant's name, and a range is not"),
        (
            'in_dtype = "fp32"',
            'in_dtype = "fp64"',
            "in_dtype fp64 is outside the domain of the matrix: fp32, fp16, bf16",
        ),
        ('["fp32", "e4m3"]', '["fp32", "e5m2"]', "kv_dtype e5m2 is outside the domain"),
        ("{ min = 1 }", "{ min = 0 }", "page_size accepts 0 and up, and cpu.toml:7 allows 1 and up"),
        ("{ min = 1 }", "0", "page_size accepts 0, and cpu.toml:7 allows 1 and up"),
        ('arch = "cpu"\nin', 'arch = "gpu"\nin', "arch: got 'gpu'; accepts cpu"),
    ],
)
def test_each_mistake_is_said(problems_of, before, after, said):
    assert before in ROW
    found = problems_of(ROW.replace(before, after))
    assert any(said in problem for problem in found), found


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('op = "store_kv"\n', "", "cpu.toml:19: field 'op' is missing"),
        ('arch = "cpu"\nin', "in", "field 'arch' is missing"),
        ('arch = "cpu"\nin', 'device = "cuda"\nin', "device: got 'cuda'; accepts cpu"),
        (
            'arch = "cpu"\nin',
            'arch = "cpu"\ndevice = "cpu"\nin',
            "device: got 'cpu'; accepts an arch or a device, not both",
        ),
        ('in_dtype = "fp32"', 'in_dtype = "fp32\\n"', "in_dtype: got 'fp32\\n'; accepts a name"),
        ('in_dtype = "fp32"', 'folder = "../.."', "folder belongs to an [[allow]] table"),
        ('in_dtype = "fp32"', "in_dtype = []", "in_dtype: got []; accepts a list of different values, at least one"),
        ('["fp32", "e4m3"]', '["e4m3", "e4m3"]', "kv_dtype: got ['e4m3', 'e4m3']; accepts a list of different values"),
        ('in_dtype = "fp32"', "in_dtype = 1.5", "in_dtype: got 1.5; accepts an integer from 0"),
        ("{ min = 1 }", "{ accepts = 1 }", "page_size: field: got 'accepts'; accepts min, max, multiple_of"),
        ("{ min = 1 }", "{ min = 9, max = 8 }", "accepts a range with min <= max"),
        ("{ min = 1 }", "{ multiple_of = 0 }", "page_size.multiple_of: got 0; accepts an integer from 1"),
        ("{ min = 1 }", "{ min = true }", "page_size.min: got True; accepts an integer"),
        ('arch = "cpu"\nin', 'priority = "high"\narch = "cpu"\nin', "priority: got 'high'; accepts an integer"),
        ("[[kernel]]", "[kernel]", "cpu.toml:19: kernel: got {"),
        ("in_dtype", "rows = [{}, {}]\nin_dtype", "write each on a line of its own, in braces, below 'rows = ['"),
        ("[[kernel]]", "[[kernels]]", "cpu.toml:19: field: got 'kernels'; accepts enum, trait"),
    ],
)
def test_a_table_of_another_shape_is_refused_by_its_place(folder, before, after, said):
    assert before in ROW
    (folder / "cpu.toml").write_text(ARCH + ROW.replace(before, after))
    with pytest.raises(MatrixError) as caught:
        load(folder)
    assert said in str(caught.value)
    assert "cpu.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('payload = "cpu"', 'payload = "../.."', "cpu.toml:4: arch.payload: got '../..'; accepts a name"),
        ('payload = "cpu"\n', "", "cpu.toml:2: arch: field 'payload' is missing"),
        ('device = "cpu"', 'device = "tpu"', "cpu.toml:5: arch.device: got 'tpu'; accepts cpu, cuda"),
        ('op = "store_kv"', 'op = "store_kv"\nfolder = "a\\nb"', "folder: got 'a\\nb'; accepts a name"),
        ('op = "store_kv"', 'op = "stove_kv"', "cpu.toml:7: op: got 'stove_kv'; accepts decode"),
        ('op = "store_kv"', 'op = "store_kv"\ntopk = 1', "cpu.toml:7: field: got 'topk'; accepts in_dtype, kv_dtype"),
        ('"there is no such kernel"', '" "', "cpu.toml:17: allow.reasons.load: got ' '; accepts words on one line"),
    ],
)
def test_archs_and_allowed_points_are_refused_by_their_place(folder, before, after, said):
    assert before in ARCH
    (folder / "cpu.toml").write_text(ARCH.replace(before, after) + ROW)
    with pytest.raises(MatrixError) as caught:
        load(folder)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[trait.q_dtype]\nenum = "Kind"', "domains.toml:31: trait.q_dtype: enum: got 'Kind'; accepts DType, Load"),
        ('[trait.q_dtype]\nenum = "DType"\nvalues = ["int8"]', "trait.q_dtype: values: got ['int8']; accepts fp32"),
        (
            '[trait.q_dtype]\nenum = "DType"\nprefix = "\'"',
            'toml:33: trait.q_dtype.prefix: got "\'"; accepts a name',
        ),
        ("[trait.q_dtype]\nunnamed = true", "trait.q_dtype.unnamed: got True; accepts an integer"),
        ("[field.page_size]\nmin = 2\nmax = 1", "field.page_size: got {'min': 2, 'max': 1}; accepts a range"),
    ],
)
def test_domains_are_refused_by_their_place(folder, text, said):
    path = folder / "domains.toml"
    header = text.split("\n")[0]
    before, _, after = path.read_text().partition(header)
    following = after.index("\n[")
    path.write_text(f"{before}{text}\n{after[following:]}")
    with pytest.raises(MatrixError) as caught:
        load(folder)
    assert said in str(caught.value)


def test_a_point_that_no_row_of_kernels_covers_is_a_problem(problems_of):
    found = problems_of(ROW + DECODE.format(load="gather", schedule="split", priority=0, minimum=1, maximum=64))
    assert found == [
        "cpu.toml:26: decode cpu bf16 bf16 bf16 gather split is not allowed: "
        "there is no such kernel (load is gather; accepts direct, tma)"
    ]


def test_a_row_accepts_no_more_than_its_kernel(problems_of):
    text = DECODE.format(load="tma", schedule="split", priority=0, minimum=1, maximum=64)
    found = problems_of(text + "num_heads = { min = 1 }\n")
    assert found == ["cpu.toml:19: num_heads accepts 1 and up, and cpu.toml:11 allows 1 to 128"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("priority", "priorty", "cpu.toml:22: unknown field 'priorty'; store_kv has in_dtype, kv_dtype, d_qk, d_v, "
         "page_size, and every row op, arch, device, priority, accuracy"),
        ('op = "store_kv"', 'op = "stove_kv"', "cpu.toml:20: op: got 'stove_kv'; accepts decode, "),
        ('arch = "cpu"', 'arch = "gpu"', "cpu.toml:21: arch: got 'gpu'; accepts cpu"),
    ],
)  # fmt: skip
def test_what_a_table_says_is_wrong_once_and_at_its_line(problems_of, before, after, said):
    assert before in TABLE
    (found,) = problems_of(TABLE.replace(before, after))
    assert found.startswith(said)


def test_what_a_table_lacks_is_said_once(matrix_of):
    with pytest.raises(MatrixError) as caught:
        matrix_of(TABLE.replace('op = "store_kv"\n', ""))
    assert caught.value.problems == ["cpu.toml:19: field 'op' is missing"]


def test_two_tables_do_not_allow_the_same_traits(problems_of):
    again = '\n[[allow]]\nop = "store_kv"\narch = "cpu"\nin_dtype = "bf16"\nkv_dtype = "bf16"\n'
    assert problems_of(again + ROW) == [
        "cpu.toml:19: allows traits that cpu.toml:7 allows too; one row must leave them out"
    ]


def test_all_problems_come_at_once(problems_of):
    bad = ROW.replace('"fp32"\n', '"fp64"\n') + ROW.replace("page_size", "pagesize")
    found = problems_of(bad + ROW + ROW)
    assert [word for word in ("fp64", "pagesize", "is taken by") if word not in str(found)] == []


DECODE = """
[[kernel]]
op = "decode"
arch = "cpu"
q_dtype = "bf16"
kv_dtype = "bf16"
out_dtype = "bf16"
load = "{load}"
schedule = "{schedule}"
priority = {priority}
kv_layout = "paged"
page_size = {{ min = {minimum}, max = {maximum} }}
"""


def test_a_tie_is_a_problem_until_priorities_differ(problems_of):
    first, second = (
        lambda priority, schedule=schedule, minimum=minimum, maximum=maximum: DECODE.format(
            load="direct", schedule=schedule, priority=priority, minimum=minimum, maximum=maximum
        )
        for schedule, minimum, maximum in (("split", 1, 64), ("rows", 64, 128))
    )
    (found,) = problems_of(first(1) + second(1))
    assert "ties with cpu_decode_qbf16_kvbf16_obf16_direct_split" in found
    assert problems_of(first(1) + second(2)) == []
    assert problems_of(first(1) + second(1).replace("min = 64", "min = 65")) == []


def test_broken_toml_names_its_file(folder):
    (folder / "extra.toml").write_text("[[kernel]\n")
    with pytest.raises(MatrixError, match=r"extra\.toml"):
        load(folder)
