"""Whatever a kernel does not accept is refused before the payload is called, naming the argument."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mla_kernels.errors import (
    AlignmentError,
    DeviceError,
    DTypeError,
    ShapeError,
    StrideError,
    UnsupportedError,
    ValueRangeError,
    WorkspaceError,
)

from tests.support.native.noop import arguments, launch

BF16, INT32 = torch.bfloat16, torch.int32


@pytest.fixture(autouse=True)
def untouched(noop):
    """No refused call may reach the payload."""
    yield
    assert noop.record.variant == -1


def zeros(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


TENSORS = [
    ("q", [1.0], DTypeError, "q: got list; accepts a tensor with __dlpack__"),
    ("q", None, DTypeError, r"q: got None; accepts a tensor of bfloat16, \[batch, q_len, num_heads, 576\], or a pair"),
    ("q", torch.Tensor, DTypeError, "q: got _TensorMeta"),
    ("q", zeros(3, 2, 5, 576, dtype=torch.float16), DTypeError, "q: got float16; accepts bfloat16"),
    ("seq_lens", zeros(3, dtype=torch.int64), DTypeError, "seq_lens: got int64; accepts int32"),
    ("seq_lens", zeros(3, dtype=torch.bool), DTypeError, "seq_lens: got bool; accepts int32"),
    ("kv_cache", zeros(7, 4, 576, dtype=torch.complex64), DTypeError, "kv_cache: got complex64; accepts bfloat16"),
    ("kv_cache", zeros(7, 4, 576).to(torch.float8_e5m2), DTypeError, "kv_cache: got float8_e5m2"),
    ("q", torch.zeros(3, 2, 5, 576, dtype=BF16, device="meta"), DeviceError, r"q: got Tensor \(Unknown device ty"),
    ("out", zeros(3, 2, 5, 512).to_sparse(), DTypeError, r"out: got Tensor \(Cannot access data pointer of T"),
    ("q", np.zeros((3, 2, 5, 576), object), DTypeError, r"q: got ndarray \(DLPack only supports signed"),
    ("q", zeros(2, 5, 576), ShapeError, r"q: got shape \[2, 5, 576\]; accepts \[batch, q_len, num_heads, 576\]"),
    ("q", zeros(3, 2, 5, 512), ShapeError, r"q: got shape \[3, 2, 5, 512\]"),
    ("q", (zeros(3, 2, 5, 512),), ShapeError, "q: got 1 tensors"),
    ("q", (zeros(3, 2, 5, 512), zeros(3, 2, 5, 512)), ShapeError, r"q\[1\]: got shape \[3, 2, 5, 512\]"),
    ("q", (zeros(3, 2, 5, 512), zeros(3, 2, 4, 64)), ShapeError, r"q\[1\]: got num_heads = 4; accepts 5, as q has"),
    ("q", (zeros(3, 2, 5, 512), None), DTypeError, r"q\[1\]: got NoneType"),
    ("out", zeros(3, 2, 4, 512), ShapeError, "out: got num_heads = 4; accepts 5, as q has"),
    ("lse", zeros(3, 2, 5, dtype=torch.float32), ShapeError, "lse: got num_heads = 2; accepts 5, as q has"),
    ("seq_lens", zeros(4, dtype=INT32), ShapeError, "seq_lens: got num_requests = 4; accepts 3, as block_table has"),
    ("seq_lens", torch.tensor(3, dtype=INT32), ShapeError, r"seq_lens: got shape \[\]; accepts \[num_requests\]"),
    ("kv_cache", zeros(7, 4, 1152)[..., ::2], StrideError, "kv_cache: got stride 2 along the last place; acc"),
    ("seq_lens", zeros(6, dtype=INT32)[::2], StrideError, "seq_lens: got stride 2 along num_requests; acc"),
    ("seq_lens", zeros(1, dtype=INT32).expand(3), StrideError, "seq_lens: got stride 0 along num_requests; acc"),
    ("block_table", zeros(6, 3, dtype=INT32).T, StrideError, "block_table: got stride 3 along table_width"),
    ("out", zeros(3, 2, 1, 512).expand(3, 2, 5, 512), StrideError, "out: got stride 0 along num_heads; acc"),
    ("lse", torch.zeros(1).expand(3, 5, 2), StrideError, "lse: got stride 0 along batch; accepts elements"),
    ("block_table", np.zeros((3, 6), np.int32)[::-1], StrideError, "block_table: got stride -6 along num_req"),
    ("seq_lens", np.zeros(13, np.uint8)[1:].view(np.int32), AlignmentError, "seq_lens: got an address 1 bytes past"),
    ("lse", read_only(np.zeros((3, 5, 2), np.float32)), UnsupportedError, "lse: got a read-only tensor; accepts a wr"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "error", "message"), TENSORS)
def test_tensors(noop, name, value, error, message):
    with pytest.raises(error, match=message) as caught:
        launch(noop.kernel("decode"), arguments("decode") | {name: value})
    assert caught.value.argument.split("[")[0] == name


def test_byte_rows(noop):
    kernel = noop.kernel("decode", kv_dtype="fp8_ds_mla")
    named = arguments("decode", kv_dtype="fp8_ds_mla")
    for value, error, message in (
        ((zeros(7, 4, 512), zeros(7, 4, 64)), DTypeError, "kv_cache: got tuple"),
        (named["kv_cache"][..., :576], ShapeError, r"kv_cache: got .*; accepts \[num_pages, page_size, 656\]$"),
        (named["kv_cache"].view(torch.int8), DTypeError, "kv_cache: got int8; accepts uint8"),
    ):
        with pytest.raises(error, match=message):
            launch(kernel, named | {"kv_cache": value})


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"num_heads": (128, 128, 1)}, "q: got num_heads = 5; accepts 128$"),
        ({"num_heads": (1, 4, 1)}, "q: got num_heads = 5; accepts 1 to 4$"),
        ({"num_heads": (4, 64, 4)}, "q: got num_heads = 5; accepts 4 to 64, multiples of 4$"),
        ({"page_size": (16, 2**63 - 1, 16)}, "kv_cache: got page_size = 4; accepts at least 16, multiples of 16$"),
        ({"q_len": (3, 2**63 - 1, 1)}, "q: got q_len = 2; accepts at least 3$"),
    ],
)
def test_limits(noop, limits, message):
    with pytest.raises(ShapeError, match=message):
        launch(noop.kernel("decode", limits), arguments("decode"))


def test_requests_are_the_batch_where_there_are_no_bounds(noop):
    given = {**arguments("decode"), "cu_seqlens_q": None}
    for name, value in (("block_table", zeros(4, 6, dtype=INT32)), ("seq_lens", zeros(4, dtype=INT32))):
        with pytest.raises(ShapeError, match=f"{name}: got batch = 4; accepts 3, as q has"):
            launch(noop.kernel("decode"), given | {name: value})


def test_limits_of_an_integer(noop):
    kernel = noop.kernel("to_global_indices", {"page_size": (64, 64, 1)})
    with pytest.raises(ValueRangeError, match="page_size: got 20; accepts 64"):
        launch(kernel, arguments("to_global_indices"))


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("softmax_scale", float("nan"), ValueRangeError, "softmax_scale: got nan; accepts a finite float32"),
        ("softmax_scale", float("-inf"), ValueRangeError, "softmax_scale: got -inf"),
        ("kv_scale", 1e300, ValueRangeError, r"kv_scale: got 1e\+300"),
        ("kv_scale", 10**400, ValueRangeError, "kv_scale: got 1000"),
        ("q_scale", None, DTypeError, "q_scale: got NoneType; accepts a Python float or int$"),
        ("q_scale", np.float32(1), DTypeError, "q_scale: got float32; accepts a Python float or int$"),
        ("q_scale", torch.tensor(1.0), DTypeError, "q_scale: got Tensor"),
        ("out_scale", "1", DTypeError, "out_scale: got str"),
        ("causal", 2, ValueRangeError, "causal: got 2; accepts True or False"),
        ("causal", 1.0, DTypeError, "causal: got float"),
        ("max_splits", -1, ValueRangeError, "max_splits: got -1; accepts an integer of at least 0"),
        ("max_splits", 2**63, ValueRangeError, "max_splits: got 9223372036854775808"),
        ("max_splits", True, DTypeError, "max_splits: got bool; accepts a Python int of at least 0"),
        ("max_splits", 1.5, DTypeError, "max_splits: got float; accepts a Python int of at least 0"),
    ],
)
def test_scalars(noop, name, value, error, message):
    with pytest.raises(error, match=message):
        launch(noop.kernel("decode"), arguments("decode") | {name: value})


@pytest.mark.parametrize("name", ["max_splits", "kv_scale"])
def test_a_number_that_python_does_not_write(noop, name):
    """Python refuses to write an int of more than 4,300 digits."""
    with pytest.raises(ValueRangeError, match=f"{name}: got a number of type int; accepts "):
        launch(noop.kernel("decode"), arguments("decode") | {name: 10**5000})


def test_a_page_needs_tokens(noop):
    with pytest.raises(ValueRangeError, match="page_size: got 0; accepts an integer of at least 1"):
        launch(noop.kernel("to_global_indices"), arguments("to_global_indices") | {"page_size": 0})


@pytest.mark.parametrize("count", [0, 18, 20])
def test_wrong_number_of_arguments(noop, count):
    with pytest.raises(TypeError, match=f"launch of decode takes 19 arguments, not {count}"):
        noop.kernel("decode").launch(*[None] * count)


@pytest.mark.parametrize(
    ("plan", "workspace", "error", "message"),
    [
        (zeros(0), zeros(64), WorkspaceError, "plan: got 0 bytes; accepts at least 32 bytes"),
        (zeros(15), zeros(64), WorkspaceError, "plan: got 30 bytes; accepts at least 32 bytes"),
        (zeros(15), None, WorkspaceError, "plan: got 30 bytes; accepts at least 32 bytes"),
        (None, zeros(63), WorkspaceError, "workspace: got 126 bytes; accepts at least 128 bytes"),
        (None, torch.zeros(127, dtype=torch.uint8), WorkspaceError, "workspace: got 127 bytes; accepts at least 128"),
        (torch.zeros(31, dtype=torch.uint8), None, WorkspaceError, "plan: got 31 bytes; accepts at least 32 bytes"),
        (zeros(16), zeros(0), WorkspaceError, "workspace: got 0 bytes; accepts at least 128 bytes"),
        (zeros(16), zeros(63), WorkspaceError, "workspace: got 126 bytes; accepts at least 128 bytes"),
        (zeros(16), zeros(8, 16)[:, :8], WorkspaceError, "workspace: got a tensor with gaps; accepts a contiguous"),
        (zeros(16), zeros(1).expand(64), WorkspaceError, "workspace: got a tensor with gaps"),
        (zeros(17)[1:], zeros(64), AlignmentError, "plan: got an address 2 bytes past a multiple of 16"),
        (zeros(16), read_only(np.zeros(128, np.uint8)), UnsupportedError, "workspace: got a read-only tensor"),
        (zeros(16), bytearray(128), DTypeError, "workspace: got bytearray; accepts a tensor with __dlpack__"),
        (torch.zeros(16, device="meta"), zeros(64), DeviceError, "plan: got Tensor"),
    ],
)
def test_buffers(noop, plan, workspace, error, message):
    noop.expect(plan=32, workspace=128)
    with pytest.raises(error, match=message):
        launch(noop.kernel("decode"), arguments("decode"), plan, workspace)


@pytest.mark.parametrize(
    ("plan", "workspace", "lacking"),
    [(None, None, (32, 128)), (zeros(16), None, (0, 128)), (None, zeros(64), (32, 0))],
)
def test_what_a_launch_lacks_is_returned(noop, plan, workspace, lacking):
    noop.expect(plan=32, workspace=128)
    assert launch(noop.kernel("decode"), arguments("decode"), plan, workspace) == lacking


def test_stream_must_be_a_handle(noop):
    with pytest.raises(DTypeError, match="stream: got str; accepts the address of a CUDA stream, such as"):
        noop.kernel("decode").launch(*arguments("decode").values(), None, None, "stream")
