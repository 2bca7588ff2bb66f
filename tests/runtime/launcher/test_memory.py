"""What a kernel writes shares no element with another argument, nor any element of it with another one of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mla_kernels.errors import StrideError, UnsupportedError

from codegen import abi
from tests.runtime.launcher.other_device import CPU, OnDevice
from tests.support.native.noop import arguments, launch

BF16 = torch.bfloat16
SHARED = "{}: got memory that {} has too; accepts memory that no other argument has; copy one of the two"
PAIRS = [
    (op.name, written.name, other.name)
    for op in abi.OPS
    for written in op.tensors
    for other in op.tensors
    if written.written and other is not written
]


def over(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor of the same shape and type that begins where the bytes of ``memory`` do."""
    size = tensor.numel() * tensor.element_size()
    return memory[:size].view(tensor.dtype).view(tensor.shape)


def shared(memory: torch.Tensor, named: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the arguments with those of the given names in the same memory."""
    return named | {name: over(named[name], memory) for name in names}


@pytest.fixture(scope="module")
def memory() -> torch.Tensor:
    return torch.zeros(1 << 20, dtype=torch.uint8)


@pytest.mark.parametrize(("op", "written", "other"), PAIRS)
def test_an_output_over_another_argument(noop, memory, op, written, other):
    kernel, named = noop.kernel(op), shared(memory, arguments(op), written, other)
    first, second = sorted((written, other), key=list(named).index) if other in outputs(op) else (written, other)
    for call in (lambda: launch(kernel, named), lambda: kernel.can_run(named)):
        with pytest.raises(UnsupportedError, match=SHARED.format(first, second)):
            call()
    assert noop.record.variant == -1


def outputs(op: str) -> set[str]:
    return {tensor.name for tensor in abi.OP[op].tensors if tensor.written}


@pytest.mark.parametrize(("op", "written"), sorted({pair[:2] for pair in PAIRS}))
def test_an_output_over_plan_or_workspace(noop, memory, op, written):
    named = shared(memory, arguments(op), written)
    noop.expect(plan=32, workspace=32)
    own = torch.zeros(32, dtype=torch.uint8)
    with pytest.raises(UnsupportedError, match=SHARED.format(written, "plan")):
        launch(noop.kernel(op), named, memory[:32], own)
    with pytest.raises(UnsupportedError, match=SHARED.format(written, "workspace")):
        launch(noop.kernel(op), named, own, memory[:32])
    with pytest.raises(UnsupportedError, match=SHARED.format("workspace", "plan")):
        launch(noop.kernel(op), arguments(op), own, own)
    launch(noop.kernel(op), arguments(op), own, own.clone())


def test_a_plan_over_its_lengths(noop):
    noop.expect(plan=32)
    out = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(UnsupportedError, match=SHARED.format("out", "seq_lens")):
        noop.kernel("decode").plan({"seq_lens": out[5:]}, out=out)


def test_inputs_may_share_memory(noop, memory):
    named = arguments("decode")
    launch(noop.kernel("decode"), shared(memory, named, "q", "kv_cache", "block_table", "seq_lens"))
    launch(noop.kernel("decode"), named | {"q": (named["q"][..., :512], named["q"][..., :64])})


def test_one_byte_counts(noop, memory):
    named = arguments("decode")
    lse = over(named["lse"], memory)
    behind = memory[lse.numel() * 4 :]
    launch(noop.kernel("decode"), named | {"lse": lse, "seq_lens": over(named["seq_lens"], behind)})
    for begin in (-4, lse.numel() * -4):
        lengths = over(named["seq_lens"], memory[lse.numel() * 4 + begin :])
        with pytest.raises(UnsupportedError, match=SHARED.format("lse", "seq_lens")):
            launch(noop.kernel("decode"), named | {"lse": lse, "seq_lens": lengths})


def test_latent_and_rope_of_one_packed_cache(noop):
    """Both are written, row by row; columns that lie in both are refused."""
    named = arguments("store_kv")
    cache = torch.zeros(7, 4, 640, dtype=BF16)
    launch(noop.kernel("store_kv"), named | {"kv_cache": (cache[..., :512], cache[..., 512:576])})
    launch(noop.kernel("store_kv"), named | {"kv_cache": (cache[..., 64:576], cache[..., :64])})
    for rope in (cache[..., 511:575], cache[..., :64], cache[..., 448:512]):
        with pytest.raises(UnsupportedError, match=r"kv_cache\[0\]: got memory that kv_cache\[1\] has too"):
            launch(noop.kernel("store_kv"), named | {"kv_cache": (cache[..., :512], rope)})


def test_columns_of_one_buffer(noop):
    named = arguments("decode")
    buffer = torch.zeros(3, 2, 5, 576 + 512, dtype=BF16)
    for q, out in ((buffer[..., 512:], buffer[..., :512]), (buffer[..., :576], buffer[..., 576:])):
        launch(noop.kernel("decode"), named | {"q": q, "out": out})
    with pytest.raises(UnsupportedError, match=SHARED.format("out", "q")):
        launch(noop.kernel("decode"), named | {"q": buffer[..., :576], "out": buffer[..., 575:1087]})
    heads = torch.zeros(3, 2, 10, 576, dtype=BF16)
    launch(noop.kernel("decode"), named | {"q": heads[:, :, :5], "out": heads[:, :, 5:, :512]})


@pytest.mark.parametrize("name", ["block_table", "seq_lens"])
def test_requests_behind_the_rows_of_an_output(noop, name):
    """Without bounds the requests are the batch; those of a tensor may begin in a gap, and go on in the next row."""
    named = arguments("decode") | {"cu_seqlens_q": None}
    kernel, extent, gap = noop.kernel("decode"), named[name].shape[1:].numel(), 2 * 6 * 3
    buffer = torch.zeros(30, 512 + gap, dtype=BF16)
    named["out"] = buffer[:, :512].view(3, 2, 5, 512)
    inside = buffer[0, 512:].view(torch.int32)[: 3 * extent].view(named[name].shape)
    launch(kernel, named | {name: inside})
    behind = buffer.view(torch.int32).flatten()[(512 + gap) // 2 - extent :][: 3 * extent].view(named[name].shape)
    for call in (launch, lambda kernel, named: kernel.can_run(named)):
        with pytest.raises(UnsupportedError, match=SHARED.format("out", name)):
            call(kernel, named | {name: behind})


def test_a_layer_of_a_pool_of_layers(noop):
    """Pages of two layers alternate; tokens are read from the other layer."""
    named = arguments("store_kv")
    pool = torch.zeros(8, 2, 4, 576, dtype=torch.float32)
    kernel = noop.kernel("store_kv", in_dtype="fp32", kv_dtype="fp32")
    tokens, slots = pool[0, 1], torch.zeros(4, dtype=torch.int64)
    given = named | {"latent": tokens[:, :512], "rope": tokens[:, 512:], "slot_mapping": slots}
    launch(kernel, given | {"kv_cache": pool[:7, 0]})
    with pytest.raises(UnsupportedError, match=SHARED.format("kv_cache", "latent")):
        launch(kernel, given | {"kv_cache": pool[:7, 1]})


@pytest.mark.parametrize(
    "strides", [(5120, 5120, 1024), (5120, 2560, 511), (1, 5120, 512), (5120, 5119, 1024), (512, 512, 5120)]
)
def test_an_output_over_itself(noop, strides):
    out = torch.zeros(1 << 16, dtype=BF16).as_strided((3, 2, 5, 512), (*strides, 1))
    message = "out: got strides that reach an element twice; accepts elements that do not overlap"
    with pytest.raises(StrideError, match=message):
        launch(noop.kernel("decode"), arguments("decode") | {"out": out})
    assert noop.record.variant == -1


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 1, 0, 3), (1, 2, 0, 3)])
def test_axes_of_an_output_lie_in_any_order(noop, order):
    shape = [(3, 2, 5, 512)[axis] for axis in order]
    out = torch.zeros(shape, dtype=BF16).permute(*(order.index(axis) for axis in range(4)))
    launch(noop.kernel("decode"), arguments("decode") | {"out": out})


def test_empty_tensors_share_nothing(noop, memory):
    named = arguments("gather_kv") | {"indices": torch.zeros(0, dtype=torch.int32)}
    out = over(torch.zeros(1, 576, dtype=BF16), memory)[:0]
    launch(noop.kernel("gather_kv"), shared(memory, named, "kv_cache") | {"out": out})


@pytest.mark.parametrize("strides", [(2**62, 1, 1), (2**61, 2**61, 1), (1, 4, 2**62)])
def test_strides_past_the_end_of_memory(noop, strides):
    for name in ("lse", "q"):
        named = arguments("decode")
        broken = OnDevice(named[name], device_type=CPU)
        for axis, stride in enumerate(strides):
            broken.steps[axis] = stride
        with pytest.raises(StrideError, match=f"{name}: got strides past the end of memory"):
            launch(noop.kernel("decode"), named | {name: broken})


def test_other_devices(noop):
    named = {name: OnDevice(value) if torch.is_tensor(value) else value for name, value in arguments("decode").items()}
    kernel = noop.kernel("decode", device="cuda")
    launch(kernel, named)
    named["lse"].export.data = named["block_table"].export.data
    with pytest.raises(UnsupportedError, match=SHARED.format("lse", "block_table")):
        launch(kernel, named)


_AXES = st.tuples(st.integers(1, 3), st.sampled_from([*range(8), 10, 12, 24]))


def places(begin: int, axes: list[tuple[int, int]]) -> list[int]:
    """Return the elements that a tensor reaches, one by one."""
    return [begin + sum(i * stride for i, (_, stride) in zip(index, axes, strict=True))
            for index in product(*(range(extent) for extent, _ in axes))]  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tokens=st.lists(_AXES, min_size=2, max_size=2), state=_AXES, steps=st.tuples(*[st.sampled_from(range(13))] * 2),
    begins=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)  # fmt: skip
def test_no_shared_element_is_accepted(noop, tokens, state, steps, begins):
    """Against every element, one by one: ``lse`` is read and ``out_lse`` is written, both of any strides."""
    buffer = torch.zeros(256)
    read = [state, *tokens]
    written = [(extent, stride) for (extent, _), stride in zip(tokens, steps, strict=True)]
    lse, out_lse = (
        buffer.as_strided([n for n, _ in axes], [stride for _, stride in axes], begin)
        for axes, begin in zip((read, written), begins, strict=True)
    )
    states, rows, heads = lse.shape
    named = arguments("merge_states") | {"lse": lse, "out_lse": out_lse, "counts": None}
    named |= {"o": torch.zeros(states, rows, heads, 8), "out": torch.zeros(rows, heads, 8, dtype=BF16)}
    try:
        launch(noop.kernel("merge_states"), named)
    except (StrideError, UnsupportedError):
        return
    reached = places(begins[1], written)
    assert len(set(reached)) == len(reached)
    assert not set(reached) & set(places(begins[0], read))
