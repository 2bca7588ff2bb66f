"""to_global_indices: a launch between guard zones, and one over changing contents."""

from __future__ import annotations

import functools
from typing import Any

import mla_kernels as mla
import torch
from torch import Tensor

from tests.gpu.support.launches import Case
from tests.gpu.support.tensors import guarded, padded
from tests.support.global_indices import formula, problem
from tests.support.problems import unchanged


def kernel(arch: str) -> Any:
    """The kernel of an arch."""
    return mla.lookup(op="to_global_indices", arch=arch)


def convert(arch: str, *tensors: Tensor, page_size: int, pad: int = 16) -> Tensor:
    """Translate on the GPU between guard zones; the inputs stay as they are."""
    req_id, table, tokens = tensors
    inputs = req_id.cuda(), padded(table, pad), padded(tokens, pad)
    out = guarded(tuple(tokens.shape), "fp32", pad)
    with unchanged(*inputs):
        kernel(arch)(*inputs, page_size=page_size, out=out.view.view(torch.int32))
    out.assert_guards("out")
    return out.view.view(torch.int32).cpu()


def case(arch: str, device: str = "cuda") -> Case:
    """A translation of 40 tokens of 70 positions each."""

    def fresh(seed: int) -> tuple[Tensor, ...]:
        return problem(seed, tokens=40, topk=70, requests=4, width=9, page_size=48)

    inputs = tuple(tensor.to(device) for tensor in fresh(0))
    out = torch.empty(40, 70, dtype=torch.int32, device=device)
    run = functools.partial(kernel(arch), *inputs, page_size=48, out=out)
    return Case(inputs, fresh, run, out, functools.partial(formula, page_size=48))
