"""Cache formats: a row is all that a new one needs before its kernels, and every mistake in a row is said."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry
from mla_kernels.resolve.config import with_defaults

from codegen import formats
from codegen.edit.add import add
from codegen.edit.remove import remove
from codegen.load import load
from codegen.render import render
from codegen.render.formats import fields, page
from codegen.schema import MATRIX, MatrixError
from codegen.validate import checked
from tests.support.formats import NEXT, with_next

CSRC = Path(__file__).parents[2] / "package" / "csrc"
LAYOUTS = {
    ("fp32", 576, 512): {"rope_offset": 2048, "row_bytes": 2304, "token_bytes": 2304, "is_bytes": False},
    ("e4m3", 576, 512): {"rope_offset": 512, "token_bytes": 576, "scale_bytes": 0, "is_bytes": False},
    ("fp8_ds_mla", 576, 512): {
        "scale_offset": 512, "scale_bytes": 16, "scale_interleave": 1, "rope_offset": 528, "token_bytes": 656,
    },
    ("bf16", 512, 512): {"latent": 512, "rope": 0, "row_bytes": 1024, "is_bytes": False},
    ("bf16", 320, 256): {"latent": 256, "rope": 64, "rope_offset": 512, "row_bytes": 640},
    ("fp8_ds_v4", 512, 512): {
        "latent": 448, "rope_offset": 448, "row_bytes": 576, "scale_bytes": 8, "token_bytes": 584, "page_multiple": 576,
        "is_bytes": True,
    },
    ("fp8_ds_v41", 512, 512): {"scale_offset": 512, "scale_bytes": 16, "rope_offset": 528, "row_bytes": 528},
    ("fp4_ds_v41", 512, 512): {"scale_offset": 256, "scale_bytes": 32, "row_bytes": 288, "token_bytes": 288},
    ("fp8_ds_mla", 512, 512): {"scale_offset": 512, "scale_bytes": 16, "rope_offset": 528, "token_bytes": 528},
    ("nvfp4_ds_mla", 576, 512): {
        "rope_offset": 256, "scale_offset": 320, "scale_bytes": 32, "scale_interleave": 4, "token_bytes": 352,
    },
    ("bf16", 288, 256): {"latent": 256, "rope": 32, "row_bytes": 576},
    ("mxfp4_next", 288, 288): {"rope_offset": 128, "row_bytes": 192, "scale_bytes": 16, "token_bytes": 208},
}  # fmt: skip
"""The offsets of each format by name and widths, counted by hand."""
SCALE_PLACES = {
    "nvfp4_ds_mla": {0: 0, 1: 8, 2: 16, 3: 24, 4: 1, 5: 9, 30: 23, 31: 31},
    "fp8_ds_mla": {0: 0, 1: 1, 2: 2, 3: 3},
}
"""Which of the scales of a token is that of a group."""


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A copy of the matrix with the formats of the next models."""
    folder = tmp_path / "matrix"
    shutil.copytree(MATRIX, folder)
    with (folder / "formats.toml").open("a") as file:
        file.write(NEXT)
    return folder


def test_the_offsets_of_every_format_are_those_counted_by_hand():
    rows = {row.key: fields(row) for row in with_next().rows}
    assert set(rows) >= set(LAYOUTS)
    for key, layout in LAYOUTS.items():
        assert {name: rows[key][name] for name in layout} == layout, key


def test_the_page_counts_padding_by_the_type_of_the_scales():
    stated = """
[default_widths]
latent = 512
rope = 64

[[format]]
name = "fp8_next"
latent = { columns = 512, type = "e4m3" }
rope = { columns = 64, type = "bf16" }
scales = { type = "fp16", group = 128, place = "row", bytes = 16 }
token_bytes = 656
"""
    (layout,) = page(formats.parse(stated))["layouts"]
    scales = next(part["holds"] for part in layout["parts"] if "scales" in part["holds"])
    assert scales.endswith("4 fp16 scales, each of 128 columns, then 8 unused")


