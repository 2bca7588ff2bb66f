"""merge_states beside the reference: states, their merge between guard zones, and a launch over changing contents."""

from __future__ import annotations

import functools
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels import reference
from mla_kernels.formats import LATENT
from torch import Tensor

from tests.gpu.support.launches import Case
from tests.gpu.support.tensors import guarded, padded
from tests.support import memory
from tests.support.compare import DENSE, LSE, SINGLE, SINGLE_LSE, assert_close, assert_same_bytes
from tests.support.problems import generator, random, unchanged

TYPES = [("fp32", "fp32"), ("fp32", "fp16"), ("fp32", "bf16"), ("fp16", "fp16"), ("bf16", "bf16")]
"""Every type of states, with every type that they can be merged into."""


def kernel(arch: str, in_dtype: str, out_dtype: str) -> Any:
    """The kernel of an arch for these types and any shape."""
    return mla.lookup(op="merge_states", arch=arch, in_dtype=in_dtype, out_dtype=out_dtype, schedule="rows")


def states(
    in_dtype: str, n: int, tokens: int, heads: int, *, dim: int = LATENT, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """``o`` and ``lse`` on the CPU."""
    source = generator(seed)
    o = random(source, n, tokens, heads, dim).to(memory.DTYPES[in_dtype])
    return o, random(source, n, tokens, heads, deviation=3.0)


def merge(
    arch: str, types: tuple[str, str], o: Tensor, lse: Tensor, counts: Tensor | None = None, *, pad: int = 16
) -> tuple[Tensor, Tensor]:
    """Merge between guard zones, with an LSE and without."""
    in_dtype, out_dtype = types
    inputs = padded(o, pad), padded(lse, pad), None if counts is None else counts.cuda()
    out, alone = (guarded(tuple(o.shape[1:]), out_dtype, pad) for _ in range(2))
    merged = guarded(tuple(lse.shape[1:]), "fp32", pad)
    run = kernel(arch, in_dtype, out_dtype)
    with unchanged(*(tensor for tensor in inputs if tensor is not None)):
        run(*inputs, out=out.view, out_lse=merged.view)
        run(*inputs, out=alone.view, out_lse=False)
    for name, guards in (("out", out), ("lse", merged), ("out without lse", alone)):
        guards.assert_guards(name)
    assert_same_bytes("out without lse", alone.view, out.view)
    return out.view.cpu(), merged.view.cpu()


def check(
    arch: str, types: tuple[str, str], o: Tensor, lse: Tensor, counts: Tensor | None = None, *, pad: int = 16
) -> None:
    """Merge, and compare with the reference in float64."""
    out, merged = merge(arch, types, o, lse, counts, pad=pad)
    known = None if counts is None else counts.clamp(0, len(o))
    want_out, want_lse = reference.merge_states(o, lse, known, dtype=torch.float64)
    single = types[1] == "fp32"
    assert_close("lse", merged, want_lse, SINGLE_LSE if single else LSE)
    assert_close("out", out, want_out, SINGLE if single else DENSE)


def case(arch: str, in_dtype: str, out_dtype: str, device: str = "cuda") -> Case:
    """A merge of 12 states of 7 tokens, of which counts leave some out."""

    def fresh(seed: int) -> tuple[Tensor, ...]:
        counts = torch.randint(-1, 15, (7,), generator=generator(seed)).int()
        return (*states(in_dtype, 12, 7, 4, dim=96, seed=seed), counts)

    def want(o: Tensor, lse: Tensor, counts: Tensor) -> Tensor:
        return merge(arch, (in_dtype, out_dtype), o, lse, counts)[0]

    inputs = tuple(tensor.to(device) for tensor in fresh(0))
    out = torch.empty(7, 4, 96, dtype=memory.DTYPES[out_dtype], device=device)
    run = functools.partial(kernel(arch, in_dtype, out_dtype), *inputs, out=out, out_lse=False)
    return Case(inputs, fresh, run, out, want)
