"""Right answers in float64 NumPy, written from the documentation of the ops; nothing of the package is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from tests.fuzz.elements import ROUNDING, decoded
from tests.fuzz.formats import Packed, rows_decoded

KEYS = {"fp32": 2.0**-17, "fp16": 2.0**-9, "bf16": 2.0**-6.5}
"""How far a weight may be from its own, by the type that a kernel keeps queries and weights in."""
ON_CUDA = {"fp32": 2.0**-17, "fp16": 2.0**-7, "bf16": 2.0**-6.5}
E4M3_WEIGHTS = 2.0**-3.5
"""Kernels of a GPU may keep weights in e4m3 where the cache is in e4m3."""
TINY = 1e-30
LEAST_OF_E4M3 = 2.0**-18
"""Kernels that multiply in e4m3 may be off by this part of the greatest weight, in weights that are subnormal there."""
SHARED_POWER = (128, 2.0**-36)
"""GPUs keep partial results in fp16, times powers of 2. Of so many columns, some share one, and each may be off by so
much of the greatest."""


@dataclass
class Answer:
    """What a result must be: numbers, each within a bound, or whatever ``check`` accepts.

    Attributes
    ----------
    untouched : ndarray of bool, optional
        The elements that a call must leave as they were, in a shape that broadcasts.
    """

    want: np.ndarray | None = None
    bound: np.ndarray | float = 0.0
    dtype: str = "fp32"
    check: Callable[[np.ndarray], str] | None = None
    untouched: np.ndarray | None = None

    def fault(self, bits: np.ndarray) -> str:
        """Say in words what is wrong with the stored elements of a result; nothing where it is right."""
        if self.check is not None:
            return self.check(bits)
        assert self.want is not None
        if bits.shape != self.want.shape:
            return f"shape {bits.shape}, want {self.want.shape}"
        with np.errstate(invalid="ignore", over="ignore"):
            got = decoded(bits, self.dtype) if self.dtype not in ("int32",) else bits
            bad = ~(np.abs(got - self.want) <= self.bound)
            if self.untouched is not None:
                bad &= ~self.untouched
            if not bad.any():
                return ""
            bad &= ~((got == self.want) | (np.isnan(got) & np.isnan(self.want)))
        if not bad.any():
            return ""
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        want, bound = self.want[place], np.broadcast_to(self.bound, bad.shape)[place]
        return f"{list(place)} is {got[place]:.9g}, want {want:.9g} within {bound:.3g}; {int(bad.sum())} of {bad.size}"


@dataclass
class Rows:
    """One batch of query rows that see the same keys.

    Attributes
    ----------
    out, lse, top : ndarray [rows, d_v], [rows], [rows]
    out_bound, lse_bound : ndarray
    """

    out: np.ndarray
    lse: np.ndarray
    top: np.ndarray
    out_bound: np.ndarray
    lse_bound: np.ndarray

    def put(self, place: slice, part: Rows) -> None:
        """Replace some of the rows."""
        for field in fields(self):
            getattr(self, field.name)[place] = getattr(part, field.name)


@dataclass
class Precision:
    """What a variant rounds to.

    Attributes
    ----------
    weights, logits : float
        How far a weight and a factor of a logit may be from their own, relative to them.
    out : str
        The type of the output.
    least : float
        A weight below this part of the greatest one may become 0.
    shares_powers : bool
        Whether columns share powers of 2.
    cut : float
        What part of a logit tensor cores may cut off.
    """

    weights: float
    logits: float
    out: str
    least: float = 0.0
    shares_powers: bool = False
    cut: float = 0.0

    @classmethod
    def of(cls, q_dtype: str, form: Packed, out_dtype: str, device: str, rounds: bool = False) -> Precision:
        """The precision of a variant: 16-bit kernels round the numbers of a cache with scales to 16 bits.

        ``rounds`` says that it multiplies in e4m3; what it makes of its queries is known. Tensor cores sum products of
        e4m3 with 13 bits behind the first, in 18 steps that each cut off what is below.
        """
        weights, least = (KEYS if device == "cpu" else ON_CUDA)[q_dtype], 0.0
        if rounds:
            if device == "cpu":
                return cls(E4M3_WEIGHTS, 2.0**-21, out_dtype, LEAST_OF_E4M3)
            return cls(E4M3_WEIGHTS, 2.0**-13, out_dtype, LEAST_OF_E4M3, shares_powers=True, cut=18 * 2.0**-13)
        if device != "cpu" and form.element == "e4m3" and not form.scale:
            weights, least = E4M3_WEIGHTS, 2.0**-10
        elif device != "cpu" and q_dtype == "fp16":
            least = 2.0**-24
        rounded = form.scale and q_dtype != "fp32"
        return cls(weights, 2.0**-8 if rounded else 2.0**-21, out_dtype, least, device != "cpu")


def attend(
    q: np.ndarray,
    keys: np.ndarray,
    seen: np.ndarray | None,
    factor: float,
    out_factor: float,
    precision: Precision,
    d_v: int,
    sink: np.ndarray | None = None,
) -> Rows:
    """Attention of query rows [rows, d_qk] over keys [n, d_qk]; ``seen`` [rows] says how many of the first count."""
    rows = len(q)
    if len(keys) == 0:
        return Rows(np.zeros((rows, d_v)), *np.full((2, rows), -np.inf), np.zeros((rows, d_v)), np.zeros(rows))
    logits = (q @ keys.T) * factor
    noise = np.sqrt((q * q) @ (keys * keys).T) * abs(factor) * precision.logits * 6 + np.abs(logits) * precision.cut
    if seen is not None:
        hidden = np.arange(len(keys)) >= seen[:, None]
        logits[hidden] = -np.inf
        noise[hidden] = 0
    top = logits.max(axis=1)
    empty = np.isneginf(top)
    weights = np.exp(logits - np.where(empty, 0, top)[:, None])
    total = np.where(empty, 1, weights.sum(axis=1))
    weights /= total[:, None]
    lse = np.where(empty, -np.inf, top + np.log(total))
    values = keys[:, :d_v]
    out = weights @ values * out_factor
    spread = weights @ np.abs(values) * abs(out_factor)
    lost = (
        (weights > 0) @ np.abs(values) * (abs(out_factor) * precision.least / total)[:, None] if precision.least else 0
    )
    off = noise.max(axis=1)
    if sink is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            share = np.where(empty | np.isposinf(sink), 0, 1 / (1 + np.exp(sink - lse)))
        out, spread = out * share[:, None], spread * share[:, None]
    rounding = ROUNDING[precision.out]
    summed = len(keys) * ROUNDING["fp32"]  # equal numbers are rounded the same way, one after another
    bound = spread * (precision.weights + summed + 2 * off)[:, None] + np.abs(out) * 2 * rounding + TINY + lost
    if precision.out == "fp16":
        bound += 2.0**-24
    if precision.shares_powers:
        columns, part = SHARED_POWER
        greatest = spread.reshape(rows, -1, columns).max(axis=2)
        bound += np.repeat(greatest * part, columns, axis=1)
    scale = np.abs(np.where(empty, 0, lse))
    lse_bound = off + 2e-6 + summed + (scale + np.abs(np.where(empty, 0, top))) * 2.0**-19 + precision.weights / 64
    return Rows(out, lse, top, bound, lse_bound)


def merged(o: np.ndarray, lse: np.ndarray, counts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output, its spread and its LSE of states [n, t, h, d]; a state with an infinite LSE is empty."""
    absent = np.isinf(lse)
    if counts is not None:
        absent |= (np.arange(len(lse))[:, None] >= counts)[:, :, None]
    kept = np.where(absent, -np.inf, lse)
    top = kept.max(axis=0, initial=-np.inf)
    empty = np.isneginf(top)
    weights = np.exp(kept - np.where(empty, 0, top))
    total = weights.sum(axis=0)
    weights = weights / np.where(empty, 1, total)
    values = np.where(absent[..., None], 0, o)
    out = np.einsum("nth,nthd->thd", weights, values)
    spread = np.einsum("nth,nthd->thd", weights, np.abs(values))
    with np.errstate(divide="ignore"):
        return out, spread, np.where(empty, -np.inf, top + np.log(total))


