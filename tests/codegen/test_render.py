"""Rendering is pure and reproducible, and generated/ is what it yields."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from codegen import abi, sync
from codegen.load import load
from codegen.render import TEMPLATES, render
from codegen.validate import checked

ROOT = Path(__file__).parents[2]
DIGEST = """
import hashlib, json
from codegen.load import load
from codegen.render import render
from codegen.validate import checked
matrix = load()
print(hashlib.sha256(json.dumps(render(matrix, checked(matrix))).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def files():
    matrix = load()
    return render(matrix, checked(matrix))


def test_generated_is_what_the_matrix_says(files):
    assert not sync.compare(files), str(sync.compare(files))


def test_two_hash_seeds_render_the_same_bytes():
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_no_date_version_or_path_in_generated_files(files):
    # Wheels are built in one folder of every machine, /var/tmp/mla-kernels, so that path is no machine's own.
    # The matrix states the day on which it was read what other packages have.
    day = r"(?<!; read on )\b20\d\d-\d\d-\d\d\b"
    forbidden = re.compile(rf"(?<!/var)/(work|home|tmp|root|usr)/|{day}|jinja|python3\.", re.IGNORECASE)
    ours = {name: text for name, text in files.items() if "/licenses/" not in name}
    assert {name: found[0] for name, text in ours.items() if (found := forbidden.search(text))} == {}


def test_an_undefined_name_in_a_template_is_an_error():
    from codegen.render import _environment

    with pytest.raises(UndefinedError):
        _environment().from_string("{{ nothing }}").render()


def test_templates_stay_small_and_take_no_decision_about_types():
    for path in TEMPLATES.rglob("*.j2"):
        text = path.read_text()
        assert len(text.splitlines()) <= 60, path
        assert not re.search(r"{%\s*if[^%]*dtype", text), path


def test_every_variant_is_instantiated_and_registered_once(files):
    units = "".join(text for name, text in files.items() if name.endswith(".cpp") and "registry" not in name)
    registry = files["cpu/registry.cpp"]
    rows = json.loads(files["cpu/registry.json"])["variants"]
    assert len(re.findall(r"^template struct", units, re.MULTILINE)) == len(
        re.findall(r"^extern template struct", registry, re.MULTILINE)
    )
    for row in rows:
        assert registry.count(f'"{row["name"]}"') == 1
        assert f"`{row['name']}`" in files["VARIANTS.md"]


def test_every_generated_source_is_compiled(files):
    sources = set(re.findall(r"\S+\.cpp", files["cpu/sources.cmake"]))
    assert sources == {name for name in files if name.startswith("cpu/") and name.endswith(".cpp")}


def test_offsets_leave_no_padding():
    for op in abi.OPS:
        offsets = list(op.offsets.values())
        assert offsets == sorted(set(offsets))
        assert offsets[-1] % 8 == 0


@pytest.mark.parametrize("op", abi.OPS, ids=lambda op: op.name)
def test_a_row_of_an_op_names_its_own_arguments(op):
    names = [argument.name for argument in op.arguments]
    assert len(set(names)) == len(names)
    assert {*op.selects, *op.together, *filter(None, (op.layout, op.plans))} <= set(names)
    assert bool(op.plans) == any(scalar.planned for scalar in op.scalars)


def test_documentation_is_no_part_of_the_hash(monkeypatch):
    before = abi.abi_hash()
    monkeypatch.setattr(abi, "OPS", tuple(replace(op, summary="Another.", doc="Words.") for op in abi.OPS))
    assert abi.abi_hash() == before


def test_the_hash_follows_the_fields(monkeypatch):
    before = abi.abi_hash()
    monkeypatch.setattr(abi, "OPS", abi.OPS[:-1])
    assert abi.abi_hash() != before
