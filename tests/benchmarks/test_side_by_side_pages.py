"""The pages of the comparison with other libraries: ratios, products, summaries, tables and charts."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import comparison, grid, ratios, side_by_side
from benchmarks.side_by_side import command, states
from benchmarks.side_by_side.cells import SUITES, Cell, dense
from tests.benchmarks.imagined import PAGES, suite_document

DATA = PAGES / "data" / "h200_side_by_side.json"
PRODUCTS = json.loads((PAGES / "data" / "ratios_to_flash_mla_9241ae3.json").read_text())
UPSTREAM = "FlashMLA 9241ae3"
VLLM = "FlashMLA as vLLM 0.26.0 ships it"
document = partial(suite_document, "dense")


def measured(cell: Cell, **times: float | str) -> dict[str, Any]:
    """A cell in which libraries took so many microseconds in a graph, and twice that after a rest; ours 100."""

    def turn(library: str, us: float | str) -> dict[str, Any]:
        if isinstance(us, str):
            return {"library": library, "note": us}
        return {"library": library, "graph": {"us": us}, "rested": {"us": 2 * us}}

    ours = turn("mla-kernels", 100.0) | {"variant": "sm90a_decode_qbf16_kvbf16_obf16_tma_rows_m64"}
    turns = [ours, *(turn(library, us) for library, us in times.items()), ours]
    return {
        "op": cell.op, "title": cell.title, "problem": cell.problem.fields, **cell.problem.counts, "run": 0,
        "turns": turns,
    }  # fmt: skip


def page_of(document: dict[str, Any]) -> str:
    return side_by_side.page(document, title="Cells", data="data/x.json", pictures=("light.svg", "dark.svg"))


FEW, MANY = dense(16, 1, 1024), dense(128, 128, 8192, q_len=2)


def test_the_ratio_is_to_the_fastest_in_that_state() -> None:
    def turn(library: str, graph: float, sustained: float, mj: float) -> dict[str, Any]:
        return {"library": library, "graph": {"us": graph}, "sustained": {"us": sustained, "mj": mj}}

    cell = {
        "turns": [
            turn("mla-kernels", 9, 20, 3),
            turn("A", 12, 30, 6),
            turn("B", 15, 10, 2),
            turn("mla-kernels", 11, 20, 5),
        ]
    }
    graph, sustained = (comparison.compared(cell, state) for state in ("graph", "sustained"))
    energy = comparison.compared(cell, "sustained", "mj")
    assert None not in (graph, sustained, energy)
    assert (graph.peer, graph.ratio, graph.drift) == ("A", 1.2, 0.2)
    assert (sustained.peer, sustained.ratio) == ("B", 0.5)
    assert (energy.ours, energy.peer, energy.ratio) == (4, "B", 0.5)
    assert comparison.compared(cell, "graph", "mj") is None


def test_a_ratio_is_bold_beyond_the_drift_of_our_turns() -> None:
    assert str(comparison.Comparison(100, "A", 103, drift=0.02)) == "**1.03x**"
    assert str(comparison.Comparison(100, "A", 103, drift=0.04)) == "1.03x"
    assert str(comparison.Comparison(100, "A", 97, drift=0.0)) == "0.97x"


def test_the_committed_page_of_fp8_is_that_of_the_data(tmp_path: Path) -> None:
    """It has no chart, since FlashMLA 9241ae3 has no fp8 decode."""
    page = tmp_path / "docs" / "h100_fp8.md"
    (page.parent / "data").mkdir(parents=True)
    data = page.parent / "data" / "h100_fp8.json"
    data.write_text((PAGES / "data" / data.name).read_text())
    command.main([str(data), "--cells", "fp8", "--measured", "--page", str(page)])
    assert page.read_text() == (PAGES / page.name).read_text()


@pytest.mark.parametrize(
    "name",
    [
        "side_by_side", "dense", "more", "ragged", "sustained", "dense_upstream", "sustained_upstream", "sparse",
        "sparse_sustained", "few_heads", "prefill", "few_heads_prefill",
    ],
)  # fmt: skip
def test_the_committed_pages_are_those_of_the_data(name: str, tmp_path: Path) -> None:
    """Pages and charts are rendered from what was measured, of 96 shapes with the products of one more library."""
    page = tmp_path / "docs" / f"h200_{name}.md"
    (page.parent / "data").mkdir(parents=True)
    data = page.parent / "data" / f"h200_{name}.json"
    data.write_text((PAGES / "data" / data.name).read_text())
    products = ["--products", str(DATA.with_name("ratios_to_flash_mla_9241ae3.json"))] if name == "dense" else []
    command.main([str(data), "--measured", "--page", str(page), *products])
    assert page.read_text() == (PAGES / page.name).read_text()
    for theme in ("light", "dark"):
        assert "<svg" in page.with_name(f"h200_{name}_{theme}.svg").read_text()


def test_a_page_has_the_state_between_other_kernels_if_it_was_measured() -> None:
    cell = measured(FEW, **{UPSTREAM: 90.0})
    for turn, us in zip(cell["turns"], (50.0, 100.0, 50.0), strict=True):
        turn["between"] = {"us": us}
    method = {"graph": "G.", "between": "B."}
    page = page_of(document(cell) | {"method": method})
    assert "- **between other kernels**: B." in page
    assert "### Between other kernels" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| all cells"))
    assert row.startswith("| all cells | 1 | 0.900x | 2.000x | 0.900x | 1 | 0 |")
    assert "between other kernels" not in page_of(document(measured(FEW, **{UPSTREAM: 90.0})))


def test_bars_are_on_the_side_of_the_faster(tmp_path: Path) -> None:
    document = json.loads(DATA.read_text())
    light, dark = ratios.draw(document, tmp_path / "chart")
    ahead = sum(ratio >= 1 for ratio in comparison.ratios(document["cells"], "graph"))
    assert light.read_text().count("#1a7f37") == ahead
    assert dark.read_text().count("#3fb950") == ahead


@pytest.mark.parametrize(("us", "said"), [(80.0, "1 is slower, at worst 0.800"), (125.0, "none is slower")])
def test_a_page_opens_with_its_mean_and_its_losses(us: float, said: str) -> None:
    opening = page_of(document(measured(FEW, **{UPSTREAM: us}))).splitlines()[2]
    assert f"**{us / 100:.3f} times**" in opening
    assert "the speed of a, the geometric mean of 1 shapes" in opening
    assert said in opening


@pytest.mark.parametrize(("graph", "noted"), [("G.", True), (states.METHOD["graph"], False)])
def test_a_page_says_what_an_older_method_leaves_to_be_said(graph: str, noted: bool) -> None:
    """Launches shared an output, and the host's launch of a graph was in the times."""
    page = page_of(document(measured(FEW, **{UPSTREAM: 90.0})) | {"method": {"graph": graph}})
    assert ("This favours the others" in page) is noted
    assert ("The host's launch of a graph is partly in the times of graphs" in page) is noted


