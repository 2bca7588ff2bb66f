"""How a token lies in a cache, written from the documentation: the fuzzer's own table, not the package's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.fuzz.elements import LARGEST, STORED, Noise, decoded, nearest

ELEMENT_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "e4m3": 8, "e8m0": 8, "e2m1": 4}
LEAST_POWER = 1e-4
"""What a scale is at least before it is rounded up to a power of two."""
LEAST_SCALE = {"fp32": 2.0**-126, "e4m3": 2.0**-9}


@dataclass(frozen=True)
class Packed:
    """A format of caches.

    Attributes
    ----------
    latent, rope, d_v : int
        Columns; a key has ``latent + rope``, of which the value is the first ``d_v``.
    element : str
        The type of the latent; the rope part has it too in a format that is not of bytes.
    scale : str
        The type of the scales that the cache holds; empty where it holds none.
    group : int
        Columns that share a scale.
    padding : int
        Unused bytes behind the scales of a token.
    behind_page, behind_rope : bool
        Whether scales lie behind the rows of their page, or behind the rope part of their row, rather than behind its
        latent.
    page_multiple : int
        What the bytes of a page are a multiple of.
    rope_element : str
        The type of the rope part in a format of bytes; it has no scale.
    interleave : int
        The scale of group ``g`` of ``n`` is the one at ``n // interleave * (g % interleave) + g // interleave``.
    """

    latent: int
    rope: int
    d_v: int
    element: str
    scale: str = ""
    group: int = 0
    padding: int = 0
    behind_page: bool = False
    page_multiple: int = 1
    behind_rope: bool = False
    rope_element: str = "bf16"
    interleave: int = 1

    @property
    def d_qk(self) -> int:
        """The columns of a key."""
        return self.latent + self.rope

    @property
    def has_pair(self) -> bool:
        """Whether latent and rope may be tensors of their own."""
        return not self.scale and self.rope > 0

    @property
    def code_bytes(self) -> int:
        """The bytes of a latent."""
        return self.latent * ELEMENT_BITS[self.element] // 8

    @property
    def scale_bytes(self) -> int:
        """The bytes of a token's scales and of what is unused behind them."""
        return self.latent // self.group * ELEMENT_BITS[self.scale] // 8 + self.padding if self.scale else 0

    @property
    def rope_bytes(self) -> int:
        """The bytes of a rope part in a format of bytes."""
        return self.rope * ELEMENT_BITS[self.rope_element] // 8

    @property
    def order(self) -> tuple[str, str, str]:
        """The parts of a token as they follow one another."""
        last = self.behind_page or self.behind_rope
        return ("codes", "rope", "scales") if last else ("codes", "scales", "rope")

    @property
    def width(self) -> int:
        """The elements of a row of the cache, which are bytes where it holds scales."""
        return self.code_bytes + self.scale_bytes + self.rope_bytes if self.scale else self.d_qk

    @property
    def page_row(self) -> int:
        """The bytes of a token before the scales of its page."""
        return self.width - self.scale_bytes

    def parts(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes, scales in the order of their groups, and rope part of tokens [n, width] of bytes."""
        sizes = {"codes": self.code_bytes, "scales": self.scale_bytes, "rope": self.rope_bytes}
        found, first = {}, 0
        for name in self.order:
            found[name] = np.ascontiguousarray(rows[:, first : first + sizes[name]])
            first += sizes[name]
        scales = np.ascontiguousarray(found["scales"][:, : self.scale_bytes - self.padding])
        typed = scales.view(np.float32) if self.scale == "fp32" else scales
        group = np.arange(typed.shape[1])
        places = len(group) // self.interleave * (group % self.interleave) + group // self.interleave
        return found["codes"], typed[:, places], found["rope"].view(STORED[self.rope_element])


PLAIN = {(d_qk, d_v): Packed(latent, d_qk - latent, d_v, "") for d_qk, latent, d_v in (
    (576, 512, 512), (512, 512, 512), (320, 256, 256),
)}  # fmt: skip
"""Formats of one element type, by ``d_qk`` and ``d_v``."""
BYTES = {
    ("fp8_ds_mla", 576): Packed(512, 64, 512, "e4m3", "fp32", 128),
    ("fp8_ds_mla", 512): Packed(512, 0, 512, "e4m3", "fp32", 128),
    ("fp8_ds_v41", 512): Packed(512, 0, 512, "e4m3", "e8m0", 32),
    ("fp8_ds_v4", 512): Packed(448, 64, 512, "e4m3", "e8m0", 64, padding=1, behind_page=True, page_multiple=576),
    ("fp4_ds_v41", 512): Packed(512, 0, 512, "e2m1", "e4m3", 16),
    ("mxfp4_ds_v4", 512): Packed(448, 64, 512, "e2m1", "e8m0", 32, padding=2),
    ("nvfp4_ds_mla", 576): Packed(
        512, 64, 512, "e2m1", "e4m3", 16, behind_rope=True, rope_element="e4m3", interleave=4
    ),
}
"""Formats of bytes, by name and ``d_qk``."""
TWINS = frozenset({528})
"""Bytes of rows that two formats have, so that a call must name its own."""


def format_of(traits: Mapping[str, Any]) -> Packed:
    """The format that a variant's cache has; older releases, which name no widths, have the first ones."""
    d_qk, d_v = int(traits.get("d_qk", 576)), int(traits.get("d_v", 512))
    found = BYTES.get((traits["kv_dtype"], d_qk))
    return found or replace(PLAIN[d_qk, d_v], element=traits["kv_dtype"])


def extra_format_of(traits: Mapping[str, Any]) -> Packed:
    """The format that a variant's second cache has; older releases know that of the first one only."""
    name = traits.get("extra_kv_dtype", "same")
    return format_of(traits if name == "same" else {**traits, "kv_dtype": name})


def tokens_of(pages: np.ndarray, form: Packed) -> np.ndarray:
    """Tokens [slots, width] of a cache [pages, page_size, width], the scales of each behind its row."""
    if not form.behind_page:
        return pages.reshape(-1, pages.shape[-1])
    count, page_size, _ = pages.shape
    content, first = pages.reshape(count, page_size * form.width), page_size * form.page_row
    rows = content[:, :first].reshape(-1, form.page_row)
    return np.concatenate([rows, content[:, first:].reshape(-1, form.scale_bytes)], axis=1)


def pages_of(tokens: np.ndarray, shape: tuple[int, ...], form: Packed) -> np.ndarray:
    """A cache of a shape from its tokens: the opposite of ``tokens_of``."""
    if not form.behind_page:
        return tokens.reshape(shape)
    parts = (tokens[:, : form.page_row], tokens[:, form.page_row :])
    return np.concatenate([part.reshape(shape[0], -1) for part in parts], axis=1).reshape(shape)


def page_strides(shape: tuple[int, ...], form: Packed, more: int) -> tuple[int, ...]:
    """The strides of padded pages, with room for some multiples of the padding behind each."""
    least = -(-shape[1] * form.width // form.page_multiple) + more
    return least * form.page_multiple, form.width, 1


def noisy_tokens(noise: Noise, form: Packed, count: int, place: float) -> np.ndarray:
    """Tokens [count, width] of random numbers; unused bytes are full of ones."""
    codes = noise.take("e4m3" if form.element == "e4m3" else "e2m1", (count, form.code_bytes), place)
    name = f"scales of {form.element} in {form.scale}"
    scales = noise.take(name, (count, form.latent // form.group), place).view(np.uint8)
    unused = np.full((count, form.padding), 0xFF, np.uint8)
    rope = noise.take(form.rope_element, (count, form.rope), place).view(np.uint8)
    parts = {"codes": codes, "scales": np.concatenate([scales, unused], axis=1), "rope": rope}
    return np.concatenate([parts[name] for name in form.order], axis=1)


def rows_decoded(rows: np.ndarray, form: Packed) -> np.ndarray:
    """Tokens [n, width] as float64 [n, d_qk], without the scale that a whole cache of e4m3 has."""
    if not form.scale:
        return decoded(rows, form.element)
    codes, scales, rope = form.parts(rows)
    latent = decoded(codes, form.element) * np.repeat(decoded(scales, form.scale), form.group, axis=1)
    return np.concatenate([latent, decoded(rope, form.rope_element)], axis=1)


def stored_rows(numbers: np.ndarray, rows: np.ndarray, form: Packed, scale: float, powers: bool) -> str:
    """Say what is wrong with tokens [n, width] that ``store_kv`` wrote of numbers [n, d_qk]."""
    if not form.scale:
        if form.element != "e4m3":
            return ""  # copies are compared as bits
        return _codes_fault(numbers, decoded(rows, "e4m3"), np.float64(np.float32(scale)), "e4m3")
    codes, stored, rope = form.parts(rows)
    latent, exact = numbers[:, : form.latent], numbers[:, form.latent :]
    scales = decoded(stored, form.scale)
    if fault := _scales_fault(latent, scales, form, powers):
        return fault
    elements = decoded(codes, form.element)
    if fault := _codes_fault(latent, elements, np.repeat(scales, form.group, axis=1), form.element):
        return fault
    got = decoded(rope, form.rope_element)
    if form.rope_element == "e4m3":
        return _codes_fault(exact, got, np.float64(1), "e4m3")
    wrong = ~(np.abs(got - exact) <= np.abs(exact) * 2.0**-8 + 2.0**-133)
    return f"rope is {got[wrong][:4]}, want {exact[wrong][:4]}" if wrong.any() else ""


def _scales_fault(latent: np.ndarray, scales: np.ndarray, form: Packed, powers: bool) -> str:
    """Whether the scale of each group is its largest magnitude by the largest element, rounded as the format says."""
    groups = latent.reshape(len(latent), form.latent // form.group, form.group)
    want = np.abs(groups).max(axis=2) / LARGEST[form.element]
    if powers or form.scale == "e8m0":
        want = 2.0 ** np.ceil(np.log2(np.clip(want, LEAST_POWER, 2.0**127)))
    else:
        want = np.maximum(want, LEAST_SCALE[form.scale])
    right = nearest(want, scales, "e4m3") if form.scale == "e4m3" else np.abs(scales - want) <= want * 2.0**-22
    return "" if right.all() else f"scales {scales.tolist()}, want {want.tolist()}"


def _codes_fault(numbers: np.ndarray, got: np.ndarray, scale: np.ndarray | np.float64, element: str) -> str:
    """Whether each element is a nearest one of number / scale."""
    wrong = ~nearest(numbers / scale, got, element)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"code {list(place)} is {got[place]}, want {(numbers / scale)[place]:.9g}"
