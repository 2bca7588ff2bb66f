"""Tensors of any producer are read: subclasses, read-only and old capsules, other devices; none leaks or crashes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mla_kernels.errors import STATUS, DeviceError, DTypeError, MlaError, ShapeError, UnsupportedError, ValueRangeError
from torch._subclasses.fake_tensor import FakeTensorMode

from codegen import abi
from tests.runtime.launcher.other_device import API, CPU, CUDA, OnDevice, capsule
from tests.support.native.noop import arguments, expected, launch


class Subclass(torch.Tensor):
    pass


class Protocol:
    """A tensor that has only ``__dlpack__``, without the keywords of DLPack 1.0 when ``old``."""

    def __init__(self, tensor: Any, old: bool = False) -> None:
        self.tensor, self.old, self.streams = tensor, old, []

    def __dlpack__(self, **keywords: Any) -> Any:
        if self.old and "max_version" in keywords:
            raise TypeError("unexpected keyword")
        self.streams.append(keywords.pop("stream", None))
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def on_device(named: dict[str, Any], device_id: int = 0, **others: Any) -> dict[str, Any]:
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    return named | {name: OnDevice(value, device_id) for name, value in tensors.items()} | others


def test_subclasses_go_through_the_protocol(noop):
    named = arguments("decode")
    launch(noop.kernel("decode"), named | {"q": named["q"].as_subclass(Subclass)})
    assert noop.fields("decode") == expected("decode", named)


@pytest.mark.parametrize("old", [False, True])
def test_protocol_only(noop, old):
    named = arguments("decode")
    launch(noop.kernel("decode"), named | {name: Protocol(named[name], old) for name in ("q", "out", "lse")})
    assert noop.fields("decode") == expected("decode", named)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensors_are_refused(noop):
    named = arguments("decode")
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(named["q"])
    for context in (mode, torch.no_grad()):
        with context, pytest.raises((DTypeError, DeviceError), match="q: got"):
            launch(noop.kernel("decode"), named | {"q": fake})


def test_broken_producers_are_refused(noop):
    class Returns:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def __dlpack__(self, **keywords: Any) -> Any:
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        def __dlpack_device__(self) -> tuple[int, int]:
            return (CPU, 0)

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    other = capsule(API, b"another")
    reasons = {BufferError("busy"): "busy", RuntimeError("no\nstack"): "no", MuteError(): "MuteError"}
    for answer in (None, 3, other, *reasons):
        reason = reasons.get(answer)
        message = "Returns with an unknown __dlpack__" if reason is None else rf"Returns \({reason}\)"
        with pytest.raises(DTypeError, match=f"q: got {message}; accepts a tensor") as caught:
            launch(noop.kernel("decode"), arguments("decode") | {"q": Returns(answer)})
        assert caught.value.__cause__ is (answer if isinstance(answer, Exception) else None)
    with pytest.raises(KeyboardInterrupt):
        launch(noop.kernel("decode"), arguments("decode") | {"q": Returns(KeyboardInterrupt())})


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"data": None}, DeviceError, "q: got a tensor without memory"),
        ({"ndim": -1}, ShapeError, r"q: got shape \[\]"),
        ({"shape": None}, ShapeError, r"q: got shape \[\]"),
        ({"shape": (ctypes.c_int64 * 4)(3, 2, -5, 576)}, ShapeError, "at most 2"),
        ({"shape": (ctypes.c_int64 * 4)(2**40, 2**40, 5, 576)}, ShapeError, "at most 2"),
        ({"lanes": 2}, DTypeError, "q: got bfloat16 vectors"),
        ({"code": 99}, DTypeError, "q: got DLPack type 99 of 16 bits"),
        ({"device_type": 10}, DeviceError, "q: got a device of DLPack type 10; accepts cpu"),
        ({"device_type": CUDA}, DeviceError, "q: got cuda:0; accepts cpu"),
        ({"byte_offset": 1}, STATUS["alignment"], "q: got an address 1 bytes past"),
    ],
)
def test_nonsense_exports_are_refused(noop, fields, error, message):
    named = arguments("decode")
    broken = OnDevice(named["q"], device_type=CPU)
    for name, value in fields.items():
        setattr(broken.export, name, value)
    with pytest.raises(error, match=message):
        launch(noop.kernel("decode"), named | {"q": broken})


def test_exports_without_strides_are_contiguous(noop):
    q = torch.zeros(3, 2, 5, 576, dtype=torch.bfloat16)
    named = arguments("decode") | {"q": q}
    launch(noop.kernel("decode"), named | {"q": OnDevice(q, device_type=CPU, strides=None)})
    assert noop.fields("decode") == expected("decode", named)


def test_cuda_takes_device_and_stream_from_the_tensors(noop):
    kernel = noop.kernel("decode", device="cuda")
    named = arguments("decode")
    launch(kernel, on_device(named, 3))
    assert noop.fields("decode") == expected("decode", named) | {"device": 3}
    assert noop.record.stream == 0x5003
    kernel.launch(*on_device(named).values(), None, None, 0x77)
    assert noop.record.stream == 0x77
    kernel.can_run({"batch": 3, "device": 5})
    assert noop.fields("decode")["device"] == 5


def test_cuda_refuses_mixed_devices(noop):
    kernel = noop.kernel("decode", device="cuda")
    named = arguments("decode")
    with pytest.raises(DeviceError, match="q: got cpu; accepts cuda"):
        launch(kernel, named)
    with pytest.raises(DeviceError, match="out: got cuda:1; accepts cuda:0, as q"):
        launch(kernel, on_device(named, out=OnDevice(named["out"], 1)))
    with pytest.raises(DeviceError, match="q: got cuda:0; accepts cuda:1, as device"):
        kernel.can_run({"device": 1, "q": OnDevice(named["q"])})
    with pytest.raises(ValueRangeError, match="device: got 4294967296"):
        kernel.can_run({"device": 1 << 32})


class Liar(str):
    """A name that equals no other, and that another one may read as."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return "batch"