def gathered(rows: np.ndarray, form: Packed, out_dtype: str, factor: float, absent: np.ndarray) -> Answer:
    """What ``gather_kv`` gives for stored rows [n, width]; those that are absent are zeros."""
    want = rows_decoded(rows, form)
    if form.element == "e4m3" and not form.scale:
        want = want * factor
    want[absent] = 0
    quantised = form.scale or form.element == "e4m3"
    bound = np.abs(want) * (2 * ROUNDING[out_dtype] + 2.0**-22) + 2.0**-25 if quantised else 0.0
    return Answer(want, bound, out_dtype)


def global_slots(requests: np.ndarray, table: np.ndarray, positions: np.ndarray, page_size: int) -> np.ndarray:
    """Slots of positions [tokens, topk]; -1 where there is no such request, position or page, or no such int32."""
    positions = positions.astype(np.int64)
    entry = positions // page_size
    there = (requests >= 0) & (requests < len(table))
    known = (positions >= 0) & (entry < table.shape[1]) & there[:, None]
    if table.size == 0:
        return np.full(positions.shape, -1)
    page = table.astype(np.int64)[np.where(there, requests, 0)[:, None], np.where(known, entry, 0)]
    known &= page >= 0
    slot = np.where(known, page, 0) * page_size + positions % page_size
    return np.where(known & (slot < 2**31), slot, -1)
