"""The comparison with other libraries, without a GPU: launches run on the CPU, and their times are imagined."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels.compat import flash_mla
from mla_kernels.errors import ValueRangeError

from benchmarks.pages.comparison import OURS_FP8
from benchmarks.side_by_side import command, run, states, turns
from benchmarks.side_by_side.cells import ALL, SINGLE, SUITES, Suite, dense
from benchmarks.side_by_side.libraries import Library, libraries
from tests.benchmarks.imagined import CEILINGS, MACHINE

CELL = dense(16, 2, 128)
OURS = Library("mla-kernels", "mla_kernels")
FP8 = Library("mla-kernels", "mla_kernels", "e4m3")
FP8_CELL = dense(16, 2, 128, kv_dtype="e4m3")


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """``run.measure`` of the CPU's kernels, each of whose launches takes 100 us in all states."""

    def imagined(calls: Any, *_: Any) -> dict[str, float]:
        for call in calls:
            call()
        return {"us": 100.0}

    for state in SINGLE:
        monkeypatch.setattr(states, state, imagined)
    monkeypatch.setattr(states, "sustained", lambda calls, *_: {**imagined(calls), "mhz": 1500, "watts": 600, "mj": 60})
    monkeypatch.setattr(states, "problems", lambda input_bytes: 2)
    monkeypatch.setattr(run, "current_arch", lambda: "cpu")
    monkeypatch.setattr(run, "device_of_arch", lambda arch: SimpleNamespace(ordinal=0))
    monkeypatch.setattr(torch.cuda, "device", lambda ordinal: nullcontext())
    monkeypatch.setattr(turns, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(run.cuda, "read_rate", lambda repeats: CEILINGS["read TB/s"] * 1e12)
    monkeypatch.setattr(run.cuda, "gemm_rate", lambda repeats: CEILINGS["GEMM TFLOP/s"] * 1e12)
    monkeypatch.setattr(run.cuda, "machine", lambda: MACHINE)
    monkeypatch.setattr("benchmarks.side_by_side.libraries.current_arch", lambda: "cpu")

    def call(
        *peers: Library, cells: Any = (CELL,), suite: str = "smoke", apart: bool = False, out: str = "out.json"
    ) -> dict[str, Any]:
        monkeypatch.setitem(SUITES, suite, Suite("Cells", ALL, cells))
        run.measure(run.Run(suite, (OURS, *peers), 2.0, apart, "a command"), tmp_path / out)
        document: dict[str, Any] = json.loads((tmp_path / out).read_text())
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


def test_without_a_gpu_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main([str(tmp_path / "out.json")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "accepts an NVIDIA GPU" in line


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


def test_fp8_arithmetic_takes_part_over_e4m3_caches_only(measure: Any) -> None:
    document = measure(FP8, cells=(CELL, FP8_CELL))
    exact, both = ([turn["library"] for turn in cell["turns"]] for cell in document["cells"])
    assert exact == ["mla-kernels", "mla-kernels"]
    assert both == ["mla-kernels", OURS_FP8, "mla-kernels"]
    assert document["runs"][0]["libraries"] == ["mla-kernels", OURS_FP8]
    assert measure(FP8, suite="exact", out="exact.json")["runs"][0]["libraries"] == ["mla-kernels"]


@pytest.mark.parametrize("apart", [False, True])
def test_each_arithmetic_is_measured_against_ours_and_against_float64(
    measure: Any, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """Exact arithmetic rounds the output to bf16; fp8 arithmetic rounds Q and P, and its output is not ours."""
    monkeypatch.setattr(turns, "ProcessPoolExecutor", Inline)
    (cell,) = measure(FP8, cells=(FP8_CELL,), apart=apart)["cells"]
    first, fp8, last = cell["turns"]
    assert first["error"] == last["error"] == 0.0
    assert first["error to float64"] == last["error to float64"] < 0.005
    assert 0.01 < fp8["error"] < 0.08
    assert 0.01 < fp8["error to float64"] < 0.08
    assert fp8["variant"] != first["variant"]
    assert fp8["graph"]["us"] == 100.0
    assert (cell["allowed error"], cell["float64 requests"]) == (0.08, 2)


def test_a_cell_has_its_own_allowed_error(measure: Any) -> None:
    """What fp8 arithmetic changes is too much for a cell that allows 0.1 %, and its error stays in the data."""
    (cell,) = measure(FP8, cells=(replace(FP8_CELL, close=0.001),))["cells"]
    assert "differs from ours by 0.0" in cell["turns"][1]["note"]
    assert 0.01 < cell["turns"][1]["error to float64"] < 0.08
    (cell,) = measure(FP8, suite="bf16", out="bf16.json")["cells"]
    assert cell["allowed error"] == 0.02
    assert "float64 requests" not in cell
    assert all("error to float64" not in turn for turn in cell["turns"])


def test_an_extension_that_is_not_there_is_a_note(
    measure: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = peer(monkeypatch, "flash_mla_without_extension")
    sys.modules[library.module].__file__ = str(tmp_path / "__init__.py")
    (cell,) = measure(FP8, library, cells=(FP8_CELL,))["cells"]
    assert cell["turns"][2]["library"] == "FlashMLA 1.2"
    assert "_flashmla_extension_C.abi3.so" in cell["turns"][2]["note"]
    assert "graph" in cell["turns"][3]


def test_a_run_goes_on_where_it_stopped(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that was interrupted is not in the file; a cell that is in it is not measured again, and keeps its run."""
    other, take = dense(16, 1, 64), turns.Here.take

    def interrupted(self: Any, library: Library, want: Any) -> Any:
        if self._task.cell == other:
            raise KeyboardInterrupt
        return take(self, library, want)

    monkeypatch.setattr(turns.Here, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(cells=(CELL, other))
    monkeypatch.setattr(turns.Here, "take", take)
    document = measure(cells=(CELL, other))
    assert [cell["title"] for cell in document["cells"]] == [CELL.title, other.title]
    assert [cell["run"] for cell in document["cells"]] == [0, 1]
    assert len(document["runs"]) == 2
    assert measure(cells=(CELL, other)) == document


def test_a_file_of_another_suite_or_method_is_refused(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measure()
    with pytest.raises(ValueRangeError, match="holds the suite another by today's method"):
        measure(suite="another")
    monkeypatch.setitem(states.METHOD, "graph", "otherwise")
    with pytest.raises(ValueRangeError, match="holds the suite smoke"):
        measure()


class Inline:
    """A pool that works in this process, and ends when a library is to be imported that ends its process."""

    def __init__(self, workers: int, mp_context: object) -> None:
        assert workers == 1

    def submit(self, work: Any, library: Library, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if library.module == "ends_its_process" and arguments:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(work(library, *arguments))
        return future

    def shutdown(self) -> None:
        pass


def test_processes_have_the_same_tensors(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process makes the tensors of a cell itself; a sample of the output is compared."""
    monkeypatch.setattr(turns, "ProcessPoolExecutor", Inline)
    same, wrong = peer(monkeypatch, "flash_mla_same"), peer(monkeypatch, "flash_mla_wrong", factor=1.1)
    document = measure(same, wrong, Library("FlashMLA", "ends_its_process"), apart=True)
    (cell,) = document["cells"]
    assert document["runs"][0]["apart"]
    assert [turn.get("note", "")[:24] for turn in cell["turns"]] == [
        "", "", "its output differs from ", "its process ended", "",
    ]  # fmt: skip
    assert cell["turns"][1]["error"] < 0.01
    assert cell["turns"][4]["graph"]["us"] == 100.0


def test_a_library_has_a_process_of_its_own() -> None:
    processes = turns.Processes()
    assert processes.labels([OURS]) == ["mla-kernels"]
    (pool,) = processes._pools.values()
    assert os.getpid() not in pool._processes
    processes.close()


def test_the_largest_cells_and_the_smallest_are_not_in_the_cache() -> None:
    assert [states.problems(size) for size in (1 << 30, 64 << 20, 8 << 20, 1 << 20)] == [2, 16, 24, 192]


def test_peers_are_named_by_project(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flash_mla_upstream", "flash_attn_interface"):
        peer(monkeypatch, name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    chosen = libraries(["FlashMLA=flash_mla_upstream", "FA3"])
    assert chosen[:2] == [OURS, FP8]
    assert [each.module for each in chosen[2:]] == ["flash_mla_upstream", "flash_attn_interface"]
    with pytest.raises(ValueError, match="FlashMLA, FlashInfer, FA3"):
        libraries(["Unknown=module"])
    with pytest.raises(ValueError, match=r"FlashMLA=no_such_module.*accepts a module that can be imported"):
        libraries(["FlashMLA=no_such_module"])


def test_a_build_of_vllm_is_not_called_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    library = peer(monkeypatch, "flash_mla_of_vllm")
    sys.modules["flash_mla_of_vllm"].__version__ = "vllm 0.26.0"  # type: ignore[attr-defined]
    assert library.label == "FlashMLA as vLLM 0.26.0 ships it"


def test_suites() -> None:
    for suite in SUITES.values():
        assert len({cell.title for cell in suite.cells}) == len(suite.cells)
    assert {name: len(suite.cells) for name, suite in SUITES.items() if suite.states == SINGLE} == {
        "dense": 96, "few_heads": 36, "few_heads_prefill": 24, "fp8": 14, "fp8_prefill": 18, "more": 42, "prefill": 16,
        "ragged": 24, "sparse": 56,
    }  # fmt: skip
    assert len(SUITES["sustained"].cells) == 7
    assert {name for name, suite in SUITES.items() if any(cell.fp8 for cell in suite.cells)} == {"fp8"}
    lengths = {cell.problem.lengths: cell.problem.seq_lens for cell in SUITES["ragged"].cells}
    assert (min(lengths["long"]), max(lengths["long"])) == (1024, 65536)
    assert (min(lengths["zipf"]), max(lengths["zipf"])) == (256, 65536)
