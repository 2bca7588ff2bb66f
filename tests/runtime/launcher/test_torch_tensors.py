"""What DLPack does not tell of a torch tensor is refused by name: a negative or conjugate bit, and a gradient."""

from __future__ import annotations

import gc

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import DTypeError, UnsupportedError

from codegen import abi
from tests.runtime.small_decode import Decode
from tests.support.native.noop import arguments, expected, launch

NEGATIVE = r"got a tensor with its negative bit set; accepts a tensor without it; call resolve_neg\(\)"
GRADIENT = "got a tensor that requires a gradient; accepts a tensor that requires none, because .* no backward pass"


class Subclass(torch.Tensor):
    pass


def negated(tensor: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(tensor)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["q", "kv_cache"])
def test_the_negative_bit_is_refused(name, dtype):
    problem = Decode(dtype)
    changed = {name: negated(getattr(problem, name))}
    kernel = mla.lookup(op="decode", arch="cpu", q_dtype=dtype)
    for call in (problem.call, lambda **changes: kernel(**problem.arguments(**changes))):
        with pytest.raises(UnsupportedError, match=f"{name}: {NEGATIVE}"):
            call(**changed)
    with pytest.raises(UnsupportedError, match=f"{name}: {NEGATIVE}"):
        kernel.can_run(**problem.arguments(**changed))
    resolved = problem.call(**{name: changed[name].resolve_neg()})
    assert torch.equal(resolved[0], problem.call(**{name: -getattr(problem, name)})[0])


def test_the_negative_bit_of_one_part_and_of_a_subclass(problem):
    latent, rope = problem.q[..., :512], problem.q[..., 512:]
    with pytest.raises(UnsupportedError, match=rf"q\[1\]: {NEGATIVE}"):
        problem.call(q=(latent, negated(rope)))
    with pytest.raises(UnsupportedError, match=f"q: {NEGATIVE}"):
        problem.call(q=negated(problem.q).as_subclass(Subclass))


@pytest.mark.parametrize(("op", "name"), [(op.name, tensor.name) for op in abi.OPS for tensor in op.tensors])
def test_the_negative_bit_of_every_tensor(noop, op, name):
    """Of integers, bytes and results too; a subclass is exchanged by a capsule, and not by functions in C."""
    for kv_dtype in ("bf16", "e4m3", "fp8_ds_mla"):
        kernel, named = noop.kernel(op, kv_dtype=kv_dtype), arguments(op, kv_dtype=kv_dtype)
        if named[name].dtype == torch.float8_e4m3fn:
            named[name] = named[name].view(torch.uint8)
        for tensor in (negated(named[name]), negated(named[name]).as_subclass(Subclass)):
            with pytest.raises(UnsupportedError, match=f"{name}: {NEGATIVE}"):
                launch(kernel, named | {name: tensor})
            with pytest.raises(UnsupportedError, match=f"{name}: {NEGATIVE}"):
                kernel.can_run(named | {name: tensor})
    assert noop.record.variant == -1


def test_a_tensor_at_the_address_of_another_is_asked_again(problem):
    plain = problem.q
    for _ in range(64):
        view = plain.view(plain.shape)
        problem.call(q=view)
        del view
        gc.collect(0)
        with pytest.raises(UnsupportedError, match=NEGATIVE):
            problem.call(q=negated(plain))


def test_the_conjugate_bit_is_refused():
    problem = Decode(torch.float32)
    for lazy in (problem.q.to(torch.complex64).conj(), problem.q.to(torch.complex64).conj().as_subclass(Subclass)):
        with pytest.raises(DTypeError, match="q: got complex64; accepts float32, float16, bfloat16, float8_e4m3fn"):
            problem.call(q=lazy)
    imaginary = problem.q.to(torch.complex64).conj().imag
    assert imaginary.is_neg()
    with pytest.raises(UnsupportedError, match=f"q: {NEGATIVE}"):
        problem.call(q=imaginary)


@pytest.mark.parametrize("name", ["q", "kv_cache", "out", "lse"])
def test_a_gradient_is_refused_only_while_gradients_are_recorded(noop, name):
    named = arguments("decode")
    for learned in (torch.nn.Parameter(named[name]), named[name].clone().requires_grad_()):
        for tensor in (learned, learned.as_subclass(Subclass)):
            with pytest.raises(UnsupportedError, match=f"{name}: {GRADIENT}"):
                launch(noop.kernel("decode"), named | {name: tensor})
            for off in (torch.no_grad(), torch.inference_mode()):
                with off:
                    launch(noop.kernel("decode"), named | {name: tensor})
                assert noop.fields("decode") == expected("decode", named | {name: tensor})
        launch(noop.kernel("decode"), named | {name: learned.detach()})


def test_a_learnable_sink(problem):
    sink = torch.nn.Parameter(torch.zeros(4))
    chosen = {"q": problem.q, "kv_cache": problem.kv_cache, "softmax_scale": 0.1}
    chosen["indices"] = torch.zeros(3, 1, 8, dtype=torch.int32)
    with torch.inference_mode():
        out, _ = mla.sparse_decode(**chosen, attn_sink=sink)
        assert torch.equal(out, mla.sparse_decode(**chosen, attn_sink=sink.detach())[0])
    with pytest.raises(UnsupportedError, match=f"attn_sink: {GRADIENT}"):
        mla.sparse_decode(**chosen, attn_sink=sink)
