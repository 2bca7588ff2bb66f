"""Two devices in one process: launches on both take turns, and each time the other device is the current one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import DeviceError
from torch import Tensor

from tests.gpu.support.availability import devices_alike, require_arch, require_op
from tests.gpu.support.cases import case
from tests.gpu.support.sm90 import ARCH, each, each_with
from tests.gpu.support.tensors import set_all_bits
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row

TURNS = 20
TYPES: dict[str, tuple[str, ...]] = {
    "store_kv": ("bf16", "fp8_ds_mla"),
    "gather_kv": ("e4m3", "fp16"),
    "merge_states": ("fp32", "bf16"),
    "to_global_indices": (),
}


@pytest.fixture(autouse=True)
def devices(arch: str) -> tuple[int, int]:
    """Two devices that the arch under test runs on."""
    alike = devices_alike()
    if len(alike) < 2:
        pytest.skip(f"not run: {arch}: two GPUs are needed, here is one")
    return alike[0], alike[1]


@pytest.fixture
def decodes() -> None:
    """Dense decode is under test."""
    require_arch(ARCH)
    require_op(ARCH, "decode")


@contextmanager
def crossed(stream: torch.cuda.Stream, current: int) -> Iterator[None]:
    """Work goes to ``stream`` of one device while another is the current one, which it is still at the end."""
    with torch.cuda.stream(stream), torch.cuda.device(current):
        yield
        assert torch.cuda.current_device() == current


def synchronize(devices: tuple[int, int]) -> None:
    for device in devices:
        torch.cuda.synchronize(device)


@each_with("num_heads", [16, 128])
@pytest.mark.usefixtures("decodes")
@pytest.mark.parametrize("max_splits", [0, 3])
def test_plan_decode_and_merge(variant: Row, num_heads: int, max_splits: int, devices: tuple[int, int]) -> None:
    """Launches of one kernel take turns from the first one on; splits are combined."""
    problems = [
        Decode(
            variant.name,
            lengths=(3000 + 100 * device, 500, 0, 64),
            num_heads=num_heads,
            q_len=min(2, variant.most("q_len")),
            seed=device,
        )
        for device in devices
    ]
    kernel = problems[0].kernel()
    inputs = []
    for device, problem in zip(devices, problems, strict=True):
        with torch.cuda.device(device):
            inputs.append(problem.tensors())
    streams = [torch.cuda.Stream(device) for device in devices]
    synchronize(devices)
    got: list[list[tuple[Tensor, Tensor]]] = [[], []]
    for _ in range(TURNS):
        for lane, other in ((0, devices[1]), (1, devices[0])):
            given, q = inputs[lane], inputs[lane]["q"]
            with crossed(streams[lane], other):
                out = q.new_empty(*q.shape[:3], variant.form.d_v)
                lse = q.new_empty(4, num_heads, q.shape[1], dtype=torch.float32)
                size = kernel.workspace_size(**given, max_splits=max_splits)
                workspace = q.new_empty(size, dtype=torch.uint8)
                set_all_bits(out, lse, workspace)
                plan = kernel.plan(given["seq_lens"], max_splits=max_splits)
                kernel(**given, **problems[lane].scalars(), plan=plan, out=out, lse=lse, workspace=workspace)
            got[lane].append((out, lse))
    synchronize(devices)
    for device, problem, results in zip(devices, problems, got, strict=True):
        (want_out, want_lse), *others = results
        with torch.cuda.device(device):
            problem.compare(want_out, want_lse, *problem.expected())
        for out, lse in others:
            assert_same_bytes("out", out, want_out)
            assert_same_bytes("lse", lse, want_lse)


@each
@pytest.mark.usefixtures("decodes")
def test_one_call(variant: Row, devices: tuple[int, int]) -> None:
    """The call allocates everything on the device of q."""
    first, second = devices
    problem = Decode(variant.name, lengths=(3000, 20), q_len=min(2, variant.most("q_len")))
    with torch.cuda.device(second):
        inputs = problem.tensors()
        want = problem.expected()
    with crossed(torch.cuda.current_stream(second), first):
        out, lse = mla.decode(**inputs, **problem.scalars(), **problem.options)
    assert (out.device.index, lse.device.index) == (second, second)
    problem.compare(out, lse, *want)


@pytest.mark.parametrize("op", TYPES)
def test_other_ops(op: str, arch: str, devices: tuple[int, int]) -> None:
    cases = [case(arch, op, TYPES[op], f"cuda:{device}") for device in devices]
    streams = [torch.cuda.Stream(device) for device in devices]
    for turn in range(TURNS):
        synchronize(devices)
        for mine, stream, other in zip(cases, streams, reversed(devices), strict=True):
            with crossed(stream, other):
                mine.load(mine.fresh(turn + devices.index(other)))
                mine.run()
        synchronize(devices)
        for mine, other in zip(cases, reversed(devices), strict=True):
            mine.check(turn + devices.index(other))


@each
@pytest.mark.usefixtures("decodes")
def test_tensors_of_two_devices_are_refused(variant: Row, devices: tuple[int, int]) -> None:
    """Each tensor but q is refused by its name, before anything is launched."""
    here, there = (f"cuda:{device}" for device in devices)
    problem = Decode(variant.name, lengths=(3000, 20))
    with torch.cuda.device(devices[0]):
        given: dict[str, Any] = problem.tensors()
    kernel = problem.kernel()
    given["out"] = torch.full((2, 1, 16, variant.form.d_v), 7, dtype=given["q"].dtype, device=here)
    given["lse"] = torch.full((2, 16, 1), 7.0, device=here)
    size = kernel.workspace_size(**{name: given[name] for name in ("q", "kv_cache", "block_table", "seq_lens")})
    given["workspace"] = torch.empty(size, dtype=torch.uint8, device=here)
    plan = kernel.plan(given["seq_lens"])
    for name in given.keys() - {"q"}:
        with pytest.raises(DeviceError) as error:
            kernel(**{**given, name: given[name].to(there)}, **problem.scalars(), plan=plan)
        assert (error.value.argument, error.value.got, error.value.accepts) == (name, there, f"{here}, as q")
    elsewhere = kernel.plan(given["seq_lens"].to(there))
    with pytest.raises(DeviceError) as error:
        kernel(**given, **problem.scalars(), plan=elsewhere)
    assert (error.value.argument, error.value.got, error.value.accepts) == ("plan", there, f"{here}, as q")
    with pytest.raises(DeviceError, match=f"{there}.*{here}, as seq_lens"):
        kernel.plan(given["seq_lens"], out=elsewhere)
    assert bool((given["out"] == 7).all())
    assert bool((given["lse"] == 7).all())


def test_caches_of_two_devices_are_refused(arch: str, devices: tuple[int, int]) -> None:
    here, there = (f"cuda:{device}" for device in devices)
    latent, rope = torch.ones(3, 512, device=here).bfloat16(), torch.ones(3, 64, device=there).bfloat16()
    cache, slots = torch.full((1, 4, 576), 7, device=here).bfloat16(), torch.arange(3, device=here)
    with pytest.raises(DeviceError) as error:
        mla.store_kv(latent, rope, cache, slots)
    assert (error.value.argument, error.value.got) == ("rope", there)
    with pytest.raises(DeviceError) as error:
        mla.gather_kv(cache, slots.int().to(there))
    assert (error.value.argument, error.value.got) == ("indices", there)
    assert bool((cache == 7).all())
