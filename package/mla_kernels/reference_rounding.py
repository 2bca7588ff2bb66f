"""What a decode that multiplies in e4m3 rounds: its queries, and its weights before they meet the values."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from mla_kernels._types import ComputeDType
from mla_kernels.errors import ValueRangeError
from mla_kernels.scalars import quoted
from mla_kernels.tensors import DTypeLike, element_name

_LARGEST, _OF_ONE = 448.0, 256.0
"""The largest e4m3 number, and what a weight of 1 is rounded as."""
_MOST_EXPONENT = 126
"""Of the factor of a query, which a float32 kernel holds with its inverse."""


def rounds_to_e4m3(compute_dtype: DTypeLike | None) -> bool:
    """Whether ``compute_dtype`` asks for products in e4m3; None is ``exact``.

    Raises
    ------
    ValueRangeError
        It is neither.
    """
    name = "exact" if compute_dtype is None else element_name(compute_dtype)
    if not isinstance(name, str) or name not in get_args(ComputeDType):
        raise ValueRangeError("compute_dtype", quoted(compute_dtype), ", ".join(get_args(ComputeDType)))
    return name == "e4m3"


def rounded_queries(q: Tensor) -> Tensor:
    """Rows [..., d_qk] as float32, each rounded to e4m3 times a power of two.

    The power brings the greatest magnitude of a row into (224, 448]. A row of zeros keeps them, and an infinite element
    makes its row NaN.
    """
    rows = q.float()
    greatest = rows.abs().nan_to_num(nan=0.0, posinf=torch.inf).amax(-1, keepdim=True)
    exponent = torch.floor(torch.log2(_LARGEST / greatest.double())).clamp(max=_MOST_EXPONENT)
    factor = torch.exp2(exponent).float().where(greatest > 0, 1.0).where(greatest.isfinite(), torch.nan)
    return _rounded(rows * factor) / factor


def rounded_weights(logits: Tensor) -> Tensor:
    """The softmax of logits [num_heads, n]: weights are rounded relative to the largest, and their sum is not."""
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return _rounded(weights * _OF_ONE) / _OF_ONE / weights.sum(-1, keepdim=True)


def _rounded(values: Tensor) -> Tensor:
    """Values of at most 448, each the nearest of e4m3."""
    return values.float().to(torch.float8_e4m3fn).to(values.dtype)
