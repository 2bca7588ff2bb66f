"""A matrix that is hostile or damaged: every fault is said with its file and line, and nothing of it is rendered."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codegen import schema
from codegen.load import load
from codegen.schema import BITS, MATRIX, MatrixError
from codegen.schema.lines import line_of
from codegen.validate import checked

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"(\w+\.toml):(\d+): ")
NAMES = ["../..", "/etc/passwd", 'a"b', "a'b", "a\nb", "a b", "", "A", "class", "namespace", "ä", "a/b", "a-b", "0a"]
"""What no name may be: it would leave the tree, end a string or a line, or be no identifier."""

TEXTS = ['a"b', "a\nb", "a\\b", "a|b", "<script>", "`a`", "[a](b)", "{a}", "", " a", "a\u202eb", "a\u2028b", "a\tb"]
"""What no text may be: it would end a string of C++ or Python, or mean something to Markdown or HTML."""


def faults(folder: Path) -> list[str]:
    """Everything that is wrong with a matrix."""
    with pytest.raises(MatrixError) as caught:
        checked(load(folder))
    return caught.value.problems


def change(folder: Path, file: str, before: str, after: str) -> int:
    """Change the first place of a text in a file, and return its line."""
    path = folder / file
    head, found, tail = path.read_text().partition(before)
    assert found, before
    path.write_text(head + after + tail)
    return head.count("\n") + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name(real, name):
    line = change(real, "cuda.toml", 'folder = "cuda"', f"folder = {json.dumps(name)}")
    (found,) = faults(real)
    assert found.startswith(f"cuda.toml:{line}: allow.folder: got {name!r}; accepts a name of lower case letters")


@pytest.mark.parametrize("name", ["../..", 'a"\n//', "class"])
@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("cuda.toml", 'folder = "cuda"', "folder = {}"),
        ("cpu.toml", 'payload = "cpu"', "payload = {}"),
        ("sm90.toml", 'name = "sm90a"', "name = {}"),
        ("formats.toml", 'name = "fp16"', "name = {}"),
        ("domains.toml", '"gather"]', '"gather", {}]'),
        ("domains.toml", 'prefix = "kv"', "prefix = {}"),
        ("domains.toml", 'values = ["contiguous", "paged"]', 'values = ["contiguous", {}]'),
        ("domains.toml", 'e4m3 = "bf16"', "e4m3 = {}"),
        ("domains.toml", "[field.topk]", "[field.{}]"),
        ("sm90.toml", 'schedule = "rows_m64"', "schedule = {}"),
        ("models.toml", "nvfp4_ds_v4 =", "{} ="),
    ],
)
def test_every_name_is_looked_at(real, file, before, after, name):
    line = change(real, file, before, after.format(json.dumps(name)))
    found = faults(real)
    assert any(re.match(rf"{file}:\d+: .*accepts a name", fault) for fault in found), found
    if "[field" not in before:
        assert any(fault.startswith(f"{file}:{line}: ") for fault in found), (line, found)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_one_line_without_markup(real, text):
    line = change(real, "sm90.toml", '"Hopper: H100, H200, H20"', json.dumps(text))
    (found,) = faults(real)
    assert found.startswith(f"sm90.toml:{line}: arch.hardware: got {text!r}; accepts words on one line")


@pytest.mark.parametrize("text", ['a"', "a\nb"])
@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("cpu.toml", 'load = "a CPU has plain loads only"', "load = {}"),
        ("models.toml", 'name = "DeepSeek-V2"', "name = {}"),
        ("models.toml", '"DeepSeek-V2.5"', "{}"),
        ("models.toml", 'source = "arXiv 2405.04434"', "source = {}"),
        ("models.toml", "nvfp4_ds_v4 =", "nvfp4_ds_v4 = {} #"),
    ],
)
def test_every_text_is_looked_at(real, file, before, after, text):
    line = change(real, file, before, after.format(json.dumps(text)))
    found = faults(real)
    assert any(fault.startswith(f"{file}:{line}: ") for fault in found), (line, found)


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", "{ min = 8, max = 7 }", "accepts a range with min <= max"),
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", "{ min = 8, multiple_of = 0 }", "multiple_of: got 0"),
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", "{ min = -1 }", "min: got -1"),
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", "{ min = 99999999999 }", "got 99999999999"),
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", "{ min = 8.0 }", "min: got 8.0"),
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", "{}", "got {}; accepts a range"),
        ("sm90.toml", "{ min = 8, multiple_of = 8 }", '"8"', "got '8'; accepts a name"),
        (
            "sm90.toml",
            "{ min = 8, multiple_of = 8 }",
            "{ min = 17, max = 31, multiple_of = 16 }",
            "that holds a number",
        ),
        ("sm90.toml", 'other_schedules = ["decode"', 'other_schedules = ["decod"', "other_schedules: got 'decod'; acc"),
        (
            "sm90.toml",
            'tensor_cores = ["decode"',
            'tensor_cores = ["decod"',
            "tensor_cores: got 'decod'; accepts decode",
        ),
        ("sm100.toml", "one_unit = { decode", "one_unit = { decod", "one_unit: got 'decod'; accepts decode"),
        ("sm100.toml", '{ decode = ["d_qk"] }', '{ decode = ["d_q"] }', "one_unit.decode: got 'd_q'; accepts q_dtype"),
        ("sm90.toml", 'capabilities = ["9.0"]\n', "", "arch sm90a: field 'capabilities' is missing"),
        ("sm90.toml", 'capabilities = ["9.0"]', 'capabilities = ["10.3"]', "capabilities: 10.3 is one of arch sm100f"),
        ("cuda.toml", 'folder = "cuda"', 'folder = "cdua"', "folder: got 'cdua'; accepts the folders of package/csrc/"),
        ("domains.toml", "{ e4m3 =", "{ e4m4 =", "trait.out_dtype: instead: got 'e4m4'; accepts fp32"),
        ("domains.toml", '= "bf16" }', '= "bf61" }', "trait.out_dtype: instead: got 'bf61'; accepts fp32, fp16, bf16"),
        (
            "domains.toml",
            "[trait.load]",
            '[trait.lode]\nenum = "Load"\n[trait.load]',
            "trait.lode: no op has this trait",
        ),
        ("domains.toml", "[field.topk]", "[field.topq]\nmin = 0\n[field.topk]", "field.topq: no op accepts this field"),
        (
            "models.toml",
            "unserved = { ",
            'unserved = { sm80a = "x", ',
            "unserved: got 'sm80a'; accepts cpu, sm100f, sm90a",
        ),
        ("sm90.toml", "priority = 20", "priority = 2147483648", "priority: got 2147483648; accepts an integer"),
        ("sm90.toml", 'capabilities = ["9.0"]', 'capabilities = ["90\\n"]', "accepts a compute capability"),
        ("sm90.toml", 'capabilities = ["9.0"]', 'capabilities = "9.0"', "accepts a list of different compute"),
        ("sm90.toml", 'payload = "sm90"', 'payload = "include"', "payload: got 'include'"),
        ("sm90.toml", 'payload = "sm90"', 'payload = "sm100"', "another arch has the payload sm100"),
        ("sm90.toml", 'name = "sm90a"', 'name = "cpu"', "another arch has this name"),
        ("sm90.toml", "[[arch]]", "[arch]", "arch: got {"),
        ("domains.toml", "[field.head_dim]", "[field.q_len]\nmin = 1\n[field.head_dim]", "this is not TOML"),
        ("cuda.toml", "[[allow]]", "[trait.load]\n[[allow]]", "trait.load: it stands at cuda.toml"),
        ("cuda.toml", "[[allow]]", "[unread]\n[[allow]]", "the table 'unread' belongs to models.toml"),
        ("formats.toml", "[default_widths]", "[unread]", "the table 'default_widths' is missing"),
        ("formats.toml", "columns = 512", "columns = -512", "latent.columns: got -512"),
        ("models.toml", "sink = true", 'sink = "yes"', "sink: got 'yes'; accepts true or false"),
        ("models.toml", "model = [", "models = [", "field: got 'models'"),
    ],
)
def test_numbers_kinds_and_tables(real, file, before, after, said):
    change(real, file, before, after)
    found = faults(real)
    assert any(said in fault for fault in found), found
    assert all(PLACE.match(fault) for fault in found), found


@pytest.mark.parametrize("name", ["formats.toml", "domains.toml"])
def test_a_file_that_is_missing(real, name):
    (real / name).unlink()
    assert f"{name}: the matrix has no such file" in faults(real)


def test_every_table_that_the_ops_need_is_asked_for(real):
    text = (real / "domains.toml").read_text()
    for header in re.findall(r"^\[trait\.\w+\]|^\[field\.kv_layout\]|^\[field\.topk\]", text, re.MULTILINE):
        before, _, after = text.partition(header)
        (real / "domains.toml").write_text(before + after[after.index("\n[") if "\n[" in after else len(after) :])
        assert any(header in fault for fault in faults(real)), header


def test_all_faults_of_all_files_are_said_at_once(real):
    changes = [
        ("cuda.toml", 'folder = "cuda"', 'folder = "cuda\\n#define x"'),
        ("cuda.toml", 'schedule = "rows"', "schedule = 1.5"),
        ("cpu.toml", 'payload = "cpu"', 'payload = "../.."'),
        ("cpu.toml", 'schedule = "split"', 'schedule = "a\\"b"'),
        ("sm90.toml", "{ min = 1, max = 128 }", "{ min = 128, max = 1 }"),
        ("sm90.toml", "{ min = 16, multiple_of = 16 }", "{ min = 16, multiple_of = 0 }"),
        ("domains.toml", '"cpasync"', '"CpAsync"'),
        ("domains.toml", 'prefix = "q"', "prefix = 7"),
        ("formats.toml", 'name = "fp16"', 'name = "fp16;"'),
        ("formats.toml", "token_bytes = 576", 'token_bytes = "576"'),
        ("models.toml", 'organisation = "Huawei"', 'organisation = "Hua\\"wei"'),
        ("models.toml", "heads = 96", "heads = true"),
    ]
    wanted = {(file, change(real, file, before, after)) for file, before, after in changes}
    (real / "broken.toml").write_text("[[kernel]]\nop = 'decode'\narch = \n")
    found = {(match[1], int(match[2])) for fault in faults(real) if (match := PLACE.match(fault))}
    assert found == {*wanted, ("broken.toml", 3)}


def test_the_place_of_a_merge_conflict_is_said(real):
    row = '  { in_dtype = "fp16", out_dtype = "fp16" },\n'
    line = change(real, "cpu.toml", row, f"<<<<<<< HEAD\n{row}=======\n>>>>>>> other\n")
    assert faults(real) == [f"cpu.toml:{line}: a merge conflict begins here; choose the rows, then nox -s generate"]


def test_the_type_of_an_element_is_said_with_all_that_there_are(real):
    line = change(real, "formats.toml", 'type = "fp32" }', 'type = "e5m2" }')
    (found,) = faults(real)
    assert found.startswith(f"formats.toml:{line}: format.latent.type: got 'e5m2'; accepts the type of an element: ")
    assert found.endswith(f": {', '.join(BITS)}; a new one is added to codegen/schema/__init__.py")


def test_what_rows_mean_is_said_at_once_too(real):
    changes = [
        ("cuda.toml", 'device = "cuda"', 'device = "tpu"'),
        ("sm100.toml", 'op = "decode"', 'op = "encode"'),
        ("sm90.toml", "page_size = { min = 8", "pagesize = { min = 8"),
        ("cpu.toml", 'op = "decode"\n', ""),
        ("domains.toml", 'enum = "Load"', 'enum = "Loads"'),
    ]
    for file, before, after in changes[:-1]:
        change(real, file, before, after)
    found = faults(real)
    assert {fault.partition(":")[0] for fault in found} == {file for file, _, _ in changes[:-1]}
    assert all(PLACE.match(fault) for fault in found)
    change(real, *changes[-1])
    assert any("domains.toml" in fault and "got 'Loads'" in fault for fault in faults(real))


def test_the_command_says_faults_in_formats_that_its_modules_read_at_import(tmp_path):
    for folder in ("codegen", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    line = change(tmp_path / "codegen" / "matrix", "formats.toml", "latent = 512", "latents = 512")
    command = [sys.executable, "-m", "codegen", "check"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()
        == [
            f"formats.toml:{line}: default_widths: field: got 'latents'; accepts latent, rope",
            f"formats.toml:{line - 1}: default_widths: field 'latent' is missing",
        ][::-1]
    )


def test_the_real_matrix_has_the_form_of_its_schema():
    assert set(schema.check(MATRIX)) == {path.name for path in MATRIX.glob("*.toml")}


def test_lines_are_those_of_tables_fields_and_rows():
    text = "# x\n[[a]]\nb = 1\n[a.c]\nd = 2\n[[a]]\nrows = [\n  { b = 1 },\n  # y\n  { b = 2 },\n]\n[e.f]\ng = 3\n"
    wanted = {
        ("a",): 2, ("a", 0): 2, ("a", 0, "b"): 3, ("a", 0, "c"): 4, ("a", 0, "c", "d"): 5, ("a", 1): 6,
        ("a", 1, "rows", 1): 10, ("a", 1, "rows", 1, "b"): 10, ("a", 1, "none"): 6, ("e", "f", "g"): 13, ("h",): 1,
    }  # fmt: skip
    assert {path: line_of(text, path) for path in wanted} == wanted
