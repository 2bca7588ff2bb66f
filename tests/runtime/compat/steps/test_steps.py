"""The steps that a GPU is profiled with, here on the host: results, and what torch does in a layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.runtime.compat.stand_ins import RELEASES, installed
from tests.runtime.compat.steps.stub_engine import OPERATORS, STEPS, Step, advance, check, make


@pytest.fixture(params=STEPS)
def step(monkeypatch, request) -> Iterator[Step]:
    """A step of the newest release."""
    *_, release = RELEASES
    for overrides in installed(monkeypatch, release):
        monkeypatch.setattr("mla_kernels.compat._vllm.dense.current_arch", lambda: "cpu")
        monkeypatch.setattr("mla_kernels.compat._vllm_backend.current_arch", lambda: "cpu")
        yield make(request.param, overrides, "cpu")


def test_layers_are_right_at_other_lengths_too(step):
    check(step, step.run(step.metadata()))
    advance(step)
    check(step, step.run(step.metadata()))


def test_layers_of_other_lengths_are_noticed(step):
    outs = step.run(step.metadata())
    advance(step)
    with pytest.raises(AssertionError):
        check(step, outs)


def operators(step: Step, *, copies: bool = False) -> set[str]:
    """What torch does in the layers of a step beside views and allocations; ``copies`` adds a copy."""
    metadata = step.metadata()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        outs = step.run(metadata)
        if copies:
            outs[0].clone()
    names = {event.name for event in profile.events()}
    assert any(OPERATORS.fullmatch(name) for name in names), names
    return {name for name in names if name.startswith("aten::") and not OPERATORS.fullmatch(name)}


def test_torch_computes_and_copies_nothing_in_a_layer(step):
    assert operators(step) == set()
    assert {"aten::clone", "aten::copy_"} <= operators(step, copies=True)
