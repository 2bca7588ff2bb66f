"""Batch invariance of vLLM's dense decode: where vLLM asks for it, and where the switch of all calls is on."""

from __future__ import annotations

import mla_kernels as mla
import pytest

from tests.runtime.compat.stand_ins import RELEASES, installed
from tests.runtime.compat.steps.ranks import Ranks


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("asked", "switch"), [(False, False), (True, False), (False, True), (True, True)])
def test_plans_are_made_and_refreshed(monkeypatch, release, asked, switch):
    for overrides in installed(monkeypatch, release):
        monkeypatch.setattr("mla_kernels.compat._vllm.dense.current_arch", lambda: "cpu", raising=False)
        monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", asked)
        with mla.batch_invariant(switch):
            ranks = Ranks(overrides, "cpu", 1, 1, 4, [900, 37, 5], (1, 1, 1))
            for lengths in ([900, 37, 5], [1, 30, 2]):
                ranks.advance(lengths)
                metadata = ranks.metadata(0)
                assert metadata.plan.batch_invariant is (asked or switch)
                ranks.check([ranks.layer(0, metadata)])
