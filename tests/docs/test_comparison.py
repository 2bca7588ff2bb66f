"""The comparison with other libraries: every value has a source, and our column is what the registries hold."""

from __future__ import annotations

import tomllib
from datetime import date

import mla_kernels as mla
import pytest

from ci import comparison

TABLE = comparison.load()
OURS = {feature["title"]: feature["ours"] for feature in TABLE["feature"]}


def test_sources_are_dated():
    assert {type(source["date"]) for source in TABLE["sources"].values()} == {date}


@pytest.mark.parametrize("title", [title for title, cell in OURS.items() if "value" in cell])
def test_what_we_state_names_a_file(title):
    assert (comparison.ROOT / OURS[title]["source"]).is_file()


@pytest.mark.parametrize("title", [title for title, cell in OURS.items() if cell.get("arch") == "cpu"])
def test_the_registry_is_that_of_the_package(title):
    cell = OURS[title]
    assert comparison.ours(cell) == ("yes" if mla.variants(op=cell["op"], arch="cpu") else "no")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ({"op": "decode", "arch": "sm90a", "baked": {"kv_dtype": "fp32"}}, "no"),
        ({"op": "decode", "arch": "sm90a", "baked": {"kv_dtype": "e4m3"}, "show": "page_size"}, "multiples of 8"),
        ({"op": "sparse_prefill", "arch": "sm100f", "show": "num_heads"}, "none"),
        ({"op": "decode", "capabilities": ["9.0"]}, "yes"),
        ({"op": "decode", "capabilities": ["8.9"]}, "no"),
    ],
)
def test_what_the_registries_say(cell, said):
    assert comparison.ours(cell) == said


def test_the_table_has_a_row_for_each_feature_and_links_that_lead_to_a_source():
    text = comparison.rendered()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(OURS)
    assert {row.count(" | ") for row in rows} == {1 + len(TABLE["libraries"])}
    assert all(f'id="source-{number}"' in text for number in range(1, 1 + len(TABLE["sources"])))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('vllm = { value = "dense", source = "vllm_backends" }\n', ""),
        ('source = "vllm_fa3"', 'source = "hearsay"'),
    ],
)
def test_a_value_without_a_source_is_refused(tmp_path, monkeypatch, old, new):
    text = comparison.TABLE.read_text(encoding="utf-8")
    assert old in text
    tomllib.loads(changed := text.replace(old, new))
    (tmp_path / "peers.toml").write_text(changed)
    monkeypatch.setattr(comparison, "TABLE", tmp_path / "peers.toml")
    with pytest.raises(ValueError, match=r"peers\.toml"):
        comparison.load()
