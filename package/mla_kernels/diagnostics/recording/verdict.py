"""What is wrong with a result, beside the reference's: which rows and columns differ, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from mla_kernels.diagnostics.recording.call import parts
from mla_kernels.payloads.registry import Variant

_SIXTEEN, _SINGLE, _QUANTISED = 2.0**-5, 2.0**-12, 0.1
"""What an element may be off by, of the larger of its own size and the root mean square of its row: what a row loses by
cancelling is no error. A 16-bit kernel rounds weights and outputs to 2^-9 of themselves, float32 is off by some 2^-15
where logits are large, and where queries or products are e4m3, so are the weights, each off by up to 2^-4. What is
broken is off by far more."""
_LOGARITHM, _ROUNDED_KEYS = (1e-4, 2.0**-13), (4e-3, 2.0**-10)
"""What a logarithm may be off by, absolutely and relatively. Logits are sums in float32 of exact products, but for
formats whose rows have scales: a 16-bit kernel rounds code times scale."""
_UNSCALED = ("fp32", "fp16", "bf16", "e4m3")
_EXACT = ("store_kv", "gather_kv", "to_global_indices")
"""Ops whose results have one right value, bit by bit."""
_LEAST = 1e-7
_SHOWN = 8


@dataclass(frozen=True)
class Difference:
    """How one tensor differs from the reference's.

    Attributes
    ----------
    name : str
    wrong, elements : int
        Elements that are off by more than is allowed, and all.
    rows : list
        The first rows, by all indices but the last, that have some; ``wrong_rows`` of ``all_rows``.
    columns : tuple of int
        The first and the last column that has one.
    error : float
        The largest error; ``at`` which element, with what was ``got``, ``wanted`` and ``allowed`` there.
    """

    name: str
    wrong: int
    elements: int
    wrong_rows: int
    all_rows: int
    rows: list[list[int]] = field(default_factory=list)
    columns: tuple[int, int] = (0, 0)
    error: float = 0.0
    at: list[int] = field(default_factory=list)
    got: float = 0.0
    wanted: float = 0.0
    allowed: float = 0.0

    def __str__(self) -> str:
        worst = f"{self.error:.2e} at {self.at}: {self.got:.6g}, the reference has {self.wanted:.6g}"
        if not self.wrong:
            return f"{self.name}: right, " + (f"largest error {worst}" if self.error else "equal to the reference")
        first, last = self.columns
        shown = ", ".join(map(str, self.rows)) + (", ..." if self.wrong_rows > len(self.rows) else "")
        return (
            f"{self.name}: WRONG, {self.wrong} of {self.elements} elements in {self.wrong_rows} of {self.all_rows} "
            f"rows, columns {first} to {last}, rows {shown}; largest error {worst}, allowed {self.allowed:.2e}"
        )

    def as_dict(self) -> dict[str, Any]:
        """In plain types, for JSON, which has no infinity and no NaN."""
        told = asdict(self)
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in told.items()
        }


def differences(variant: Variant, results: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Difference]:
    """Compare each result of a variant with the reference's."""
    for name, value in results.items():
        if name not in wanted:
            continue
        other, right = wanted[name], value
        if isinstance(value, tuple) and not isinstance(other, tuple):
            right = torch.cat(value, -1)
        for (key, got), (_, want) in zip(parts(name, right), parts(name, other), strict=True):
            yield _exact(key, got, want) if variant.op in _EXACT else _close(variant, key, got, want)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results are equal bit by bit."""
    pairs = zip(parts("", one), parts("", other), strict=True)
    return all(
        mine.shape == theirs.shape and bool((_bits(mine) == _bits(theirs)).all()) for (_, mine), (_, theirs) in pairs
    )


def _bits(tensor: Tensor) -> Tensor:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def _exact(name: str, got: Tensor, want: Tensor) -> Difference:
    """Every byte counts, but for which NaN a NaN is."""
    want = want.to(got.dtype)
    wrong = _bits(got) != _bits(want)
    if got.is_floating_point():
        wrong &= ~(got.float().isnan() & want.float().isnan())
    values = got.double(), want.double()
    return _told(name, *values, wrong, torch.zeros(got.shape, dtype=torch.float64))


def _close(variant: Variant, name: str, got: Tensor, want: Tensor) -> Difference:
    computed_in = {variant.baked.get(trait) for trait in ("q_dtype", "in_dtype", "out_dtype", "compute_dtype")}
    single = not {"bf16", "fp16", "e4m3"} & computed_in
    got, want = got.double(), want.double()
    if name.startswith("out") and "lse" not in name:
        share = _SINGLE if single else _QUANTISED if "e4m3" in computed_in else _SIXTEEN
        finite = want.where(want.isfinite(), 0.0)
        row = finite.square().mean(-1, keepdim=True).sqrt()
        allowed = share * torch.maximum(finite.abs(), row) + _LEAST
    else:
        stored = {variant.baked.get(trait, "fp32") for trait in ("kv_dtype", "extra_kv_dtype")}
        absolute, relative = _LOGARITHM if stored <= {*_UNSCALED} else _ROUNDED_KEYS
        allowed = absolute + relative * want.abs().where(want.isfinite(), 0.0)
    same = (got == want) | (got.isnan() & want.isnan())
    return _told(name, got, want, ~same & ~((got - want).abs() <= allowed), allowed)


def _told(name: str, got: Tensor, want: Tensor, wrong: Tensor, allowed: Tensor) -> Difference:
    """The difference in words and numbers; the worst element is a wrong one where there is one."""
    if not got.numel():
        return Difference(name, 0, 0, 0, 0)
    error = (got - want).abs()
    error = error.masked_fill((got == want) | (got.isnan() & want.isnan()), 0.0).nan_to_num(torch.inf, torch.inf)
    ranked = torch.where(wrong, error, -1.0) if wrong.any() else error
    at = [int(each) for each in torch.unravel_index(ranked.argmax(), got.shape)]
    place = tuple(at)
    in_row = wrong.reshape(-1, wrong.shape[-1])
    shape = wrong.shape[:-1]
    numbers = in_row.any(-1).nonzero()[:, 0]
    columns = in_row.any(0).nonzero()[:, 0].tolist() or [0]
    rows = [[int(each) for each in torch.unravel_index(number, shape)] if shape else [] for number in numbers[:_SHOWN]]
    values = (float(each[place]) for each in (error, got, want, allowed))
    worst = dict(zip(("error", "got", "wanted", "allowed"), values, strict=True))
    return Difference(
        name, int(wrong.sum()), got.numel(), len(numbers), len(in_row), rows, (columns[0], columns[-1]), at=at, **worst
    )
