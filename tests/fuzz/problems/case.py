"""A case: an op, a variant, arguments by name, and what the call must give."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.elements import LATENT, Noise
from tests.fuzz.memory import Array, contiguous
from tests.fuzz.model import Answer

RETURNED = {
    "decode": ("out", "lse"),
    "sparse_decode": ("out", "lse", "max_logits"),
    "sparse_prefill": ("out", "max_logits", "lse"),
    "merge_states": ("out", "out_lse"),
    "store_kv": (),
    "gather_kv": ("out",),
    "to_global_indices": ("out",),
}
"""What each op returns, in order."""


@dataclass
class Variant:
    """A row of the public listing of variants."""

    name: str
    op: str
    arch: str
    traits: dict[str, str]
    accepts: dict[str, Any]

    def pick(self, source: random.Random, field: str, choices: tuple[int, ...]) -> int:
        """One of the choices that the variant accepts, or else the least number that it does."""
        domain = self.accepts.get(field)
        if domain is None:
            return source.choice(choices)
        step, most = domain.multiple_of or 1, domain.max or 1 << 62
        fitting = [n for n in choices if domain.min <= n <= most and n % step == 0]
        return source.choice(fitting) if fitting else max(domain.min, step)


@dataclass
class Case:
    """One call.

    Attributes
    ----------
    arguments : dict[str, object]
        Arrays, pairs of them, scalars and None.
    answers : Callable
        Makes the answers by the names of the results, from what the arrays hold.
    kind, label : str
        What was done to the call, for the counts and the findings.
    verdict : str
        ``accept``, ``refuse`` or ``either``: whether the call is legal.
    names : tuple[str, ...]
        The arguments that a refusal may name; any of the op's where it is empty.
    """

    op: str
    variant: Variant
    arguments: dict[str, Any]
    answers: Callable[[], dict[str, Answer]]
    kind: str = "right"
    label: str = ""
    verdict: str = "accept"
    names: tuple[str, ...] = ()
    how: str = "op"
    notes: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> list[tuple[str, Array]]:
        """Every array with the name of its argument; those of a pair have the same."""
        found = []
        for name, value in self.arguments.items():
            parts = value if isinstance(value, tuple) else (value,)
            found += [(name, part) for part in parts if isinstance(part, Array)]
        return found


class Maker:
    """Draws what cases are made of, from one seed."""

    def __init__(self, seed: int, noise: Noise, device: str) -> None:
        self.random = random.Random(seed)
        self._noise = noise
        self.device = device

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random.random() < share

    def strides(self, shape: tuple[int, ...], strided: tuple[bool, ...]) -> tuple[int, ...]:
        """Contiguous strides, or ones that leave gaps along the dimensions that may have them."""
        if self.chance(0.5):
            return contiguous(shape)
        least = 8 if self.device == "cpu" else 16  # elements of a byte, by which GPUs read caches
        steps, step = [], 1
        for n, free in zip(reversed(shape), reversed(strided), strict=True):
            if free:
                step += self.random.choice((0, 0, least, 64))
            steps.append(step)
            step *= max(n, 1)
        return tuple(reversed(steps))

    def array(self, dtype: str, shape: tuple[int, ...], strided: str, values: np.ndarray | None = None) -> Array:
        """An array; ``strided`` has an ``s`` for each dimension that may have gaps, and a ``.`` for others."""
        strides = self.strides(shape, tuple(letter == "s" for letter in strided))
        return Array(dtype, shape, strides, values, self.chance(0.25))

    def floats(self, dtype: str, shape: tuple[int, ...], strided: str) -> Array:
        """An array of noise."""
        kept = {"fp8_ds_mla": "uint8"}.get(dtype, dtype)
        if dtype == "e4m3" and self.chance(0.3) and shape[-1] == 576:
            kept = "uint8"  # bytes of this width are taken for e4m3
        return self.array(kept, shape, strided, self._noise.take(dtype, shape, self.random.random()))

    def numbers(self, shape: tuple[int, ...], deviation: float = 1.0) -> np.ndarray:
        """Normal float32 numbers."""
        return self._noise.take("fp32", shape, self.random.random()) * np.float32(deviation)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        """Integers from ``low`` to below ``high``, as int64."""
        count = int(np.prod(shape, dtype=np.int64))
        draw = self.random
        if count > 64:
            source = np.random.default_rng(draw.getrandbits(32))
            return source.integers(low, high, shape)
        return np.array([draw.randrange(low, high) for _ in range(count)], np.int64).reshape(shape)

    def packed(self, dtype: str, outer: tuple[int, ...], strided: str, pair: bool) -> Array | tuple[Array, Array]:
        """Rows of latent and rope, in one array or two."""
        if not pair:
            return self.floats(dtype, (*outer, 656 if dtype == "fp8_ds_mla" else 576), strided + ".")
        return (
            self.floats(dtype, (*outer, 512), strided + "."),
            self.floats(dtype, (*outer, 64), strided + "."),
        )

    def output(self, dtype: str, shape: tuple[int, ...], strided: str) -> Array:
        """An array that the op writes, poison so far."""
        return self.array(dtype, shape, strided)


def whole(rows: Array | tuple[Array, Array]) -> np.ndarray:
    """The stored elements of packed rows in one array."""
    if isinstance(rows, tuple):
        return np.concatenate([part.values for part in rows if part.values is not None], axis=-1)
    assert rows.values is not None
    return rows.values


def is_bare(case: Case) -> bool:
    """Whether rows have no rope part, which only calls take, and sizes are not asked with."""
    q = case.arguments.get("q")
    return isinstance(q, Array) and q.shape[-1] == LATENT