def test_a_format_of_a_next_model_needs_a_row_and_its_header_compiles(extended, tmp_path):
    matrix = load(extended)
    files = render(matrix, checked(matrix))
    for name in ("include/mla/formats.h", "include/mla/traits.h"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    checks = [
        f"static_assert(mla::kCacheFormat<mla::DType::{name}, {d_qk}, {d_v}>.{field} == {str(value).lower()});"
        for (name, d_qk, d_v), layout in LAYOUTS.items()
        for field, value in layout.items()
    ]
    checks += [
        "static_assert(mla::kCacheFormat<mla::DType::fp8_ds_v4, 512, 512>.page_bytes(64) == 65 * 576);",
        "static_assert(mla::kCacheFormat<mla::DType::fp8_ds_mla>.page_bytes(64) == 64 * 656);",
        "static_assert(mla::kCacheFormat<mla::DType::bf16>.has_rope_view());",
        *(
            f"static_assert(mla::kCacheFormat<mla::DType::{name}>.scale_index({group}) == {place});"
            for name, places in SCALE_PLACES.items()
            for group, place in places.items()
        ),
        "static_assert(!mla::kCacheFormat<mla::DType::bf16, 512, 512>.has_rope_view());",
    ]
    source = tmp_path / "checks.cpp"
    source.write_text("\n".join(['#include "mla/formats.h"', *checks]))
    compiled = compile_header(source, tmp_path / "include")
    assert compiled.returncode == 0, compiled.stderr
    source.write_text('#include "mla/formats.h"\nint bytes = mla::kCacheFormat<mla::DType::fp16, 288, 256>.row_bytes;')
    assert compile_header(source, tmp_path / "include").returncode != 0, "there is no such row"


@pytest.mark.parametrize("payload", ["cpu", "sm90", "sm100"])
def test_no_kernel_claims_a_format_that_it_was_not_written_for(extended, tmp_path, payload):
    matrix = load(extended)
    files = render(matrix, checked(matrix))
    for name in ("include/mla/formats.h", "include/mla/traits.h", f"{payload}/allowed.h"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    source = tmp_path / "checks.cpp"
    source.write_text(f'#include "{payload}/allowed.h"\n#include "mla/formats.h"\nint main() {{}}\n')
    compiled = compile_header(source, tmp_path / "include", f"-I{tmp_path}")
    assert compiled.returncode == 0, compiled.stderr


def compile_header(source: Path, include: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}", f"-I{CSRC}", *flags]
    return subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)


def test_the_python_mirror_says_what_the_rows_say(extended):
    matrix = load(extended)
    mirror: dict[str, object] = {}
    exec(render(matrix, checked(matrix))["python/_formats.py"], mirror)
    assert [row._asdict() for row in mirror["FORMATS"]] == [fields(row) for row in with_next().rows]


NARROW = """
[[allow]]
op = "decode"
arch = "cpu"
q_dtype = "bf16"
kv_dtype = "bf16"
out_dtype = "bf16"
load = "direct"
schedule = "split"
d_qk = 288
d_v = 256

[[kernel]]
op = "decode"
arch = "cpu"
q_dtype = "bf16"
kv_dtype = "bf16"
out_dtype = "bf16"
load = "direct"
schedule = "split"
d_qk = 288
d_v = 256
"""


@pytest.fixture
def narrow(extended: Path) -> Path:
    """The same with a kernel of the format of 256 + 32 columns."""
    with (extended / "cpu.toml").open("a") as file:
        file.write(NARROW)
    return extended


def test_a_variant_shows_widths_that_are_not_the_default_ones(narrow):
    matrix = load(narrow)
    variants = checked(matrix)
    usual = {variant.name for variant in checked(load())}
    (added,) = [variant for variant in variants if variant.name not in usual]
    assert added.name == "cpu_decode_qbf16_kvbf16_obf16_direct_split_d288_v256"
    assert {variant.name for variant in variants} == usual | {added.name}
    files = render(matrix, variants)
    unit = files["cpu/decode_qbf16_direct_split_d288_v256.cpp"]
    types = "mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split"
    assert f"Decode<{types}, 288, 256>" in unit
    assert f"Decode<{types}>" in files["cpu/decode_qbf16_direct_split.cpp"]


def test_a_search_without_widths_finds_the_default_ones_only(narrow):
    matrix = load(narrow)
    files = render(matrix, checked(matrix))
    registry = Registry.parse(json.loads(files["cpu/registry.json"]))
    index = Index([variant for variant in registry.variants if variant.op == "decode"])
    config = {"arch": "cpu", "q_dtype": "bf16", "kv_dtype": "bf16", "out_dtype": "bf16"}
    usual, narrowed = "cpu_decode_qbf16_kvbf16_obf16_direct_split", {"d_qk": 288, "d_v": 256}
    assert [variant.name for variant in index.matching(with_defaults(config, index.fields))] == [usual]
    found = index.matching(with_defaults(config | narrowed, index.fields))
    assert [variant.name for variant in found] == [f"{usual}_d288_v256"]
    assert index.matching(with_defaults(config | {"d_qk": 288}, index.fields)) == ()


def test_a_row_of_a_format_is_added_and_removed_by_its_widths(extended):
    with (extended / "cpu.toml").open("a") as file:
        file.write(NARROW.partition("[[kernel]]")[0])
    before = (extended / "cpu.toml").read_text()
    point = {"op": "decode", "arch": "cpu", "q_dtype": "bf16", "kv_dtype": "bf16", "d_qk": 288, "d_v": 256}
    assert add(point, extended) == ("cpu_decode_qbf16_kvbf16_obf16_direct_split_d288_v256",)
    assert (extended / "cpu.toml").read_text() != before
    assert remove(point, extended) == ("cpu_decode_qbf16_kvbf16_obf16_direct_split_d288_v256",)
    assert (extended / "cpu.toml").read_text().split() == before.split()
    with pytest.raises(MatrixError, match="d_v is 512; accepts 256"):
        add({**point, "d_v": 512}, extended)


WIDER = """
[[format]]
name = "bf16"
d_v = 576
latent = { columns = 512, type = "bf16" }
rope = { columns = 64, type = "bf16" }
token_bytes = 1152
"""
"""A value of all columns, which the tensor of a cache does not show."""

SHORT = """
[[format]]
name = "fp8_short"
latent = { columns = 512, type = "e4m3" }
scales = { type = "fp32", group = 128, place = "row" }
rope = { columns = 24, type = "bf16" }
token_bytes = 576
"""
"""A cache of bytes as wide as one of e4m3."""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("token_bytes = 656", "token_bytes = 640", "token_bytes = 640, but the parts of a token take 656"),
        ("group = 128", "group = 100", "groups of 100 do not divide a latent of 512 columns"),
        ('group = 128, place = "row"', 'group = 128, place = "row", bytes = 8', "8 bytes do not hold a token's scales"),
        ("interleave = 4", "interleave = 5", "scales: interleave = 5 does not divide 32 groups"),
        ("token_bytes = 656", "token_bytes = 656\nd_v = 600", "d_v = 600; accepts 512 (the latent) to 576"),
        ('name = "fp16"', 'name = "bf16"', "has the same name and widths"),
        ("latent = 512\nrope = 64", "latent = 384\nrope = 64", "no format has the default widths 384 and 64"),
        ("token_bytes = 656", f"token_bytes = 656\n{WIDER}", "a tensor of bf16 and 576 columns is also one of"),
        ("token_bytes = 656", f"token_bytes = 656\n{SHORT}", "a tensor of uint8 and 576 columns is also one of"),
        ('rope = { columns = 64, type = "fp16" }', 'rope = { columns = 64, type = "bf16" }', "without scales beside"),
    ],
)
def test_each_mistake_in_a_row_is_said(before, after, said):
    text = (MATRIX / "formats.toml").read_text()
    assert before in text
    found = formats.problems(formats.parse(text.replace(before, after)))
    assert any(said in problem for problem in found), found


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("token_bytes = 656\n", "", "formats.toml:45: format: field 'token_bytes' is missing"),
        (
            "token_bytes = 656",
            "token_bytes = 656\npadding = 1",
            "formats.toml:51: format: field: got 'padding'",
        ),
        ("columns = 512", "column = 512", "formats.toml:21: format.latent: field 'columns' is missing"),
        (
            'type = "fp32", group = 128',
            'type = "fp64", group = 128',
            "format.scales.type: got 'fp64'; accepts",
        ),
        ('place = "row"', 'place = "column"', "format.scales.place: got 'column'; accepts tensor, row, row_end, page"),
        ("group = 128, ", "", "formats.toml:48: format.scales: field 'group' is missing"),
        ('place = "tensor"', 'place = "tensor", group = 8', "format.scales.group: got 8; accepts nothing"),
        ('place = "tensor"', 'place = "tensor", interleave = 2', "format.scales.interleave: got 2; accepts nothing"),
        ("token_bytes = 656", "token_bytes = 656\npage_multiple = 0", "got 0; accepts an integer from 1"),
        ("interleave = 4", "interleave = 0", "format.scales.interleave: got 0; accepts an integer from 1"),
    ],
)
def test_a_row_of_another_form_is_named_by_its_line(extended, before, after, said):
    path = extended / "formats.toml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(MatrixError, match=re.escape(said)):
        load(extended)
