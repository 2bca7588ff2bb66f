"""A decode step of vLLM's on a GPU: what its layers launch, that nobody waits for them, and that a graph holds them.

The engine is a stub, around stand-ins of vLLM's base classes; see ``tests.runtime.compat.steps.stub_engine``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.gpu.support.availability import require_arch
from tests.gpu.support.launches import captured
from tests.gpu.support.tensors import set_all_bits
from tests.runtime.compat.stand_ins import RELEASES, installed
from tests.runtime.compat.steps.stub_engine import OPERATORS, STEPS, DenseStep, Step, advance, check, make
from tests.support.compare import assert_same_bytes

ARCH = "sm90a"
"""Kernels are known by their names, which are Hopper's here."""

DENSE = (r"mla::sm90::\w+::attention_kernel<", r"mla::sm90::combine::combine_kernel\b")
SPARSE = (
    r"mla::cuda::store_kv::store_kernel<",
    r"mla::cuda::to_global_indices::convert_(staged_)?kernel\b",
    *DENSE,
)
"""What a layer launches, in this order; the last only where a launch does not combine its own partial results."""

WAITS = re.compile(r"cu(da)?\w*(Memcpy|Memset|Synchronize|MemAlloc|Malloc|MemFree|Free)", re.IGNORECASE)
"""Calls of CUDA that copy, wait, or make the device wait."""


@pytest.fixture(params=STEPS)
def step(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Step]:
    """A step of the newest release, whose layers have run before: allocations and attributes of kernels are made."""
    require_arch(ARCH)
    *_, release = RELEASES
    for overrides in installed(monkeypatch, release):
        made = make(request.param, overrides, "cuda")
        for _ in range(2):
            made.run(made.metadata())
        torch.cuda.synchronize()
        yield made


def test_layers_are_right_at_other_lengths_too(step: Step) -> None:
    check(step, step.run(step.metadata()))
    advance(step)
    check(step, step.run(step.metadata()))


@dataclass(frozen=True)
class Trace:
    """What the layers of a step did: kernels in order, copies and fills, calls of CUDA, and operators of torch."""

    kernels: list[str]
    transfers: list[str]
    calls: list[str]
    operators: list[str]


def traced(step: Step, path: Path, *, waits: bool = False) -> Trace:
    """Profile the layers of a step; ``waits`` lets the host read a result among them."""
    metadata = step.metadata()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        with record_function("layers"):
            outs = step.run(metadata)
            if waits:
                outs[0].clone().cpu()
        torch.cuda.synchronize()
    recorded.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]

    def of(*categories: str) -> list[dict[str, object]]:
        found = [event for event in events if event.get("cat") in categories]
        return sorted(found, key=lambda event: float(event["ts"]))

    (layers,) = (event for event in of("user_annotation") if event["name"] == "layers")
    start, end = float(layers["ts"]), float(layers["ts"]) + float(layers["dur"])

    def inside(*categories: str) -> list[str]:
        return [str(event["name"]) for event in of(*categories) if start <= float(event["ts"]) <= end]

    return Trace(
        kernels=[str(event["name"]) for event in of("kernel")],
        transfers=[str(event["name"]) for event in of("gpu_memcpy", "gpu_memset")],
        calls=inside("cuda_runtime", "cuda_driver"),
        operators=inside("cpu_op"),
    )


def test_a_layer_launches_its_kernels_and_nothing_else(step: Step, tmp_path: Path) -> None:
    trace = traced(step, tmp_path / "trace.json")
    per_layer, rest = divmod(len(trace.kernels), len(step.impls))
    expected = DENSE if isinstance(step, DenseStep) else SPARSE
    assert per_layer in {len(expected) - 1, len(expected)}, trace.kernels
    assert rest == 0, trace.kernels
    for position, name in enumerate(trace.kernels):
        assert re.search(expected[position % per_layer], name), f"launch {position} is {name}"


def test_a_layer_copies_nothing_and_waits_for_nothing(step: Step, tmp_path: Path) -> None:
    trace = traced(step, tmp_path / "trace.json")
    assert trace.calls, "the profile has no calls of CUDA"
    assert [name for name in trace.calls if WAITS.match(name)] == []
    assert trace.transfers == []
    assert [name for name in trace.operators if name.startswith("aten::") and not OPERATORS.fullmatch(name)] == []


def test_a_host_that_reads_a_result_is_noticed(step: Step, tmp_path: Path) -> None:
    trace = traced(step, tmp_path / "trace.json", waits=True)
    assert any(WAITS.match(name) for name in trace.calls), trace.calls
    assert any("DtoH" in name for name in trace.transfers), trace.transfers
    assert "aten::copy_" in trace.operators


def test_torch_sees_no_synchronisation(step: Step) -> None:
    """Of the layers, and of what describes a step before them."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        outs = step.run(step.metadata())
        with pytest.raises(RuntimeError, match="synchroniz"):
            outs[0].sum().item()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    check(step, outs)


def test_a_device_that_is_busy_does_not_stop_the_host(step: Step) -> None:
    """Layers are launched behind work that takes longer than they are given."""
    metadata = step.metadata()
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)
    done = torch.cuda.Event()
    outs = step.run(metadata)
    done.record()
    assert not done.query(), "a layer waited for the device"
    torch.cuda.synchronize()
    check(step, outs)


def test_a_graph_holds_the_layers_and_replays_other_lengths(step: Step) -> None:
    """It is captured as vLLM does, over metadata that the next step makes anew in place."""
    outs: list[torch.Tensor] = []
    metadata = step.metadata()
    graph = captured(lambda: outs.extend(step.run(metadata)))
    for _ in range(2):
        advance(step)
        want = [out.clone() for out in step.run(step.metadata())]
        set_all_bits(*outs)
        step.metadata()
        graph.replay()
        torch.cuda.synchronize()
        for number, (got, wanted) in enumerate(zip(outs, want, strict=True)):
            assert_same_bytes(f"layer {number}", got, wanted)
        check(step, outs)