@pytest.mark.parametrize("count", [2, 30])
def test_names_that_say_they_differ(noop, count):
    """Every one of them exports a tensor, which the call keeps until it returns."""
    kernel, named = noop.kernel("decode"), arguments("decode")
    for value in (Protocol(named["q"]), (Protocol(named["q"][..., :512]), Protocol(named["q"][..., 512:]))):
        problem = {Liar("q"): value for _ in range(count)}
        for call in (kernel.workspace_size, kernel.plan_size, kernel.can_run, lambda given: kernel.plan(given, None)):
            with pytest.raises(TypeError, match="argument 'q' is given twice"):
                call(problem)
    assert kernel.workspace_size({Liar("q"): named["q"], Liar("batch"): 3}) == 0
    with pytest.raises(TypeError, match="the name of an argument is a str, not 3"):
        kernel.can_run({3: 4})


def test_a_mapping_that_changes_while_it_is_read(noop):
    class Growing(dict[str, Any]):
        def keys(self) -> Any:
            for name in list(super().keys()):
                self[f"{name}!"] = 1
                yield name

        def __getitem__(self, name: str) -> Any:
            self.pop(name, None)
            return 3

    for _ in range(3):
        assert noop.kernel("decode").workspace_size(Growing(batch=1, num_heads=2)) == 0


def test_cuda_protocol_is_told_the_stream(noop):
    kernel = noop.kernel("decode", device="cuda")
    named = arguments("decode")
    for stream, told in ((None, 0x5000), (0x77, 0x77), (0, 1)):
        table = Protocol(named["block_table"])
        with pytest.raises(DeviceError, match="block_table: got cpu; accepts cuda"):
            kernel.launch(*on_device(named, block_table=table).values(), None, None, stream)
        assert table.streams == [told]
    with pytest.raises(UnsupportedError, match=r"stream: got None; .* because q \(Protocol\) does not tell"):
        launch(kernel, on_device(named, q=Protocol(named["q"])))


def test_no_references_leak(noop):
    kernel = noop.kernel("decode")
    noop.expect(plan=16)
    plan = torch.zeros(16)
    named = arguments("decode")
    pair = (named["q"][..., :512], named["q"][..., 512:])
    lengths = named["seq_lens"].numpy()
    calls = [
        named,
        named | {"q": pair},
        named | {"seq_lens": lengths},
        named | {"seq_lens": [1]},
        named | {"out": named["q"]},
        named | {"softmax_scale": "x"},
    ]
    watched = [*named.values(), *pair, lengths, plan, kernel, None, noop.payload]

    def run(times: int) -> None:
        for _ in range(times):
            for call in calls:
                with contextlib.suppress(MlaError):
                    launch(kernel, call, plan)
                kernel.workspace_size({"q": pair, "seq_lens": lengths})

    run(10)
    gc.collect()
    before = [sys.getrefcount(value) for value in watched]
    blocks = sys.getallocatedblocks()
    run(1000)
    gc.collect()
    after = [sys.getrefcount(value) for value in watched]
    assert all(abs(b - a) < 20 for a, b in zip(before, after, strict=True)), list(zip(before, after, strict=True))
    assert sys.getallocatedblocks() - blocks < 1000


_DTYPES = [torch.bfloat16, torch.float32, torch.int32, torch.int64, torch.uint8, torch.bool]
_ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.just(torch.Tensor),
    st.just(object()),
    st.builds(
        lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 64, 512, 576]), max_size=4).filter(lambda s: np.prod(s) < 2**24),
        st.sampled_from(_DTYPES),
    ),
    st.builds(
        np.zeros, st.lists(st.integers(0, 4), max_size=5), st.sampled_from([np.int32, np.float32, "datetime64[s]"])
    ),
    st.sampled_from(list(abi.OPS)),
)
_VALUE = st.one_of(_ANY, st.tuples(_ANY, _ANY), st.lists(_ANY, max_size=3))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_argument_crashes(noop, data):
    op = data.draw(st.sampled_from(list(abi.OP)))
    kernel = noop.kernel(op)
    named = arguments(op)
    replaced = data.draw(st.dictionaries(st.sampled_from(list(named)), _VALUE, max_size=4))
    rest = [data.draw(_VALUE) for _ in range(3)]
    with contextlib.suppress(MlaError):  # any other exception is a failure
        kernel.launch(*(named | replaced).values(), *rest)
    with contextlib.suppress(MlaError):
        kernel.can_run(named | replaced)
    with pytest.raises(TypeError, match="no argument or dimension"):
        kernel.can_run({f"{data.draw(st.text(max_size=4))}!": data.draw(_VALUE)})


def test_a_capsule_of_a_later_dlpack_is_refused(noop):
    """Its fields may lie elsewhere."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    named = arguments("decode")

    class Later:
        major = 2

        def __dlpack_device__(self):
            return named["q"].__dlpack_device__()

        def __dlpack__(self, **_):
            capsule = named["q"].__dlpack__(max_version=(1, 0))
            ctypes.c_uint32.from_address(pointer_of(capsule, b"dltensor_versioned")).value = self.major
            return capsule

    with pytest.raises(DTypeError, match="q: got Later with an unknown __dlpack__; accepts a tensor of DLPack 0 or 1"):
        launch(noop.kernel("decode"), named | {"q": Later()})
    Later.major = 1
    launch(noop.kernel("decode"), named | {"q": Later()})
