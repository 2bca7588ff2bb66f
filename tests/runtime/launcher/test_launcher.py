"""The launcher loads payloads and fills every field of every problem struct."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from mla_kernels import _launcher
from mla_kernels.errors import LEFT_BY_KERNELS, STATUS, InternalError, InvalidArgumentError, PayloadError

from codegen import abi
from tests.support.native.build import build
from tests.support.native.noop import SIZES, arguments, expected, launch

OPS = tuple(abi.OP)
CALLS = {
    "launch": lambda kernel: launch(kernel, arguments("gather_kv")),
    "plan": lambda kernel: kernel.plan(arguments("gather_kv"), torch.zeros(16, dtype=torch.uint8)),
    "prepare": lambda kernel: kernel.prepare(0),
}


def test_module_describes_the_abi():
    assert abi.abi_hash() == _launcher.ABI_HASH
    assert {op.name: tuple(argument.name for argument in (*op.tensors, *op.scalars)) for op in abi.OPS} == _launcher.OPS


def test_payload_describes_itself(noop):
    assert noop.payload.abi_hash == abi.abi_hash()
    assert noop.payload.version == "0.0.0"
    assert noop.payload.names[0] == "cpu_decode_qbf16_kvbf16_obf16_direct_noop"


def test_payload_with_another_abi_is_refused(tmp_path):
    with pytest.raises(PayloadError) as caught:
        _launcher.Payload(build(tmp_path, "noop", "WRONG_HASH"))
    for part in ("0000000000000000", abi.abi_hash(), "version 0.0.0", "install the same version"):
        assert part in str(caught.value)


def test_payload_without_a_function_is_refused(tmp_path):
    with pytest.raises(PayloadError, match="has no function mla_prepare"):
        _launcher.Payload(str(build(tmp_path, "noop", "NO_PREPARE")))


def test_missing_and_broken_files_are_refused(tmp_path):
    with pytest.raises(PayloadError, match="cannot be loaded"):
        _launcher.Payload(tmp_path / "absent.so")
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    with pytest.raises(PayloadError, match="cannot be loaded"):
        _launcher.Payload(broken)


def test_kernel_refuses_what_it_does_not_know(noop):
    name = noop.payload.names[0]
    dtypes = {"q_dtype": "bf16", "kv_dtype": "bf16", "out_dtype": "bf16"}
    with pytest.raises(PayloadError, match="has no variant nothing"):
        noop.payload.kernel("nothing", dtypes, {}, "cpu")
    with pytest.raises(KeyError, match="kv_dtype"):
        noop.payload.kernel(name, {"q_dtype": "bf16"}, {}, "cpu")
    with pytest.raises(ValueError, match="no cache has kv_dtype 'int4'"):
        noop.payload.kernel(name, dtypes | {"kv_dtype": "int4"}, {}, "cpu")
    with pytest.raises(ValueError, match="no cache has kv_dtype 'bf16', d_qk 576 and d_v 256"):
        noop.payload.kernel(name, dtypes | {"d_v": 256}, {}, "cpu")
    with pytest.raises(ValueError, match="no dimension or integer 'topk'"):
        noop.payload.kernel(name, dtypes, {"topk": (1, 2, 1)}, "cpu")
    with pytest.raises(ValueError, match="no range"):
        noop.payload.kernel(name, dtypes, {"batch": (3, 2, 1)}, "cpu")
    with pytest.raises(ValueError, match="no range"):
        noop.payload.kernel(name, dtypes, {"batch": (1, 2, 0)}, "cpu")
    with pytest.raises(ValueError, match="'cpu' or 'cuda'"):
        noop.payload.kernel(name, dtypes, {}, "tpu")
    with pytest.raises(TypeError):
        _launcher.Kernel()


@pytest.mark.parametrize("op", OPS)
def test_every_field(noop, op):
    named = arguments(op)
    launch(noop.kernel(op), named)
    assert noop.fields(op) == expected(op, named)


@pytest.mark.parametrize("op", OPS)
def test_absent_optional_tensors_are_null(noop, op):
    named = arguments(op)
    for tensor in abi.OP[op].tensors:
        if tensor.optional:
            named[tensor.name] = None
    launch(noop.kernel(op), named)
    assert noop.fields(op) == expected(op, named)


@pytest.mark.parametrize("op", [op.name for op in abi.OPS if any(tensor.row == "mla" for tensor in op.tensors)])
def test_pairs_of_latent_and_rope(noop, op):
    named = arguments(op)
    for tensor in abi.OP[op].tensors:
        if tensor.row == "mla":
            whole = named[tensor.name]
            named[tensor.name] = (whole[..., :512].contiguous(), torch.cat([whole] * 2, -1)[..., 512:576])
    launch(noop.kernel(op), named)
    assert noop.fields(op) == expected(op, named)


@pytest.mark.parametrize("op", ["decode", "sparse_decode", "store_kv", "gather_kv"])
def test_byte_rows_have_no_rope_view(noop, op):
    named = arguments(op, kv_dtype="fp8_ds_mla")
    launch(noop.kernel(op, kv_dtype="fp8_ds_mla"), named)
    assert noop.fields(op) == expected(op, named, byte_rows=True)


def test_a_second_cache_has_rows_of_its_own_format(noop):
    formats = {"kv_dtype": "fp8_ds_mla", "extra_kv_dtype": "nvfp4_ds_mla"}
    named, kernel = arguments("sparse_decode", **formats), noop.kernel("sparse_decode", **formats)
    assert [named[name].shape[-1] for name in ("kv_cache", "extra_kv_cache")] == [656, 352]
    launch(kernel, named)
    assert noop.fields("sparse_decode") == expected("sparse_decode", named, byte_rows=True)
    with pytest.raises(InvalidArgumentError, match=r"extra_kv_cache: got shape .*656.*; accepts .*352"):
        launch(kernel, named | {"extra_kv_cache": torch.zeros(2, 9, 656, dtype=torch.uint8)})
    with pytest.raises(ValueError, match="no cache has kv_dtype 'fp4_ds_v41', d_qk 576 and d_v 512"):
        noop.kernel("sparse_decode", **formats | {"extra_kv_dtype": "fp4_ds_v41"})


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint8])
def test_e4m3_is_also_bytes(noop, dtype):
    named = arguments("decode", kv_dtype="e4m3")
    named["kv_cache"] = named["kv_cache"].view(dtype)
    launch(noop.kernel("decode", kv_dtype="e4m3"), named)
    assert noop.fields("decode") == expected("decode", named)


def test_numpy_arrays(noop):
    named = arguments("decode", q_dtype="fp32", kv_dtype="fp16", out_dtype="fp32")
    kernel = noop.kernel("decode", q_dtype="fp32", kv_dtype="fp16", out_dtype="fp32")
    arrays = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in named.items()}
    arrays["seq_lens"].flags.writeable = False
    launch(kernel, arrays)
    assert noop.fields("decode") == expected("decode", named)


def test_parameters_and_tensors_that_require_grad(noop):
    named = arguments("decode")
    named["q"] = torch.nn.Parameter(named["q"])
    named["kv_cache"] = named["kv_cache"].clone().requires_grad_()
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            launch(noop.kernel("decode"), named)
    assert noop.fields("decode") == expected("decode", named)


def test_problem_by_name(noop):
    kernel = noop.kernel("decode")
    noop.expect(plan=96, workspace=1 << 40)
    named = arguments("decode")
    assert kernel.workspace_size(named) == 1 << 40
    assert kernel.plan_size({"batch": 3}) == 96
    kernel.can_run({"q": named["q"], "num_pages": 7, "softmax_scale": 0.25, "causal": None, "lse": None})
    fields = noop.fields("decode")
    assert fields["q_latent"] == named["q"].data_ptr()
    assert (fields["batch"], fields["num_heads"], fields["num_pages"], fields["table_width"]) == (3, 5, 7, 0)
    assert fields["num_requests"] == 3, "without bounds, requests are the batch"
    scalars = {scalar.name: scalar.default for scalar in abi.OP["decode"].scalars} | {"softmax_scale": 0.25}
    assert {name: fields[name] for name in scalars} == scalars
    with pytest.raises(InvalidArgumentError, match=r"q: got batch = 3; accepts 4, as batch has"):
        kernel.can_run({"batch": 4, "q": named["q"]})
    with pytest.raises(TypeError, match="no argument or dimension 'topk'"):
        kernel.can_run({"topk": 4})
    with pytest.raises(InvalidArgumentError, match="batch: got str"):
        kernel.can_run({"batch": "4"})
    with pytest.raises(InvalidArgumentError, match="num_pages: got -1"):
        kernel.can_run({"num_pages": -1})


def test_plan_writes_into_out(noop):
    noop.expect(plan=32)
    out = torch.zeros(4, dtype=torch.int64)
    noop.kernel("decode").plan({"seq_lens": torch.ones(3, dtype=torch.int32), "max_splits": 4}, out=out)
    assert (noop.record.plan, noop.record.plan_bytes) == (out.data_ptr(), 32)
    assert noop.fields("decode")["max_splits"] == 4
    with pytest.raises(STATUS["workspace"], match="out: got 24 bytes; accepts at least 32 bytes"):
        noop.kernel("decode").plan({}, out[:3])


def test_plan_and_workspace_reach_the_payload(noop):
    noop.expect(plan=16, workspace=60)
    plan, workspace = torch.zeros(16, dtype=torch.uint8), np.zeros((3, 5), np.float32)
    launch(noop.kernel("decode"), arguments("decode"), plan, workspace)
    record = noop.record
    assert (record.plan, record.plan_bytes) == (plan.data_ptr(), 16)
    assert (record.workspace, record.workspace_bytes) == (workspace.ctypes.data, 60)
    assert record.stream is None


def test_prepare(noop):
    noop.kernel("gather_kv").prepare(3)
    assert noop.fields("gather_kv")["device"] == 3
    with pytest.raises(STATUS["range"], match="device: got -1"):
        noop.kernel("gather_kv").prepare(-1)


def test_batches_without_requests(noop, monkeypatch):
    monkeypatch.setitem(SIZES, "batch", 0)
    named = arguments("decode")
    launch(noop.kernel("decode"), named)
    fields = noop.fields("decode")
    assert fields["batch"] == 0
    assert fields["num_pages"] == 7


def test_an_empty_optional_tensor_is_not_absent(noop):
    named = arguments("decode") | {"block_table": torch.zeros(3, 0, dtype=torch.int32)}
    launch(noop.kernel("decode"), named)
    assert noop.fields("decode")["block_table"] != 0
    assert noop.fields("decode")["table_width"] == 0


@pytest.mark.parametrize(("status", "name"), list(enumerate(abi.STATUS))[1:])
def test_payload_errors_become_their_class(noop, status, name):
    kernel = noop.kernel("decode")
    named = arguments("decode")
    noop.expect(status=status)
    for call in (
        lambda: launch(kernel, named),
        lambda: kernel.can_run(named),
        lambda: kernel.plan(named, None),
        lambda: kernel.prepare(0),
    ):
        with pytest.raises(STATUS[name]) as caught:
            call()
        assert all(text in str(caught.value) for text in ("seq_lens[3]", "5000", "0 to 4096"))


@pytest.mark.parametrize("code", sorted(LEFT_BY_KERNELS))
def test_errors_that_an_earlier_kernel_left_say_so(noop, code):
    answered = f"{code}: the driver's words"
    noop.expect(status=list(abi.STATUS).index("internal"), error=f"launch of attention\n{answered}\nsuccess")
    with pytest.raises(InternalError) as caught:
        launch(noop.kernel("decode"), arguments("decode"))
    said = str(caught.value)
    assert said.startswith(f"launch of attention: CUDA answered {answered}. ")
    assert "an earlier kernel of this process" in said
    assert "CUDA_LAUNCH_BLOCKING=1" in said
    assert "compute-sanitizer" in said
    assert "bug" not in said


@pytest.mark.parametrize("answered", ["cudaErrorInvalidValue: invalid argument", "std::bad_alloc"])
def test_other_internal_errors_are_ours(noop, answered):
    noop.expect(status=list(abi.STATUS).index("internal"), error=f"kernel\n{answered}\nsuccess")
    with pytest.raises(InternalError) as caught:
        launch(noop.kernel("decode"), arguments("decode"))
    assert str(caught.value) == f"kernel: {answered}: success (this is a bug: please report it)"


def test_errors_before_classes_are_registered(noop_library):
    script = f"""
import pytest
from mla_kernels import _launcher
with pytest.raises(ImportError, match="absent.so cannot be loaded"):
    _launcher.Payload("absent.so")
kernel = _launcher.Payload({str(noop_library)!r}).kernel("cpu_to_global_indices", {{}}, {{}}, "cpu")
with pytest.raises(ValueError, match="req_id: got list; accepts a tensor with __dlpack__"):
    kernel.launch([], None, None, None, 1, None, None, None)
with pytest.raises(KeyError):
    _launcher.set_errors({{}})
"""
    path = str(Path(_launcher.__file__).parents[1])
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.parametrize("call", CALLS)
def test_other_threads_of_python_run_meanwhile(noop, call):
    """The call ends only after a thread of Python has answered, which it cannot do without the interpreter's lock."""
    told, told_by = os.pipe()
    awaited, answer = os.pipe()

    def answer_once() -> None:
        os.read(told, 1)
        os.write(answer, b"x")

    thread = threading.Thread(target=answer_once)
    thread.start()
    try:
        noop.meet(told_by, awaited)
        CALLS[call](noop.kernel("gather_kv"))
    finally:
        os.write(told_by, b"x")
        thread.join()
        for descriptor in (told, told_by, awaited, answer):
            os.close(descriptor)
