"""The benchmarks inside engines, without any: their models, what a file keeps, and the page of what was measured."""

from __future__ import annotations

import json
import pickle
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from mla_kernels.compat import sglang_plugin

from benchmarks import engine_turns, sglang_engine, vllm_engine
from benchmarks.engine_turns import PROMPT, Benchmark, Engine, Model, Steps
from benchmarks.pages.engine_turns import page

from .imagined import PAGES

DATA = PAGES / "data" / "h200_vllm.json"
BENCHMARKS = (vllm_engine.BENCHMARK, sglang_engine.BENCHMARK)
EACH = [(benchmark, model) for benchmark in BENCHMARKS for model in benchmark.models]


@pytest.mark.parametrize(("benchmark", "model"), EACH, ids=lambda each: getattr(each, "name", ""))
def test_a_model_is_the_same_in_the_process_of_an_engine(benchmark, model):
    there = pickle.loads(pickle.dumps(model))
    assert there == model
    assert pickle.loads(pickle.dumps(benchmark.start)) is benchmark.start
    assert model.sparse is model.name.startswith("sparse")
    assert ("index_topk" in there.config()) == model.sparse
    assert there.config()["num_attention_heads"] == model.heads
    assert model.backends[0].lower().startswith("mla_kernels")


def test_prompts_are_in_the_cache_but_for_a_token():
    assert PROMPT % 64 == 1
    made = engine_turns.prompts(vllm_engine.MODELS[0])
    assert [len(each) for each in made] == [PROMPT] * 16
    assert len({tuple(each[:64]) for each in made}) == 16


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.engine)
def test_the_page_is_of_its_data(benchmark):
    """And the data say of every model what it was, or that it was left out."""
    data = DATA.with_stem(f"h200_{benchmark.engine}")
    document = json.loads(data.read_text())
    text = page(document, data=f"data/{data.name}")
    assert (PAGES / f"{data.stem}.md").read_text() == text
    measured = [row["model"] for row in document["rows"]]
    assert {*measured, *document["left out"]} == {model.name for model in benchmark.models}


def test_arguments_of_sglang_name_the_kernel_that_ours_replaces():
    """Prefill is the same with every backend of a model, and a kernel that ours cannot replace is not named."""
    for model in sglang_engine.MODELS:
        given = {backend: sglang_engine.arguments(model, backend) for backend in model.backends}
        prefill = "dsa_prefill_backend" if model.sparse else "prefill_attention_backend"
        assert len({each[prefill] for each in given.values()}) == 1
        if model.sparse:
            assert given["mla_kernels"]["dsa_decode_backend"] in sglang_plugin.INSTEAD
            assert given["mla_kernels"] == given[model.backends[1]]


def rows_of(model: str, batch: int, **times: list[float]) -> dict[str, object]:
    """A row as it is measured, of three turns."""
    ms = {name: sorted(each)[1] for name, each in times.items()}
    return {"model": model, "cache": "fp8_ds_mla", "batch": batch, "times": times, "ms": ms}


def test_models_whose_backends_differ_share_a_table(tmp_path):
    document = json.loads(DATA.read_text())
    row = rows_of("sparse, 16 heads", 64, MLA_KERNELS_SPARSE=[1.0, 2.0, 4.0], FLASHMLA_SPARSE=[3.0, 3.0, 3.0])
    document["rows"] = [document["rows"][0], row]
    path = tmp_path / "some.md"
    (tmp_path / "some.json").write_text(json.dumps(document))
    assert engine_turns.main(vllm_engine.BENCHMARK, None, [str(tmp_path / "some.json"), "--page", str(path)]) == 0
    text = path.read_text()
    assert "| sparse, 16 heads | 64 | 2.00 (1.00 to 4.00) | - | - | 3.00 (3.00 to 3.00) | 1.500 |" in text
    turns = len(document["rows"][0]["times"]["MLA_KERNELS"])
    assert f"the median of 3 or {turns} turns" in text
    assert "*sparse* is one of V3.2's, which selects 2,048 tokens of such a cache or of an `fp8_ds_mla` one" in text


def test_a_page_says_which_engine_it_is():
    document = json.loads(DATA.read_text())
    document["engine"] = {"name": "sglang", "version": "0.5.23", "asks for": "torch==2.14.1"}
    document["rows"] = document["rows"][:1]
    text = page(document, data="data/some.json")
    assert text.startswith("# Inside SGLang: NVIDIA H200\n")
    assert "SGLang 0.5.23, which asks for torch 2.14.1;" in text
    assert "sparse" not in text.partition("Not measured")[0]


