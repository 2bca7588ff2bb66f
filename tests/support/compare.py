"""Compares a result with the reference and names the worst element where they differ."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tolerance:
    """An element passes within either bound; the whole tensor must also point the same way.

    ``cosine`` bounds 1 - 2 <x, y> / (<x, x> + <y, y>), which is |x - y|^2 / (|x|^2 + |y|^2).
    """

    absolute: float
    relative: float
    cosine: float | None = None

    def widened(self, factor: float) -> Tolerance:
        """Return a tolerance of ``factor`` times these bounds."""
        cosine = None if self.cosine is None else self.cosine * factor * factor
        return Tolerance(self.absolute * factor, self.relative * factor, cosine)


DENSE = Tolerance(8e-4, 2.01 / 128, 5e-6)
SPARSE = Tolerance(1e-3, 2.01 / 128, 5e-6)
PREFILL = Tolerance(8e-4, 3.01 / 128, 7e-6)
LSE = Tolerance(1e-6, 8.01 / 65536)
QUANTISED = Tolerance(1e-2, 0.1, 3e-3)
"""Variants that round P to e4m3 pass within this, because a weight is off by up to 2^-4 of itself."""
SINGLE = Tolerance(1e-5, 1e-5, 1e-10)
"""Variants that compute in float32 throughout pass within this."""
SINGLE_LSE = Tolerance(3e-6, 1e-5)
ROUNDED_KEYS_LSE = Tolerance(4e-3, 8.01 / 65536)
"""Scales of ``fp8_ds_mla`` may be no powers of two. Then a 16-bit kernel rounds code x scale to 16 bits, which moves a
logit of standard deviation 0.4 by up to a few times 2^-9."""
FP8 = Tolerance(1.5e-2, 0.15, 3e-3)
"""The same on tensor cores: of 980 cases 23 had up to six elements, of millions, 1 to 19 % beyond ``QUANTISED``."""
FP8_LSE = Tolerance(4e-3, 1 / 512)
"""Tensor cores sum products of e4m3 with some 14 bits, which moved an LSE by up to 9e-4 of itself on an H200."""


def assert_close(name: str, got: Tensor, want: Tensor, tolerance: Tolerance, reproduce: str = "") -> None:
    """Raise ``AssertionError`` with the worst element; NaN and infinities must match exactly.

    Tensors are compared where ``got`` is, so that those of a GPU need not be copied to the host.
    """
    __tracebackhide__ = True
    got, want = got.detach().double(), want.detach().to(got.device).double()
    assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)}, want {tuple(want.shape)}\n{reproduce}"
    plain = torch.isfinite(got) & torch.isfinite(want)
    if not plain.all():
        _assert_same_specials(name, got, want, reproduce)
        got, want = got.where(plain, 0.0), want.where(plain, 0.0)
    error = (got - want).abs_()
    distance = float(error.square().sum())
    excess = error.div_((want.abs() * tolerance.relative).clamp_(min=tolerance.absolute)).nan_to_num_(nan=0.0)
    if excess.numel() and excess.max() > 1:
        bad = int((excess > 1).sum())
        raise AssertionError(f"{_worst(name, got, want, excess)}{bad} of {excess.numel()} elements\n{reproduce}")
    norm = float(got.square().sum() + want.square().sum())
    if tolerance.cosine is not None and distance > tolerance.cosine * norm:
        why = f"1 - cosine is {distance / norm:.3g}, allowed {tolerance.cosine:.3g}"
        raise AssertionError(f"{_worst(name, got, want, excess)}{why}\n{reproduce}")


def assert_same_bytes(name: str, got: Tensor, want: Tensor, reproduce: str = "") -> None:
    """Raise ``AssertionError`` unless every byte is equal; tensors are compared where ``got`` is."""
    __tracebackhide__ = True
    found, wanted = (tuple(got.shape), got.dtype), (tuple(want.shape), want.dtype)
    assert found == wanted, f"{name}: {found}, want {wanted}\n{reproduce}"
    own, other = as_bytes(got), as_bytes(want.to(got.device))
    differs = own != other
    if differs.any():
        index = tuple(differs.nonzero()[0].tolist())
        pair = f"byte {hex(int(own[index]))}, want {hex(int(other[index]))}"
        raise AssertionError(f"{name}{list(index)} (byte index): {pair}; {int(differs.sum())} differ\n{reproduce}")


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous copy, [..., n * element size]."""
    plain = tensor.detach().contiguous()
    *outer, last = plain.shape or (1,)
    width = last * plain.element_size()
    if plain.numel() == 0:
        return torch.empty(*outer, width, dtype=torch.uint8, device=plain.device)
    return plain.reshape(-1).view(torch.uint8).reshape(*outer, width)


def _assert_same_specials(name: str, got: Tensor, want: Tensor, reproduce: str) -> None:
    __tracebackhide__ = True
    for kind, test in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        differs = test(got) != test(want)
        if differs.any():
            index = tuple(differs.nonzero()[0].tolist())
            pair = f"got {got[index]:.9g}, want {want[index]:.9g}"
            raise AssertionError(f"{name}{list(index)}: {pair}; {kind} differs in {int(differs.sum())}\n{reproduce}")


def _worst(name: str, got: Tensor, want: Tensor, excess: Tensor) -> str:
    index = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    pair = f"got {got[index]:.9g}, want {want[index]:.9g}"
    return f"{name}{list(index)}: {pair} ({excess[index]:.3g} times the tolerance); "
