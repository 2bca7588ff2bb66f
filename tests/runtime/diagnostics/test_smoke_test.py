"""The doctor's smoke test takes the plainest variant, draws fresh inputs and detects a wrong result."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from mla_kernels import reference
from mla_kernels.diagnostics import smoke_test
from mla_kernels.payloads.discovery import payloads
from mla_kernels.payloads.registry import Registry

from tests.runtime.site import cpu_registry


def only(*ops: str):
    """Return the CPU payload as if it held variants of ``ops`` only."""
    registry = cpu_registry()
    registry["variants"] = [row for row in registry["variants"] if row["op"] in ops]
    return replace(payloads().found["cpu"], registry=Registry.parse(registry))


def test_the_plainest_variant():
    assert "cpu_decode_qbf16_kvbf16_obf16_direct_split on cpu: maximum error " in smoke_test.launch(
        only("decode", "merge_states")
    )
    assert "cpu_merge_states_ibf16_obf16_rows on cpu: maximum error " in smoke_test.launch(
        only("merge_states", "store_kv")
    )
    with pytest.raises(
        smoke_test.NotRunError, match="it has no variant of decode or merge_states in bf16 or fp16 or fp32"
    ):
        smoke_test.launch(only("store_kv"))


@pytest.mark.parametrize("op", ["decode", "merge_states"])
@pytest.mark.parametrize("value", [1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("result", [0, 1])
def test_one_wrong_element(monkeypatch, op, value, result):
    right = getattr(reference, op)

    def wrong(**arguments):
        results = right(**arguments)
        results[result].view(-1)[3] += value
        return results

    monkeypatch.setattr(reference, op, wrong)
    name = ("out", "lse")[result]
    says = rf"{name} holds \S+ where the reference has \S+ \(inputs of seed \d+\)"
    with pytest.raises(smoke_test.WrongResultError, match=says):
        smoke_test.launch(only(op))


def test_another_shape(monkeypatch):
    monkeypatch.setattr(reference, "decode", lambda **_: (torch.zeros(1), torch.zeros(1)))
    with pytest.raises(smoke_test.WrongResultError, match=r"out has shape \[1, 1, 16, 512\], the reference's is \[1\]"):
        smoke_test.launch(only("decode"))


def test_fresh_inputs_are_right_every_time():
    state = torch.get_rng_state()
    told = {smoke_test.launch(only("decode")) for _ in range(30)}
    assert len(told) > 1
    assert torch.equal(torch.get_rng_state(), state)


def test_without_torch_numpy_makes_the_inputs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    said = smoke_test.launch(only("decode"))
    assert said.startswith("cpu_decode_qfp32_kvfp32_ofp32_direct_split on cpu: maximum error ")
    assert said.endswith("against the reference (NumPy inputs)")
    right = smoke_test._numpy_decode

    def wrong(*arguments):
        problem = right(*arguments)
        problem.wanted[1][0, 5, 0] += 1
        return problem

    monkeypatch.setattr(smoke_test, "_numpy_decode", wrong)
    with pytest.raises(smoke_test.WrongResultError, match="lse holds"):
        smoke_test.launch(only("decode"))
