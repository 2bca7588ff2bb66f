"""A case: an op, a variant, arguments by name, and what the call must give."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.elements import Noise
from tests.fuzz.formats import TWINS, Packed, extra_format_of, format_of, noisy_tokens, page_strides, pages_of
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
    traits: dict[str, Any]
    accepts: dict[str, Any]

    @property
    def has_form(self) -> bool:
        """Whether it has a cache."""
        return "kv_dtype" in self.traits

    @property
    def form(self) -> Packed:
        """The format of its cache."""
        return format_of(self.traits)

    @property
    def extra_form(self) -> Packed:
        """The format of its second cache."""
        return extra_format_of(self.traits)

    @property
    def rounds(self) -> bool:
        """Whether it multiplies in e4m3, which a call must ask for; older releases have none."""
        return bool(self.traits.get("compute_dtype") == "e4m3")

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
        return self.array(dtype, shape, strided, self._noise.take(dtype, shape, self.random.random()))

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

    def packed(
        self, dtype: str, form: Packed, outer: tuple[int, ...], strided: str, pair: bool
    ) -> Array | tuple[Array, Array]:
        """Rows of latent and rope of one type, in one array or two."""
        if not pair:
            return self.floats(dtype, (*outer, form.d_qk), strided + ".")
        return (
            self.floats(dtype, (*outer, form.latent), strided + "."),
            self.floats(dtype, (*outer, form.rope), strided + "."),
        )

    def cache(self, form: Packed, outer: tuple[int, ...], strided: str, pairs: float) -> Array | tuple[Array, Array]:
        """Rows of a cache, so often in two arrays where its format has such."""
        if not form.scale:
            rows = self.packed(form.element, form, outer, strided, form.has_pair and self.chance(pairs))
            if form.element == "e4m3" and isinstance(rows, Array) and self.chance(0.3):
                rows.dtype = "uint8"  # bytes of this width are taken for e4m3
            return rows
        shape = (*outer, form.width)
        tokens = noisy_tokens(self._noise, form, int(np.prod(outer)), self.random.random())
        rows = self.array("uint8", shape, strided + ".", pages_of(tokens, shape, form))
        if form.behind_page:
            rows.strides = page_strides(shape, form, self.random.choice((0, 0, 1, 3)))
        return rows

    def output(self, dtype: str, shape: tuple[int, ...], strided: str) -> Array:
        """An array that the op writes, poison so far."""
        return self.array(dtype, shape, strided)


def whole(rows: Array | tuple[Array, Array]) -> np.ndarray:
    """The stored elements of packed rows in one array."""
    if isinstance(rows, tuple):
        return np.concatenate([part.values for part in rows if part.values is not None], axis=-1)
    assert rows.values is not None
    return rows.values


def told(make: Maker, variant: Variant) -> dict[str, str]:
    """The names of the caches' formats, where a call must give them, and now and then where it may."""
    form, name = variant.form, variant.traits["kv_dtype"]
    if not form.scale or "d_qk" not in variant.traits:  # older releases name no widths, and take no name
        return {}
    found = {"kv_dtype": name} if form.width in TWINS or make.chance(0.1) else {}
    extra = variant.traits.get("extra_kv_dtype", "same")
    if extra != "same" and make.chance(0.1):
        found["extra_kv_dtype"] = extra
    return found


def is_bare(case: Case) -> bool:
    """Whether rows lack the rope part of the variant's, which only calls take, and sizes are not asked with."""
    q = case.arguments.get("q")
    return isinstance(q, Array) and q.shape[-1] != case.variant.form.d_qk
