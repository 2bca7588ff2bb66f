"""``examples/shared_prefix.py`` is right, and says so only where it is; ``nox -s demo`` runs the others."""

from __future__ import annotations

import math
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch

from tests.docs.test_pages import ROOT


@pytest.fixture(scope="module")
def example():
    spec = spec_from_file_location("shared_prefix", ROOT / "examples" / "shared_prefix.py")
    module = sys.modules[spec.name] = module_from_spec(spec)  # where a dataclass looks for its module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_it_is_right(example, capsys):
    assert example.main("cpu") == 0
    said = capsys.readouterr().out
    assert "6 requests, 512 tokens shared, 0 to 200 of their own, on cpu" in said
    assert said.endswith("right\n")


MISTAKES = {
    "an LSE in base 2": lambda out, lse: (out, lse / math.log(2)),
    "no prefix": lambda out, lse: (out, torch.full_like(lse, -math.inf)),
    "NaN": lambda out, lse: (out * math.nan, lse),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(example, monkeypatch, capsys, mistake):
    right = example.over_prefix
    monkeypatch.setattr(example, "over_prefix", lambda *given: MISTAKES[mistake](*right(*given)))
    assert example.main("cpu") == 1
    assert capsys.readouterr().out.endswith("WRONG\n")


def test_a_request_without_tokens_of_its_own_has_the_values_of_the_prefix(example):
    step = example.random_step("cpu")
    keys, values = example.expanded(step)
    empty = example.OWN.index(0)
    out, _ = example.over_prefix(step, keys, values)
    assert torch.equal(example.cascade(step, keys, values)[empty], out[empty])
