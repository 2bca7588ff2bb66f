"""A kernel can be copied, pickled and sent to another process, which binds the same variant."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import PayloadError, ShapeError

from tests.runtime.small_decode import Decode


@dataclass
class Layer:
    """What an engine keeps of a kernel."""

    kernel: mla.Kernel
    plan: mla.Plan


def launched(layer: Layer, arguments: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    return layer.kernel(**arguments, plan=layer.plan)


@pytest.fixture
def layer(problem: Decode) -> Layer:
    kernel = mla.lookup(op="decode", arch="cpu", q_dtype="bf16", page_size=16, num_heads=4, q_len=1)
    return Layer(kernel, kernel.plan(problem.seq_lens))


def pickled(layer: Layer) -> Layer:
    return pickle.loads(pickle.dumps(layer))


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, pickled])
def test_what_holds_a_kernel_can_be_copied(made, layer, problem):
    other = made(layer)
    assert repr(other.kernel) == repr(layer.kernel) == repr(made(layer.kernel))
    assert (other.kernel.variant, other.kernel.config) == (layer.kernel.variant, layer.kernel.config)
    for one, two in zip(launched(other, problem.arguments()), launched(layer, problem.arguments()), strict=True):
        assert torch.equal(one, two)


def test_a_copy_keeps_the_limits_of_the_config(layer, problem):
    with pytest.raises(ShapeError, match="kv_cache: got page_size = 8; accepts 16"):
        pickled(layer).kernel(**problem.arguments(kv_cache=problem.kv_cache[:, :8]))


def test_a_spawned_process_launches(layer, problem):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        out, lse = pool.submit(launched, layer, problem.arguments()).result()
    expected = mla.decode(**problem.arguments())
    assert torch.equal(out, expected[0])
    assert torch.equal(lse, expected[1])


def test_a_plan_equals_itself_only(layer):
    """A comparison of its buffer would be a tensor."""
    assert layer.plan == layer.plan
    assert layer.plan != copy.deepcopy(layer.plan)


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda variant: pickle.loads(pickle.dumps(variant))])
def test_nobody_changes_the_fields_of_a_variant(made):
    (variant, *_) = mla.variants(op="decode", arch="cpu")
    assert made(variant) == variant
    for fields in (variant.baked, made(variant).baked, variant.accepts):
        before = dict(fields)
        for change in (lambda fields: fields.update(q_dtype="x"), lambda fields: fields.clear()):
            with pytest.raises(TypeError, match="change a copy"):
                change(fields)
        with pytest.raises(TypeError, match="change a copy"):
            fields["q_dtype"] = "x"
        assert fields == before


@pytest.mark.parametrize("op", ["sparse_decode", "store_kv", "to_global_indices"])
def test_kernels_of_other_ops(op):
    kernel = mla.lookup(op=op, arch="cpu")
    assert pickle.loads(pickle.dumps(kernel)).variant == kernel.variant


def test_a_process_without_the_payload_says_so(site, rediscover):
    site.install("toy")
    rediscover()
    stored = pickle.dumps(mla.lookup(op="decode", arch="toy", q_dtype="bf16"))
    library = site.path / "mla_toy_payload" / "libmla_toy.so"
    library.unlink()  # this process has it mapped: a file that becomes shorter would end it by SIGBUS
    library.write_bytes(b"")
    rediscover()
    with pytest.raises(PayloadError, match=r"payload toy was rejected: .*truncated"):
        pickle.loads(stored)
