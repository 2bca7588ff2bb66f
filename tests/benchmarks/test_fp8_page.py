"""The page of decodes over e4m3 caches: times, the ratio to our faster arithmetic, and errors."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import fp8
from benchmarks.pages.comparison import OURS, OURS_FP8
from benchmarks.side_by_side import command
from benchmarks.side_by_side.cells import SUITES, Cell, dense
from tests.benchmarks.imagined import suite_document

VLLM = "FlashMLA as vLLM 0.26.0 ships it"
FEW, MANY = dense(16, 1, 8192, kv_dtype="e4m3"), dense(128, 128, 8192, kv_dtype="e4m3")
document = partial(suite_document, "fp8")


def measured(cell: Cell, fp8_us: float, peer: float | str, drift: float = 0.0) -> dict[str, Any]:
    """A cell in which exact arithmetic took 100 us in a graph, and every library twice that after a rest."""

    def turn(library: str, us: float | str, error: float) -> dict[str, Any]:
        if isinstance(us, str):
            return {"library": library, "note": us}
        return {"library": library, "error to float64": error, "graph": {"us": us}, "rested": {"us": 2 * us}}

    turns = [
        turn(OURS, 100.0 - drift / 2, 0.002),
        turn(OURS_FP8, fp8_us, 0.0271),
        turn(VLLM, peer, 0.0345),
        turn(OURS, 100.0 + drift / 2, 0.0021),
    ]
    return {
        "op": cell.op, "title": cell.title, "problem": cell.problem.fields, **cell.problem.counts, "run": 0,
        "allowed error": cell.close, "float64 requests": cell.float64_requests, "turns": turns,
    }  # fmt: skip


def page_of(*cells: dict[str, Any]) -> list[str]:
    return fp8.page(document(*cells), title="Cells", data="data/x.json").splitlines()


def test_a_row_has_times_the_ratio_to_our_faster_one_and_errors() -> None:
    lines = page_of(measured(FEW, 110.0, 120.0), measured(MANY, 80.0, 72.0))
    errors = "0.21% | 2.71% | 3.45% |"
    assert lines[0] == "# Cells: Imagined GPU"
    assert f"| heads | batch | {OURS} | {OURS_FP8} | {VLLM} | our faster | over it |" in "\n".join(lines)
    assert f"| 16 | 1 | 100.0 | 110.0 | 120.0 | {OURS} | **1.20x** | {errors}" in lines
    assert f"| 128 | 128 | 100.0 | 80.0 | 72.0 | {OURS_FP8} | 0.90x | {errors}" in lines
    assert f"| 128 | 128 | 200.0 | 160.0 | 144.0 | {OURS_FP8} | 0.90x |" in lines
    assert "differs by more than 8% of its norm" in "\n".join(lines)


def test_a_page_of_prefills_says_what_is_rounded_and_has_no_column_of_what_took_no_part() -> None:
    cell = measured(SUITES["fp8_prefill"].cells[0], 110.0, 90.0)
    cell["turns"] = [turn for turn in cell["turns"] if turn["library"] != OURS_FP8]
    text = "\n".join(page_of(cell))
    assert OURS_FP8 not in text
    assert "SGLang's kernel takes both in e4m3" in text
    assert "the first problem's first 16 query tokens" in text


@pytest.mark.parametrize(("drift", "ratio"), [(0.0, "**1.03x**"), (4.0, "1.03x")])
def test_a_ratio_is_bold_beyond_the_drift_of_our_two_turns(drift: float, ratio: str) -> None:
    found = fp8.compared(measured(FEW, 110.0, 103.0, drift), "graph")
    assert found is not None
    assert str(found[1]) == ratio


def test_a_library_without_a_time_leaves_a_note() -> None:
    lines = page_of(measured(FEW, 110.0, "OSError: no such file"), measured(MANY, 80.0, 90.0))
    assert "| 16 | 1 | 100.0 | 110.0 | - | - | - | 0.21% | 2.71% | - |" in lines
    assert f"- {VLLM}: OSError: no such file" in lines


def test_cells_of_two_runs_say_of_which_they_are() -> None:
    both = document(measured(FEW, 110.0, 120.0), measured(MANY, 80.0, 90.0) | {"run": 1})
    text = fp8.page(both | {"runs": both["runs"] * 2}, title="Cells", data="x.json")
    assert "| run | heads | batch |" in text
    assert "| 2 | 128 | 128 |" in text


def test_the_command_writes_this_page_for_the_suite(tmp_path: Path) -> None:
    """It needs no build of upstream's FlashMLA, and draws no charts."""
    data, page = tmp_path / "x.json", tmp_path / "page.md"
    data.write_text(json.dumps(document(*(measured(cell, 80.0, 90.0) for cell in SUITES["fp8"].cells))))
    assert command.main([str(data), "--measured", "--page", str(page)]) == 0
    lines = page.read_text().splitlines()
    assert lines[0] == f"# {SUITES['fp8'].title}: Imagined GPU"
    assert sum("**1.12x**" in line for line in lines) == 2 * len(SUITES["fp8"].cells)
    assert lines[-1] == "The data: [x.json](x.json)."
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", "page.md"}
