"""What a measurement becomes: its page and its roofline."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from mla_kernels.diagnostics.bench.problems import SUITES, Problem, problems

from benchmarks.ops import run_cuda
from benchmarks.pages import bars, page, roofline, style

from .imagined import CEILINGS, PAGES, cell_row, document


def test_page():
    rows = (
        cell_row(),
        cell_row(
            us=None, variant="no variant", **run_cuda.of_attention(Problem("bf16", "bf16", 1, 1, 1), None, CEILINGS)
        ),
        cell_row(note="RuntimeError: a|b", page_size=16),
    )
    text = page.page(document(*rows), data="x.json", picture="x.png")
    lines = text.splitlines()
    assert lines[0] == "# Dense decode: Imagined GPU"
    assert "![roofline](x.png)" in lines
    assert "[x.json](x.json)" in text
    assert "commit `0123456789ab`" in text
    assert "In all cells: q `bf16`, kv `bf16`, d_qk `576`, lengths `equal`." in text
    assert "The columns, of 7 replays:" in text
    header, _, first, second, third = (line for line in lines if line.startswith("| "))
    assert header.startswith("| heads | q_len | batch | seq | page_size | us |")
    assert "| 128 | 1 | 128 | 8,192 | 64 | 500.0 | 505.0 | 4.0 |" in first
    assert first.endswith("| `sm90a_decode` |")
    assert second.endswith("| no variant |")
    assert third.endswith("| RuntimeError: a/b |")


def test_what_all_cells_share_is_said_once():
    text = page.page(document(cell_row()), data="x.json", picture=None)
    assert "roofline" not in text
    assert "variant `sm90a_decode`" in text
    assert "| variant |" not in text


def test_roofline(tmp_path):
    cells = problems(("bf16",), SUITES["h200"])
    rows = [
        cell_row(**cell.fields, **cell.counts, **run_cuda.of_attention(cell, cell.bytes / 3e6, CEILINGS))
        for cell in cells
    ]
    rows.append(cell_row(us=None, **run_cuda.of_attention(cells[0], None, CEILINGS)))
    roofline.draw(document(*rows), str(tmp_path / "a.png"))
    roofline.draw(document(cell_row(us=None)), str(tmp_path / "b.png"))
    for name in ("a.png", "b.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def within(value: float, one_end: float, other_end: float) -> bool:
    return min(one_end, other_end) <= value <= max(one_end, other_end)


@pytest.fixture
def texts(monkeypatch):
    """Return a function that draws, and gives the places of all texts of the figure and the figure's own."""
    drawn = []

    @contextmanager
    def figure(*arguments):
        with style.figure(*arguments) as made:
            yield made
            drawn.append(made)

    def call(draw, *arguments):
        monkeypatch.setattr(bars, "style", SimpleNamespace(**{**vars(style), "figure": figure}))
        monkeypatch.setattr(roofline, "style", bars.style)
        draw(*arguments)
        (made,) = drawn
        renderer = FigureCanvasAgg(made).get_renderer()
        made.draw(renderer)
        ticks = [
            (tick, axis) for axes in made.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_major_ticks()
        ]
        undrawn = [tick.label1 for tick, axis in ticks if not within(tick.get_loc(), *axis.get_view_interval())]
        found = [
            each
            for each in made.findobj(Text)
            if each.get_visible() and each.get_text().strip() and each not in undrawn
        ]
        return [(each, each.get_window_extent(renderer)) for each in found], made.bbox

    return call


CPU = [
    {"q": dtype, "kv": dtype, "heads": heads, "batch": 8, "us": us, "of ceiling": 0.9, "x torch": 1.6}
    for dtype, heads, us in (("bf16", 16, 9000.0), ("bf16", 128, 99_999.0), ("fp32", 16, 14.0), ("fp32", 128, 70_564.0))
]


@pytest.mark.parametrize("name", ["cpu", "h200_decode", "h200_sparse_decode", "h200_sparse_prefill"])
def test_no_texts_of_a_plot_overlap_and_all_are_readable_at_400_pixels(texts, tmp_path, name):
    path = str(tmp_path / "a.svg")
    if name == "cpu":
        found, page_box = texts(bars.draw, CPU, path)
    else:
        found, page_box = texts(roofline.draw, json.loads((PAGES / "data" / f"{name}.json").read_text()), path)
    assert len(found) > 8
    for place, (one, box) in enumerate(found):
        assert page_box.containsx(box.x0 + 1), one
        assert page_box.containsx(box.x1 - 1), one
        assert [other.get_text() for other, beside in found[place + 1 :] if box.overlaps(beside)] == [], one
        assert one.get_fontsize() * 400 / (72 * style.WIDTH) > 10, one


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("background", ["#ffffff", "#1e2129", "#0d1117"], ids=["light", "dark", "GitHub's dark"])
@pytest.mark.parametrize("colour", [style.INK, style.OURS, style.PEER])
def test_colours_have_contrast_on_light_and_dark_pages(colour, background):
    dark, light = sorted((luminance(colour), luminance(background)))
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_a_plot_has_no_background_and_is_the_same_twice(tmp_path):
    for name in ("a.svg", "b.svg"):
        bars.draw(CPU, str(tmp_path / name))
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "#ffffff" not in text


def test_labels_keep_their_distance():
    assert roofline.spread([0.5, 0.11, 0.1, 0.09], 0.05) == pytest.approx([0.5, 0.11, 0.06, 0.01])


@pytest.mark.parametrize(
    "name",
    sorted(
        path.stem
        for path in PAGES.glob("data/h200_*.json")
        if (PAGES / f"{path.stem}.md").exists()
        and "op" in json.loads(path.read_text())  # test_side_by_side_pages.py and test_engine_turns.py have the others
    ),
)
def test_a_committed_page_is_what_its_measurements_say(name: str) -> None:
    data, picture = f"data/{name}.json", PAGES / f"{name}.svg"
    measured = json.loads((PAGES / data).read_text())
    assert picture.exists() or measured["op"] != "decode"
    written = page.page(measured, data=data, picture=picture.name if picture.exists() else None)
    assert (PAGES / f"{name}.md").read_text() == written
