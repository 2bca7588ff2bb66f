"""The benchmark inside vLLM, without vLLM: its models, and the page of what it measured."""

from __future__ import annotations

import json
import pickle
from importlib.util import find_spec

import pytest

from benchmarks import vllm_engine
from benchmarks.pages.vllm_engine import page
from benchmarks.vllm_engine import MODELS, PROMPT

from .imagined import PAGES

DATA = PAGES / "data" / "h200_vllm.json"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_is_the_same_in_the_process_of_an_engine(model):
    there = pickle.loads(pickle.dumps(model))
    assert there == model
    assert there.sparse is model.sparse is model.name.startswith("sparse")
    assert ("index_topk" in there.config()) == model.sparse
    assert there.config()["num_attention_heads"] == model.heads


def test_prompts_are_in_the_cache_but_for_a_token():
    assert PROMPT % 64 == 1


def test_the_page_is_of_its_data():
    text = page(json.loads(DATA.read_text()), data=f"data/{DATA.name}")
    assert (PAGES / f"{DATA.stem}.md").read_text() == text


def test_models_whose_backends_differ_share_a_table(tmp_path):
    document = json.loads(DATA.read_text())
    times = {"MLA_KERNELS_SPARSE": [1.0, 2.0, 4.0], "FLASHMLA_SPARSE": [3.0, 3.0, 3.0]}
    row = {
        "model": "sparse, 16 heads",
        "batch": 64,
        "times": times,
        "ms": {name: each[1] for name, each in times.items()},
    }
    document["rows"] = [document["rows"][0], row]
    path = tmp_path / "some.md"
    (tmp_path / "some.json").write_text(json.dumps(document))
    assert vllm_engine.main([str(tmp_path / "some.json"), "--page", str(path)]) == 0
    text = path.read_text()
    assert "| sparse, 16 heads | 64 | 2.00 (1.00 to 4.00) | - | - | 3.00 (3.00 to 3.00) | 1.500 |" in text
    assert "*sparse* is one of V3.2's" in text


@pytest.mark.skipif(find_spec("vllm") is not None, reason="engines would start")
def test_an_engine_that_does_not_serve_is_told(tmp_path, capsys, monkeypatch):
    """Without vLLM, no engine starts: its last lines are printed, and nothing is measured of its model."""
    monkeypatch.setattr("benchmarks.ops.cuda.machine", dict)
    monkeypatch.setattr("benchmarks.ops.run_cuda.payload", lambda arch: {})
    monkeypatch.setattr(vllm_engine, "version", lambda name: "0")
    monkeypatch.setattr(vllm_engine, "requires", lambda name: ["torch==2.14.0"])
    assert vllm_engine.run(tmp_path / "some.json", MODELS[:1], 1) == 1
    assert json.loads((tmp_path / "some.json").read_text())["rows"] == []
    assert json.loads((tmp_path / "some.json").read_text())["left out"] == [MODELS[0].name]
    told = capsys.readouterr()
    assert "dense, 128 heads, MLA_KERNELS: it ended, or took more than 180 s" in told.err
    assert "No module named 'vllm'" in told.err
