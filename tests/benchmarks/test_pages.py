"""What a measurement becomes: its page and its roofline."""

from __future__ import annotations

import json

import pytest
from mla_kernels.diagnostics.bench.problems import SUITES, Problem, problems

from benchmarks.ops import run_cuda
from benchmarks.pages import page, roofline
from benchmarks.peers import figures

from .imagined import CEILINGS, FIGURES, PAGES, cell_row, document, own


def test_page():
    rows = (
        cell_row(peers=[own("FlashMLA", 460.0)]),
        cell_row(
            us=None, variant="no variant", **run_cuda.of_attention(Problem("bf16", "bf16", 1, 1, 1), None, CEILINGS)
        ),
        cell_row(note="RuntimeError: a|b", page_size=16, peers=[own("FA3", None, note="ImportError: no")]),
    )
    text = page.page(document(*rows), data="x.json", picture="x.png")
    lines = text.splitlines()
    assert lines[0] == "# Dense decode: Imagined GPU"
    assert "![roofline](x.png)" in lines
    assert "[x.json](x.json)" in text
    assert "commit `0123456789ab`" in text
    assert "FlashMLA 7.8" in text
    assert "FA3: ImportError: no" in text
    assert "Peers not installed: FA3." in text
    assert "In all cells: q `bf16`, kv `bf16`, lengths `equal`." in text
    assert "The columns, of 7 replays:" in text
    header, _, first, second, third = (line for line in lines if line.startswith("| "))
    assert header.startswith("| heads | q_len | batch | seq | page_size | us |")
    assert "| 128 | 1 | 128 | 8,192 | 64 | 500.0 | 505.0 | 4.0 |" in first
    assert first.endswith("| 460.0 | FlashMLA | 0.92 | `sm90a_decode` |")
    assert second.endswith("| no variant |")
    assert third.endswith("| RuntimeError: a/b |")


def test_page_labels_table_figures():
    joined = figures.joined(document(cell_row()), figures.load(str(FIGURES)))
    text = page.page(joined, data="x.json", picture=None)
    assert "| FlashMLA, table figure |" in text
    assert "**not of this run**: one NVIDIA H200, driver 580" in text
    assert "FlashInfer (FA3) 0.7.2.post1" in text
    assert "roofline" not in text
    assert "variant `sm90a_decode`" in text
    assert "| variant |" not in text


def test_roofline(tmp_path):
    cells = problems(("bf16",), SUITES["h200"])
    rows = [
        cell_row(**cell.fields, **cell.counts, **run_cuda.of_attention(cell, cell.bytes / 3e6, CEILINGS))
        for cell in cells
    ]
    rows[0]["peers"] = [own("FlashMLA", 30.0)]
    rows.append(cell_row(us=None, **run_cuda.of_attention(cells[0], None, CEILINGS)))
    roofline.draw(document(*rows), str(tmp_path / "a.png"))
    roofline.draw(document(cell_row(us=None, peers=[own("FlashMLA", 30.0)])), str(tmp_path / "b.png"))
    for name in ("a.png", "b.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_labels_keep_their_distance():
    assert roofline.spread([0.5, 0.11, 0.1, 0.09], 0.05) == pytest.approx([0.5, 0.11, 0.06, 0.01])


@pytest.mark.parametrize(
    "name",
    sorted(path.stem for path in PAGES.glob("data/h200_*.json") if (PAGES / f"{path.stem}.md").exists()),
)
def test_a_committed_page_is_what_its_measurements_say(name: str) -> None:
    data, picture = f"data/{name}.json", PAGES / f"{name}.png"
    measured = json.loads((PAGES / data).read_text())
    assert picture.exists() or measured["op"] != "decode"
    written = page.page(measured, data=data, picture=picture.name if picture.exists() else None)
    assert (PAGES / f"{name}.md").read_text() == written
