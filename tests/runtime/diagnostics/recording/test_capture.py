"""Recording changes no result and no error, costs nothing while it is off, and ends when it was told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import mla_kernels as mla
import numpy as np
import pytest
import torch
from mla_kernels.diagnostics import record
from mla_kernels.diagnostics.recording import call as calls
from mla_kernels.diagnostics.recording import capture, contents
from mla_kernels.errors import DTypeError, InternalError, MlaError, UnsupportedError, ValueRangeError
from mla_kernels.kernels.ops import KERNELS

from tests.runtime.diagnostics.recording.every_op import decode, merge_states
from tests.runtime.small_decode import SCALE, Decode

OWN = {op: (kind.launch, kind.__call__) for op, kind in KERNELS.items()}


def launches():
    return {op: (kind.launch, kind.__call__) for op, kind in KERNELS.items()}


def test_off_a_launch_is_the_kernels_own(tmp_path):
    assert launches() == OWN
    with record(tmp_path):
        assert not set(launches().values()) & set(OWN.values())
    assert launches() == OWN


def test_it_ends_with_the_last_call_that_was_asked_for(tmp_path):
    with record(tmp_path, calls=2) as files:
        decode()
        decode()
        assert launches() == OWN
        decode()
    assert len(files) == 2
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_results_are_the_same_objects_and_the_same_bits(tmp_path):
    out = torch.empty(3, 1, 4, 512, dtype=torch.bfloat16)
    want, _ = Decode().call()
    with record(tmp_path):
        got, lse = Decode().call(out=out)
    assert got is out
    assert torch.equal(got, want)
    assert lse is not None


def test_kernels_from_lookup_plans_and_numpy_are_recorded(tmp_path):
    small = Decode(torch.float32)
    kernel = mla.lookup(op="decode", q_dtype="fp32", arch="cpu", num_heads=4, q_len=1)
    plan = kernel.plan(small.seq_lens, max_splits=2)
    with record(tmp_path) as files:
        kernel(**vars(small), plan=plan, softmax_scale=SCALE)
        kernel.launch(**{name: value.numpy() for name, value in vars(small).items()}, softmax_scale=np.float64(SCALE))
    first, second = map(calls.load, files)
    assert first.planned == {"max_splits": 2, "batch_invariant": False, "max_q_len": 0}
    assert second.planned == {}
    assert torch.equal(first.inputs["q"], second.inputs["q"])
    assert torch.equal(first.outputs["out"], second.outputs["out"])


@pytest.mark.parametrize("array", ["torch", "numpy"])
def test_the_default_device_of_torch_does_not_matter(tmp_path, array):
    """A recording is made on the host; here the default is a device without memory."""
    cache, slots = torch.randn(8, 16, 576), torch.arange(5, dtype=torch.int32)
    small = Decode(torch.float32)
    kernel = mla.lookup(op="gather_kv", kv_dtype="fp32", out_dtype="fp32", arch="cpu")
    given = (cache, slots) if array == "torch" else (cache.numpy(), slots.numpy())
    with torch.device("meta"), record(tmp_path) as files:
        small.call()
        kernel.launch(*given)
    dense, gathered = map(calls.load, files)
    assert torch.equal(dense.inputs["q"], small.q)
    assert torch.equal(gathered.outputs["out"], cache.flatten(0, 1)[:5])


def test_a_compiled_graph_is_recorded(tmp_path):
    op = torch.ops.mla_kernels.merge_states if hasattr(torch.ops.mla_kernels, "merge_states") else None
    from mla_kernels.api import torch_ops

    op = op or torch.ops.mla_kernels.merge_states
    with record(tmp_path) as files:
        op(torch.ones(2, 1, 4, 8), torch.zeros(2, 1, 4), None, None)
    assert torch_ops
    assert calls.load(files[0]).op == "merge_states"


def test_the_switch_for_batch_invariance_is_recorded(tmp_path):
    with record(tmp_path) as files:
        decode()
        with mla.batch_invariant():
            decode()
    assert [calls.load(file).invariant for file in files] == [False, True]


def test_only_the_ops_that_were_asked_for(tmp_path):
    with record(tmp_path, ops=["merge_states"]) as files:
        decode()
        merge_states()
    assert [calls.load(file).op for file in files] == ["merge_states"]


def test_one_within_another(tmp_path):
    with record(tmp_path / "outer") as outer:
        with record(tmp_path / "inner", calls=1) as inner:
            decode()
            decode()
        decode()
    assert (len(outer), len(inner)) == (2, 1)
    assert launches() == OWN


def test_an_argument_that_is_refused_is_refused_in_the_same_words(tmp_path, recwarn):
    lengths = Decode().seq_lens
    for changes in (
        {"seq_lens": lengths.long()},
        {"seq_lens": lengths + 99},
        {"kv_cache": None},
        {"softmax_scale": "x"},
    ):
        with pytest.raises(Exception) as want:  # noqa: PT011
            Decode().call(**changes)
        with record(tmp_path, calls=1) as files, pytest.raises(type(want.value)) as got:
            Decode().call(**changes)
        assert str(got.value) == str(want.value)
        assert files == []
    with record(tmp_path, calls=1) as files:
        with pytest.raises(DTypeError):
            Decode().call(seq_lens=lengths.long())
        decode()
    assert len(files) == 1
    assert not recwarn.list


def test_what_cannot_be_recorded_is_launched(tmp_path, monkeypatch):
    want, _ = Decode().call()

    def full(*_):
        raise MemoryError("no room")

    for name in ("before", "after"):
        with monkeypatch.context() as patch, record(tmp_path) as files:
            patch.setattr(contents, name, full)
            with pytest.warns(
                RuntimeWarning, match=r"decode_\d+_0001\.safetensors was not written: MemoryError: no room"
            ):
                got, _ = Decode().call()
        assert torch.equal(got, want)
        assert files == []


def test_a_folder_that_is_gone_does_not_end_a_call(tmp_path):
    folder = tmp_path / "gone"
    with record(folder) as files:
        folder.rmdir()
        with pytest.warns(RuntimeWarning, match="was not written"):
            decode()
    assert files == []


@pytest.mark.parametrize("error", [InternalError("broken"), RuntimeError("CUDA error: illegal memory access")])
def test_a_launch_that_fails_is_kept_without_results(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    with record(tmp_path) as files:
        monkeypatch.setattr(contents, "after", fail)
        with pytest.raises(type(error)):
            decode()
    call = calls.load(files[0])
    assert call.failure.startswith(f"{type(error).__name__}: {error.args[0]}")
    assert call.outputs == {}
    assert call.inputs["q"].shape == (3, 1, 4, 576)


class Capturing:
    """What torch.cuda answers while a stream is captured: the current one, or another."""

    def __init__(self, stream):
        self.captured, self.current = stream, 0
        self.ExternalStream = int

    def is_available(self):
        return True

    is_initialized = is_available

    def is_current_stream_capturing(self):
        return self.current == self.captured

    def stream(self, address):
        from contextlib import contextmanager

        @contextmanager
        def change():
            self.current = address
            yield
            self.current = 0

        return change()


@pytest.mark.parametrize(("captured", "given"), [(0, {}), (7, {"stream": 7})])
def test_a_capture_is_refused(tmp_path, monkeypatch, captured, given):
    monkeypatch.setattr(torch, "cuda", Capturing(captured))
    with record(tmp_path) as files, pytest.raises(UnsupportedError, match="record: got a launch that a CUDA graph"):
        Decode().call(**given)
    assert files == []


def test_a_stream_beside_a_capture_is_recorded(monkeypatch):
    monkeypatch.setattr(torch, "cuda", Capturing(7))
    capture.refuse_capture({"stream": 8})
    capture.refuse_capture({"stream": None})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"calls": 0}, "calls: got 0"), ({"ops": ["encode"]}, "ops: got 'encode'; accepts decode")],
)
def test_what_cannot_be_asked_for(tmp_path, options, message):
    with pytest.raises(ValueRangeError, match=message), record(tmp_path, **options):
        pass
    assert launches() == OWN


SCRIPT = """
import mla_kernels as mla, sys
print("torch" in sys.modules)
import torch
for _ in range(3):
    mla.merge_states(torch.ones(2, 1, 1, 8), torch.zeros(2, 1, 1))