def test_a_page_has_a_summary_a_chart_and_every_library() -> None:
    text = page_of(document(measured(FEW, **{UPSTREAM: 125.0, "FA3 1": 160.0}), measured(MANY, **{UPSTREAM: 80.0})))
    lines = text.splitlines()
    assert "| all cells | 2 | 1.000x | 1.000x | 1 | 0.80x (128 heads, batch 128, 8k tokens, 2 query tokens) |" in lines
    assert "| heads: 16 | 1 | 1.250x | 1.250x | 0 | 1.25x (16 heads, batch 1, 1k tokens) |" in lines
    assert "| batch: 128 | 1 | 0.800x | 0.800x | 1 | 0.80x (128 heads, batch 128, 8k tokens, 2 query tokens) |" in lines
    assert lines.index("## How it was measured") > next(i for i, line in enumerate(lines) if "light.svg" in line)
    assert f"| heads | q_len | batch | seq | mla-kernels | {UPSTREAM} | FA3 1 |" in text
    assert f"| 16 | 1 | 1 | 1024 | 100.0 | 125.0 | 160.0 | {UPSTREAM} | **1.25x** | 0.00 read | tma_rows_m64 |" in lines
    assert "Names of variants follow `sm90a_decode_qbf16_kvbf16_obf16_`." in text
    assert f"| 128 | 2 | 128 | 8192 | 200.0 | 160.0 | - | {UPSTREAM} | 0.80x |" in text


def test_the_ceiling_is_the_nearer_one() -> None:
    bound = side_by_side._of_ceiling(document(), measured(MANY), 1000.0)
    assert bound == f"{MANY.problem.flop / 800e12 / 1e-3:.2f} product"


def test_without_upstream_there_is_no_headline() -> None:
    """A build of vLLM never stands for upstream."""
    text = page_of(document(measured(FEW, **{VLLM: 125.0})))
    assert f"**{UPSTREAM} was not in every run of this page.**" in text
    assert "geomean" not in text
    assert "light.svg" not in text
    assert f"| {VLLM} |" in text


def test_a_run_without_upstream_has_no_headline_beside_one_that_has_it() -> None:
    both = document(measured(FEW, **{UPSTREAM: 125.0}), measured(MANY, **{VLLM: 80.0}) | {"run": 1})
    assert not comparison.has_upstream(both)
    assert comparison.has_upstream(document(measured(FEW, **{UPSTREAM: 125.0}), measured(MANY, **{UPSTREAM: "no"})))


def test_a_page_of_two_runs_says_which_run_each_cell_is_of() -> None:
    both = document(measured(FEW, **{UPSTREAM: 125.0}), measured(MANY, **{UPSTREAM: 80.0}) | {"run": 1})
    text = page_of(both | {"runs": both["runs"] * 2})
    assert "Run 2, 1 of the cells, measured on 2026-01-31 by `python -m benchmarks.side_by_side`:" in text
    assert "| run | heads | q_len |" in text
    assert "| 2 | 128 | 2 | 128 |" in text
    assert "Run 1" not in page_of(document(measured(FEW, **{UPSTREAM: 125.0})))