@pytest.fixture
def elsewhere(monkeypatch):
    """A machine, a library and an engine that are not there."""
    monkeypatch.setattr("benchmarks.ops.cuda.machine", lambda: {"gpu": "some", "date": "2026-01-02"})
    monkeypatch.setattr("benchmarks.ops.run_cuda.payload", lambda arch: {"sha": "0"})
    monkeypatch.setattr(engine_turns, "version", lambda name: "0")
    monkeypatch.setattr(engine_turns, "requires", lambda name: ["torch==2.14.0"])
    return monkeypatch


def test_what_a_file_has_of_other_models_stays(elsewhere, tmp_path):
    """In the order of the models, whichever is measured last; a model that is measured again is replaced."""
    path, found = tmp_path / "some.json", {"value": 1.0}
    elsewhere.setattr(
        engine_turns, "measure", lambda benchmark, model, repeats: [rows_of(model.name, 1, ours=[found["value"]] * 3)]
    )
    first, second = (model.name for model in vllm_engine.MODELS[:2])
    for name, value in ((second, 1.0), (first, 2.0), (second, 3.0)):
        found["value"] = value
        assert engine_turns.main(vllm_engine.BENCHMARK, None, [str(path), "--model", name]) == 0
    found_there = json.loads(path.read_text())
    assert [(row["model"], row["ms"]["ours"]) for row in found_there["rows"]] == [(first, 2.0), (second, 3.0)]
    assert found_there["left out"] == [model.name for model in vllm_engine.MODELS[2:]]


def test_what_was_measured_before_stays_where_an_engine_does_not_serve(elsewhere, tmp_path, capsys):
    path, name = tmp_path / "some.json", vllm_engine.MODELS[0].name
    elsewhere.setattr(engine_turns, "measure", lambda benchmark, model, repeats: [rows_of(model.name, 1, ours=[1] * 3)])
    assert engine_turns.main(vllm_engine.BENCHMARK, None, [str(path), "--model", name]) == 0
    before = path.read_text()

    def fail(benchmark, model, repeats):
        raise RuntimeError("it ended")

    elsewhere.setattr(engine_turns, "measure", fail)
    assert engine_turns.main(vllm_engine.BENCHMARK, None, [str(path), "--model", name]) == 1
    assert path.read_text() == before
    assert "it ended" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "key"),
    [("benchmarks.ops.run_cuda.payload", "payload"), ("benchmarks.engine_turns.plugin_sha256", "plug-in")],
)
def test_what_another_library_or_plugin_gave_does_not_stay(elsewhere, tmp_path, changed, key):
    path = tmp_path / "some.json"
    elsewhere.setattr(engine_turns, "measure", lambda benchmark, model, repeats: [rows_of(model.name, 1, ours=[1] * 3)])
    first, second = (model.name for model in vllm_engine.MODELS[:2])
    assert engine_turns.main(vllm_engine.BENCHMARK, None, [str(path), "--model", first]) == 0
    before = path.read_text()
    elsewhere.setattr(changed, lambda *arch: {"sha": "1"})
    with pytest.raises(ValueError, match=rf"{key} is .*, and now .*'sha': '1'.*; measure into another file"):
        engine_turns.main(vllm_engine.BENCHMARK, None, [str(path), "--model", second])
    assert path.read_text() == before


@pytest.mark.skipif(find_spec("vllm") is not None, reason="engines would start")
def test_an_engine_that_does_not_serve_is_told(elsewhere, tmp_path, capsys):
    """Without vLLM, no engine starts: its last lines are printed, and nothing is measured of its model."""
    path = tmp_path / "some.json"
    assert engine_turns.run(vllm_engine.BENCHMARK, path, vllm_engine.MODELS[:1], 1) == 1
    found = json.loads(path.read_text())
    assert (found["rows"], found["left out"]) == ([], [model.name for model in vllm_engine.MODELS])
    told = capsys.readouterr()
    assert f"dense, 128 heads, MLA_KERNELS: it ended, or took more than {engine_turns.SECONDS} s" in told.err
    assert "No module named 'vllm'" in told.err


def never(model: Model, backend: str, weights: Path) -> Steps:
    """Starts no engine for long."""
    time.sleep(600)
    raise AssertionError


def test_an_engine_that_is_still_starting_can_be_ended(tmp_path):
    """Before its process has a group of its own, and while it waits."""
    model = vllm_engine.MODELS[0]
    for wait in (0, 4):
        folder = tmp_path / str(wait)
        folder.mkdir()
        engine = Engine(Benchmark("some", (model,), never), model, model.backends[0], folder)
        time.sleep(wait)
        engine.end()
        assert engine._process.exitcode == -signal.SIGKILL
