"""What a call of dense decode on the sm90 payload may leave out, what it refuses, and arrays of other frameworks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import InvalidArgumentError

from tests.gpu.support.availability import refuse
from tests.gpu.support.sm90 import each
from tests.gpu.support.tensors import current_stream
from tests.support import memory
from tests.support.compare import assert_same_bytes
from tests.support.problems import Decode
from tests.support.rows import Row


@each
def test_lse_may_be_left_out(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(3000, 20))
    inputs = problem.tensors()
    want, _ = problem.launch(inputs)
    out, lse = problem.launch(inputs, lse=False)
    assert lse is None
    assert_same_bytes("out", out, want)


@each
def test_one_call_is_lookup_plan_and_launch(variant: Row) -> None:
    problem = Decode(variant.name, q_len=min(2, variant.most("q_len")), lengths=(3000, 20))
    out, lse = mla.decode(**problem.tensors(), **problem.scalars(), **problem.options)
    problem.compare(out, lse, *problem.expected())


@each
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"q_scale": 0.5}, "q_scale"),
        ({"softmax_scale": float("nan")}, "softmax_scale"),
        ({"workspace": torch.empty(16, dtype=torch.uint8)}, "workspace"),
    ],
)
def test_refusals_before_the_launch(variant: Row, change: dict[str, Any], says: str) -> None:
    problem = Decode(variant.name, lengths=(3000, 20))
    inputs = problem.tensors()
    out = torch.full((2, 1, 16, variant.form.d_v), 7, dtype=memory.DTYPES[variant.out_dtype], device="cuda")
    change = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in change.items()}
    with pytest.raises(InvalidArgumentError, match=says):
        problem.kernel()(**{**inputs, **problem.scalars(), **change}, out=out)
    assert bool((out == 7).all())


@each
def test_caches_that_16_bytes_do_not_divide(variant: Row) -> None:
    problem = Decode(variant.name)
    inputs = problem.tensors()
    shape = inputs["kv_cache"].shape
    inputs["kv_cache"] = torch.zeros(shape[0], shape[1], 580, dtype=inputs["kv_cache"].dtype, device="cuda")[..., 1:577]
    with pytest.raises(InvalidArgumentError, match="kv_cache"):
        problem.launch(inputs)


def test_cupy_and_jax_arrays(cupy: Any) -> None:
    """Launches leave the current device as it is; where there are several, starting JAX may change it."""
    device = torch.cuda.current_device()
    problem = Decode("sm90a_decode_qfp16_kvfp16_ofp16_tma_rows_m64", lengths=(300, 20))
    inputs = problem.tensors()
    want_out, want_lse = problem.launch(inputs)
    arrays = {name: cupy.from_dlpack(tensor) for name, tensor in inputs.items()}
    out, lse = problem.kernel()(**arrays, **problem.scalars(), stream=current_stream())
    assert_same_bytes("out", torch.from_dlpack(out), want_out)
    assert_same_bytes("lse", torch.from_dlpack(lse), want_lse)
    assert torch.cuda.current_device() == device
    if find_spec("jax") is None:
        refuse("no JAX")
    import jax

    jax.devices()
    torch.cuda.set_device(device)  # torch exports tensors of the current device only
    arrays = {name: jax.dlpack.from_dlpack(tensor) for name, tensor in inputs.items()}
    kernel = problem.kernel()
    own = {"out": torch.empty_like(want_out), "lse": torch.empty_like(want_lse)}
    own["workspace"] = torch.empty(kernel.workspace_size(**inputs), dtype=torch.uint8, device="cuda")
    plan = kernel.plan(inputs["seq_lens"])
    kernel(**arrays, **problem.scalars(), **own, plan=plan, stream=current_stream())
    assert torch.cuda.current_device() == device
    assert_same_bytes("out", own["out"], want_out)
