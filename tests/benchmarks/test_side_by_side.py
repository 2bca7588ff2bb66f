"""The comparison with other libraries, without a GPU: launches run on the CPU, and their times are imagined."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels.compat import flash_mla

from benchmarks.pages import ratios, side_by_side
from benchmarks.side_by_side import command, run, states
from benchmarks.side_by_side.cells import CELLS, dense
from benchmarks.side_by_side.libraries import Library, libraries
from tests.benchmarks.imagined import CEILINGS, MACHINE, PAGES

ROOT = Path(__file__).parents[2]
DATA = PAGES / "data" / "h200_side_by_side.json"
CELL = dense(16, 2, 128)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """``run.measure`` of the CPU's kernels, each of whose launches takes 100 us in all states."""

    def imagined(calls: Any, *_: Any) -> dict[str, float]:
        for call in calls:
            call()
        return {"us": 100.0}

    for state in ("rested", "graph"):
        monkeypatch.setattr(states, state, imagined)
    monkeypatch.setattr(states, "sustained", lambda calls, *_: {**imagined(calls), "mhz": 1500, "watts": 600, "mj": 60})
    monkeypatch.setattr(run, "current_arch", lambda: "cpu")
    monkeypatch.setattr(run, "device_of_arch", lambda arch: SimpleNamespace(ordinal=0))
    monkeypatch.setattr(torch.cuda, "device", lambda ordinal: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(run, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(run, "count", lambda input_bytes: 2)
    monkeypatch.setattr(run.cuda, "read_rate", lambda repeats: CEILINGS["read TB/s"] * 1e12)
    monkeypatch.setattr(run.cuda, "gemm_rate", lambda repeats: CEILINGS["GEMM TFLOP/s"] * 1e12)
    monkeypatch.setattr(run.cuda, "machine", lambda: MACHINE)
    monkeypatch.setattr("benchmarks.side_by_side.libraries.current_arch", lambda: "cpu")
    out = tmp_path / "out.json"

    def call(*peers: Library, cells: Any = (CELL,)) -> dict[str, Any]:
        run.measure(cells, (Library("mla-kernels", "mla_kernels"), *peers), 2.0, out, "a command")
        document: dict[str, Any] = json.loads(out.read_text())
        return document

    return call


def peer(monkeypatch: pytest.MonkeyPatch, name: str, factor: float = 1.0) -> Library:
    """A library that computes what FlashMLA does, times a factor."""
    module = ModuleType(name)
    module.__version__ = "1.2"  # type: ignore[attr-defined]

    def decode(*arguments: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = flash_mla.flash_mla_with_kvcache(*arguments, **named)
        return out * factor, lse

    module.get_mla_metadata = flash_mla.get_mla_metadata  # type: ignore[attr-defined]
    module.flash_mla_with_kvcache = decode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    return Library("FlashMLA", name)


def test_ours_is_measured_first_and_last(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = measure(peer(monkeypatch, "flash_mla_imagined"))["cells"]
    assert [turn["library"] for turn in cell["turns"]] == ["mla-kernels", "FlashMLA 1.2", "mla-kernels"]
    assert all(turn["graph"]["us"] == 100.0 and turn["error"] < 0.01 for turn in cell["turns"])


def test_a_library_that_computes_something_else_has_no_time(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = measure(peer(monkeypatch, "flash_mla_wrong", factor=1.1))["cells"]
    assert "differs from ours by 0.1" in cell["turns"][1]["note"]
    assert "graph" not in cell["turns"][1]


def test_a_library_that_fails_does_not_stop_the_others(measure: Any) -> None:
    (cell,) = measure(Library("FlashMLA", "no_such_module"))["cells"]
    assert "ModuleNotFoundError" in cell["turns"][1]["note"]
    assert "graph" in cell["turns"][2]


def test_a_run_goes_on_where_it_stopped(measure: Any) -> None:
    measure()
    document = measure(cells=(CELL, dense(16, 1, 64)))
    assert [cell["run"] for cell in document["cells"]] == [0, 1]
    assert len(document["runs"]) == 2


def test_peers_are_named_by_project() -> None:
    chosen = libraries(["FlashMLA=flash_mla_upstream", "FA3"])
    assert [each.module for each in chosen] == ["mla_kernels", "flash_mla_upstream", "flash_attn_interface"]
    with pytest.raises(ValueError, match="FlashMLA, FlashInfer, FA3"):
        libraries(["Unknown=module"])


def test_titles_tell_cells_apart() -> None:
    for cells in CELLS.values():
        assert len({cell.title for cell in cells}) == len(cells)


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
    graph, sustained = (side_by_side.compared(cell, state) for state in ("graph", "sustained"))
    energy = side_by_side.compared(cell, "sustained", "mj")
    assert None not in (graph, sustained, energy)
    assert (graph.peer, graph.ratio, graph.drift) == ("A", 1.2, 0.2)
    assert (sustained.peer, sustained.ratio) == ("B", 0.5)
    assert (energy.ours, energy.peer, energy.ratio) == (4, "B", 0.5)
    assert side_by_side.compared(cell, "graph", "mj") is None


def test_a_ratio_is_bold_beyond_the_drift_of_our_turns() -> None:
    assert str(side_by_side.Comparison(100, "A", 103, drift=0.02)) == "**1.03x**"
    assert str(side_by_side.Comparison(100, "A", 103, drift=0.04)) == "1.03x"
    assert str(side_by_side.Comparison(100, "A", 97, drift=0.0)) == "0.97x"


def test_the_committed_pages_are_those_of_the_data(tmp_path: Path) -> None:
    """The README's table, the page and the charts are rendered from what was measured."""
    document = json.loads(DATA.read_text())
    readme, graph = (ROOT / "README.md").read_text(), side_by_side.ratios(document, "graph")
    assert side_by_side.table(document) in readme
    assert f"{min(graph):.2f}x to {max(graph):.2f}x" in readme
    page = tmp_path / "docs" / "h200_side_by_side.md"
    (page.parent / "data").mkdir(parents=True)
    data = page.parent / "data" / DATA.name
    data.write_text(DATA.read_text())
    assert command.main([str(data), "--measured", "--page", str(page)]) == 0
    assert page.read_text() == (PAGES / page.name).read_text()
    for theme in ("light", "dark"):
        assert "<svg" in page.with_name(f"h200_side_by_side_{theme}.svg").read_text()


def test_bars_are_on_the_side_of_the_faster(tmp_path: Path) -> None:
    document = json.loads(DATA.read_text())
    light, dark = ratios.draw(document, tmp_path / "chart")
    ahead = sum(ratio >= 1 for ratio in side_by_side.ratios(document, "graph"))
    assert light.read_text().count("#1a7f37") == ahead
    assert dark.read_text().count("#3fb950") == ahead