def test_a_page_takes_no_table_without_upstream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, page = tmp_path / "x.json", tmp_path / "page.md"
    data.write_text(json.dumps(document(measured(FEW, **{VLLM: 125.0}))))
    page.write_text("<!-- side by side: begin -->\n<!-- side by side: end -->\n")
    assert command.main([str(data), "--measured", "--table", str(page)]) == 1
    assert "runs that have FlashMLA 9241ae3" in capsys.readouterr().err


def test_a_product_is_marked_and_counts() -> None:
    """A library that is not at hand enters by its ratio to upstream, times upstream's time in this run."""
    cell = measured(FEW, **{UPSTREAM: 110.0, "FA3 0251105a": 100.0})
    joined = comparison.with_products(document(cell), PRODUCTS)
    (known,) = (each for each in PRODUCTS["cells"] if each["heads"] == 16 and each["q_len"] == each["batch"] == 1
                and each["seq"] == 1024)  # fmt: skip
    first, inference, _ = known["ratios"]
    assert comparison.others_of(joined["cells"]) == [
        UPSTREAM, "FA3 0251105a", "FlashMLA b31bfe7 (product)", "FlashInfer 0.7.2.post1 (product)",
    ]  # fmt: skip
    (joined_cell,) = joined["cells"]
    assert comparison.of(joined_cell, "FlashInfer 0.7.2.post1 (product)", "graph") == [pytest.approx(110 * inference)]
    fastest = comparison.compared(joined_cell, "graph")
    assert fastest is not None
    assert fastest.least == pytest.approx(min(100.0, 110 * first))
    assert "its time is its ratio to FlashMLA 9241ae3 in another run" in page_of(joined)
    assert comparison.compared(joined_cell, "rested") == comparison.compared(cell, "rested")


@pytest.mark.parametrize(
    "cell",
    [
        measured(FEW, **{VLLM: 110.0}),
        measured(dense(16, 1, 1024, page_size=16), **{UPSTREAM: 110.0}),
        measured(dense(8, 1, 1024), **{UPSTREAM: 110.0}),
    ],
    ids=["without upstream", "another page size", "another shape"],
)
def test_a_product_needs_upstream_and_the_same_cell(cell: dict[str, Any]) -> None:
    assert comparison.with_products(document(cell), PRODUCTS)["cells"] == [cell]


def test_the_committed_ratios_are_of_the_dense_suite() -> None:
    suite = {tuple(cell.problem.fields[name] for name in PRODUCTS["columns"]) for cell in SUITES["dense"].cells}
    assert {tuple(cell[name] for name in PRODUCTS["columns"]) for cell in PRODUCTS["cells"]} == suite
    assert all(0.3 < ratio < 3 for cell in PRODUCTS["cells"] for ratio in cell["ratios"])
    assert {len(cell["ratios"]) for cell in PRODUCTS["cells"]} == {len(PRODUCTS["libraries"])}


def test_page_sizes_are_compared_with_64() -> None:
    pages = [measured(dense(16, 16, 8192, page_size=size), **{UPSTREAM: 100.0}) for size in (1, 64)]
    for turn in (turn for turn in pages[0]["turns"] if turn["library"] == "mla-kernels"):
        turn["graph"] = {"us": 109.0}
    text = page_of(document(*pages))
    assert "| page 1 | page 64 |" in text
    assert "| 109.0 (1.09) | 100.0 (1.00) |" in text


def test_a_grid_has_a_field_for_each_cell(tmp_path: Path) -> None:
    times = {"h16": 125.0, "h64": 100.0, "h128": 80.0}
    cells = [measured(dense(int(name[1:]), 1, 1024), **{UPSTREAM: us}) for name, us in times.items()]
    light, dark = grid.draw(document(*cells), tmp_path / "chart")
    assert (light.read_text().count("fill: #1a7f37"), light.read_text().count("fill: #bc4c00")) == (2, 1)
    assert "#3fb950" in dark.read_text()


@pytest.mark.parametrize("suite", ["dense", "more", "ragged"])
def test_every_suite_makes_a_page(tmp_path: Path, suite: str) -> None:
    cells = [measured(cell, **{UPSTREAM: 90.0 + place}) for place, cell in enumerate(SUITES[suite].cells)]
    data, page = tmp_path / "data.json", tmp_path / "page.md"
    data.write_text(json.dumps(document(*cells) | {"suite": suite}))
    assert command.main([str(data), "--measured", "--page", str(page)]) == 0
    lines = page.read_text().splitlines()
    assert lines[0] == f"# {SUITES[suite].title} beside {UPSTREAM}: Imagined GPU"
    assert sum(line.count("| **") + line.count("| 0.9") + line.count("| 1.0") for line in lines) >= len(cells)
    assert "<svg" in (tmp_path / "page_dark.svg").read_text()