"""


def environment(tmp_path, **variables):
    line = [sys.executable, "-c", SCRIPT]
    return subprocess.run(line, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def test_the_environment_switches_it_on(tmp_path):
    done = environment(tmp_path, MLA_KERNELS_RECORD=str(tmp_path / "new"), MLA_KERNELS_RECORD_CALLS="2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    files = sorted((tmp_path / "new").iterdir())
    assert [calls.load(file).op for file in files] == ["merge_states"] * 2
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o600"}


def test_without_torch_the_import_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(capture, "find_spec", lambda module: None)
    monkeypatch.setenv("MLA_KERNELS_RECORD", str(tmp_path))
    with pytest.raises(MlaError, match=r"this needs torch: pip install 'mla-kernels\[torch\]'"):
        capture.from_environment()


def test_a_number_of_calls_that_is_none(tmp_path):
    done = environment(tmp_path, MLA_KERNELS_RECORD=str(tmp_path), MLA_KERNELS_RECORD_CALLS="all")
    assert done.returncode == 1
    assert "MLA_KERNELS_RECORD_CALLS: got 'all'; accepts a number of calls" in done.stderr


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    done = environment(tmp_path, MLA_KERNELS_RECORD=str(tmp_path / "file"))
    assert done.returncode == 1
    assert "MLA_KERNELS_RECORD: got " in done.stderr
    assert "accepts a folder that exists or can be made: File exists" in done.stderr


def test_a_file_says_what_ran_it(tmp_path):
    with record(tmp_path) as files:
        decode()
    told = calls.load(files[0]).info
    assert told["version"] == mla.__version__
    assert len(told["library_sha256"]) == 64
    assert told["payload"] == "cpu"
    json.dumps(told)
