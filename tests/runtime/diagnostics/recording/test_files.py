"""A file may come from anybody: one that is cut off, damaged or made to harm is refused, by a typed error."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
import torch
from mla_kernels.diagnostics import record
from mla_kernels.diagnostics.cli import main
from mla_kernels.diagnostics.recording import call as calls
from mla_kernels.diagnostics.recording import tensor_file
from mla_kernels.errors import DeviceError, RecordError, UnsupportedError

from tests.runtime.diagnostics.recording.every_op import decode, store_kv


@pytest.fixture
def file(tmp_path):
    with record(tmp_path) as files:
        decode()
    return files[0]


def header_of(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def test_tensors_come_back(tmp_path):
    tensors = {
        name: torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in tensor_file.DTYPES.items() if name != "BOOL"
    }
    tensors |= {"BOOL": torch.tensor([True, False]), "none": torch.empty(0, 7), "one": torch.tensor(2.5)}
    tensor_file.write(tmp_path / "a", tensors, {"note": "ü"})
    found, metadata = tensor_file.read(tmp_path / "a")
    assert metadata == {"note": "ü"}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found[name].float(), tensor.float())
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_the_file_is_of_the_format_safetensors(file):
    header, data = header_of(file)
    assert header["__metadata__"]["format"] == "mla_kernels call"
    begin, end = header["input.q"]["data_offsets"]
    q = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.bfloat16).view(header["input.q"]["shape"])
    assert torch.equal(q, calls.load(file).inputs["q"])
    assert (len(file.read_bytes()) - len(data)) % 8 == 0


def test_a_type_that_the_format_lacks(tmp_path):
    with pytest.raises(UnsupportedError, match=r"x: got torch\.complex64"):
        tensor_file.write(tmp_path / "a", {"x": torch.ones(1, dtype=torch.complex64)}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_that_is_not_of_the_host(tmp_path):
    with pytest.raises(DeviceError, match=r"x: got a tensor on meta; accepts a tensor of the host"):
        tensor_file.write(tmp_path / "a", {"x": torch.ones(1, device="meta")}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"", b"", "not JSON"),
        (b"[]", b"", "not a JSON object"),
        (b"\xff\xfe", b"", "not JSON"),
        (b"[" * 100_000, b"", "not JSON"),
        (b'{"x": 1, "x": 2}', b"", "a key twice"),
        ({"__metadata__": {"a": 1}}, b"", "metadata are not strings"),
        ({"x": [1]}, b"", "does not have dtype"),
        ({"x": {**entry()["x"], "more": 1}}, b"1234", "does not have dtype"),
        (entry(dtype="I128"), b"1234", "is not of F64"),
        (entry(dtype=["F32"]), b"1234", "is not of F64"),
        (entry(shape=[-1]), b"1234", "shape or offsets"),
        (entry(shape=[True]), b"1234", "shape or offsets"),
        (entry(shape=[1.0]), b"1234", "shape or offsets"),
        (entry(shape=[1] * 9), b"1234", "shape or offsets"),
        (entry(shape=[1 << 39, 4]), b"1234", "shape or offsets"),
        (entry(shape=[0, 1 << 39, 1 << 39], offsets=(0, 0)), b"", "shape or offsets"),
        (entry(offsets=[0]), b"1234", "shape or offsets"),
        (entry(shape=[1 << 30], offsets=(0, 1 << 32)), b"1234", "said to be at 0 to 4294967296 of 4"),
        (entry(offsets=[4, 8]), b"12345678", "said to be at 4 to 8"),
        (entry(shape=[2]), b"1234", "of 8 bytes is said"),
        (entry(), b"12345", "tensors have 4 bytes, and the file has 5"),
        ({**entry(), "y": entry()["x"]}, b"1234", "said to be at 0 to 4"),
    ],
)
def test_what_a_header_must_not_say(tmp_path, header, data, message):
    write(tmp_path / "a", header, data)
    with pytest.raises(RecordError, match=message):
        tensor_file.read(tmp_path / "a")


@pytest.mark.parametrize("data", [b"", b"1234", b"\xff" * 8, (1 << 60).to_bytes(8, "little") + b"{}"])
def test_a_file_that_is_too_short_for_its_header(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(RecordError, match="states a header of"):
        tensor_file.read(tmp_path / "a")


def test_every_way_to_cut_a_file_off(file, capsys):
    data = file.read_bytes()
    for end in (*range(0, 64, 7), len(data) // 3, len(data) - 1):
        file.write_bytes(data[:end])
        with pytest.raises(RecordError):
            calls.load(file)
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().err.startswith("RecordError: ")
    assert main(["replay", str(file.with_name("absent"))]) == 1
    assert "cannot be read: No such file" in capsys.readouterr().err
    assert main(["replay", str(file.parent)]) == 1
    assert f"is a folder; give its files: {file.parent}/*.safetensors" in capsys.readouterr().err


def restated(path, change):
    """Write the file with another description of the call."""
    header, data = header_of(path)
    stated = json.loads(header["__metadata__"]["call"])
    change(stated, header)
    header["__metadata__"]["call"] = json.dumps(stated)
    write(path, header, data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stated, _: stated.update(op="encode"), "no op 'encode'"),
        (lambda stated, _: stated.update(op=[]), "op is not a string"),
        (lambda stated, _: stated.pop("strides"), "lacks a field"),
        (lambda stated, _: stated.update(more=1), "lacks a field"),
        (lambda stated, _: stated.update(invariant=1), "invariant is no flag"),
        (lambda stated, _: stated.update(baked=[1]), "baked is not an object"),
        (lambda stated, _: stated["numbers"].update(softmax_scale="1"), "softmax_scale is not what decode takes"),
        (lambda stated, _: stated["numbers"].update(causal=1), "causal is not what decode takes"),
        (lambda stated, _: stated["numbers"].update(stream=1), "no argument 'stream'"),
        (lambda stated, _: stated["numbers"].update(block_table=1), "a tensor and a number"),
        (lambda stated, _: stated["planned"].update(stream=1), "a plan has other numbers"),
        (lambda stated, _: stated["planned"].update(max_splits=1.5), "a plan has other numbers"),
        (lambda stated, _: stated["pool"].update(kv_cache=-1), "a pool has no size"),
        (lambda stated, _: stated["strides"].update({"input.q": ["1"]}), "strides are no integers"),
        (lambda stated, _: stated["baked"].update(q_dtype=[1]), "no name or number"),
        (lambda stated, _: stated.update(failure="lost"), "neither results nor a failure"),
        (lambda _, header: header.update({"input.x": header.pop("input.seq_lens")}), "no argument 'x'"),
        (lambda _, header: header.update({"x": header.pop("input.seq_lens")}), "seq_lens is not what decode takes"),
        (lambda _, header: header.update({"input.x.rope": header.pop("input.q")}), "a pair is alone"),
        (lambda _, header: header.update({"output.x": header.pop("output.lse")}), "a result is none of decode"),
        (lambda _, header: header["__metadata__"].update(version="2"), "version 2; this package reads 1"),
        (lambda _, header: header["__metadata__"].update(format="other"), "metadata do not say"),
    ],
)
def test_what_a_description_must_not_say(file, change, message):
    restated(file, change)
    with pytest.raises(RecordError, match=message):
        calls.load(file)


def test_a_cache_that_changed_its_shape(tmp_path):
    with record(tmp_path) as files:
        store_kv()
    call = calls.load(files[0])
    call.outputs["kv_cache"] = call.outputs["kv_cache"][:1]
    calls.save(call, files[0])
    with pytest.raises(RecordError, match="kv_cache has changed its shape"):
        calls.load(files[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda call: call.inputs.update(q=torch.randn(3, 1, 4, 500)),
        lambda call: call.inputs.update(q=torch.ones(3, 1, 4, 576).double()),
        lambda call: call.inputs.update(q=torch.tensor(1.0)),
        lambda call: call.inputs.update(kv_cache=torch.empty(0, 16, 576).bfloat16()),
        lambda call: call.inputs.update(block_table=torch.full((3, 3), 1 << 30).int()),
        lambda call: call.inputs.update(seq_lens=torch.full((3,), -5).int()),
        lambda call: call.inputs.update(softmax_scale=1e300),
        lambda call: call.outputs.update(out=torch.empty(1)),
        lambda call: call.outputs.update(out=(torch.empty(1), torch.empty(1))),
        lambda call: vars(call).update(arch="sm1"),
        lambda call: vars(call).update(
            variant="none", baked={"kv_dtype": "odd"}, arch="cpu", inputs={**call.inputs, "q": torch.ones(3)}
        ),
        lambda call: call.planned.update(max_splits=-1),
    ],
)
def test_arguments_that_a_launch_refuses(file, capsys, change):
    call = calls.load(file)
    change(call)
    calls.save(call, file)
    assert main(["replay", str(file)]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert str(file) in said


def test_strides_that_overlap_or_take_too_much_memory_are_not_used(file, capsys):
    for strides in ([1, 1, 1], [1 << 60, 576, 1], [-9216, 576, 1], [9216, 576], [0, 0, 0]):
        call = calls.load(file)
        call.strides["input.kv_cache"] = strides
        calls.save(call, file)
        status = main(["replay", str(file)])
        assert (status, "AlignmentError" in capsys.readouterr().err) == (0, False), strides


@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_flip(file, capsys, seed):
    """A byte of the header changes: the file is refused, or it still describes a call."""
    source, data = random.Random(seed), file.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    for _ in range(60):
        damaged = bytearray(data)
        damaged[source.randrange(size)] = source.randrange(256)
        file.write_bytes(damaged)
        with contextlib.suppress(RecordError):
            calls.load(file)
