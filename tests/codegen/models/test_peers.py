"""Kernels of other packages: a mistake in a row is said, and the page has each row where a model asks for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from codegen.load import load
from codegen.models.peers import Attention, Peer, asked
from codegen.schema import MatrixError
from codegen.validate import checked

GENERATED = Path(__file__).parents[3] / "generated"
MODEL = (
    'model = [{ name = "A", organisation = "B", heads = 8, d_qk = 576, d_v = 512, formats = ["bf16"], source = "C" }]\n'
    "[unread]\n"
)
PEER = '{ name = "D", arch = "cpu", d_qk = 576, d_v = 512, formats = ["bf16"], source = "e" }'
SOURCE = '[peer_source.e]\ntext = "E"\nread = "2026-11-23"\n'


def page() -> tuple[list[dict[str, str]], list[str]]:
    """The rows of the table, and the sources below it."""
    text = (GENERATED / "MODELS.md").read_text().partition("[start:peers]")[2].partition("[end:peers]")[0]
    header, _, *rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return [dict(zip(header, cells, strict=True)) for cells in rows], re.findall(r"^\d+\. .*", text, re.MULTILINE)


def test_the_page_has_each_row_with_its_source():
    matrix = load()
    rows, sources = page()
    assert len(rows) == len(asked(matrix.models))
    for peer in matrix.peers.rows:
        (number,) = (at for at, line in enumerate(sources, 1) if matrix.peers.sources[peer.source].text in line)
        assert sources[number - 1].endswith(f"read on {matrix.peers.sources[peer.source].read}")
        kind = f"{'sparse' if peer.sparse else 'dense'} {peer.d_qk}/{peer.d_v}"
        cells = [row[peer.arch] for row in rows if row["Attention"] == kind]
        assert any(f"{peer.name}&nbsp;<sup>[{number}](#peer-{number})</sup>" in cell for cell in cells), peer


@pytest.mark.parametrize("arch", ["cpu", "sm90a", "sm100f"])
def test_the_page_names_us_where_a_registry_has_a_variant(arch):
    """The widths and formats of decodes are baked, so that a registry lists exactly what the column may claim."""
    (registry,) = (
        found
        for path in GENERATED.glob("*/registry.json")
        if (found := json.loads(path.read_text()))["arch"]["name"] == arch
    )
    have = {
        (variant["op"], baked["d_qk"], baked["d_v"], baked["kv_dtype"], baked.get("extra_kv_dtype", "same"))
        for variant in registry["variants"]
        if variant["op"] in ("decode", "sparse_decode") and (baked := variant["baked"])["out_dtype"] == "bf16"
    }
    claimed = 0
    for row, attention in zip(page()[0], asked(load().models), strict=True):
        key = (
            "sparse_decode" if attention.sparse else "decode",
            attention.d_qk,
            attention.d_v,
            attention.format,
            attention.extra_format or "same",
        )
        assert ("**mla-kernels**" in row[arch]) == (key in have), row
        claimed += key in have
    assert claimed > 3


def test_two_caches_are_served_by_who_reads_both():
    both = Peer("D", "cpu", 512, 512, ("fp8_ds_v41", "fp4_ds_v41"), "e", sparse=True)
    pair = Attention(True, 512, 512, "fp8_ds_v41", "fp4_ds_v41")
    assert both.serves(pair)
    assert not Peer("D", "cpu", 512, 512, ("fp8_ds_v41",), "e", sparse=True).serves(pair)
    assert not Peer("D", "cpu", 512, 512, ("fp8_ds_v41", "fp4_ds_v41"), "e").serves(pair)
    assert not both.serves(Attention(True, 576, 512, "fp8_ds_v41", "fp4_ds_v41"))


@pytest.mark.parametrize(
    ("row", "source", "problem"),
    [
        (PEER.replace('"cpu"', '"sm75"'), SOURCE, "peers.toml:1: D: arch: got 'sm75'; accepts cpu"),
        (PEER.replace('"e" }', '"f" }'), SOURCE, "peers.toml:1: D: source: got 'f'; accepts e"),
        (PEER.replace('["bf16"]', '["bf16", "e4m3"]'), SOURCE, "peers.toml:1: D: format e4m3: no model asks for it"),
        (PEER.replace("576", "580"), SOURCE, "peers.toml:1: D: format bf16: no model asks for it with these widths"),
        (PEER.replace("576", "500"), SOURCE, "peers.toml:1: peer: got "),
        (PEER.replace('arch = "cpu", ', ""), SOURCE, "peers.toml:1: peer: field 'arch' is missing"),
        (PEER, SOURCE + SOURCE.replace("e]", "f]"), "peers.toml:5: peer_source.f: no row names it"),
        (
            PEER,
            SOURCE.replace("2026-11-23", "November"),
            "peers.toml:4: peer_source.e.read: got 'November'; accepts a day",
        ),
    ],
)
def test_a_mistake_in_a_row(folder, row, source, problem):
    (folder / "models.toml").write_text(MODEL)
    (folder / "peers.toml").write_text(f"peer = [{row}]\n{source}")
    with pytest.raises(MatrixError) as error:
        checked(load(folder))
    assert problem in str(error.value)
