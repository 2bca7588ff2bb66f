"""Element types as NumPy stores them, and the numbers that their bits are: the fuzzer's own, not the package's."""

from __future__ import annotations

from functools import cache

import numpy as np

STORED = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "e4m3": np.dtype(np.uint8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}
"""NumPy has no bfloat16 and no e4m3: their bits stand for them."""
POISON = {"int32": 0x7F, "int64": 0x7F}
"""The byte that unused memory is full of: NaN in floats, and a large positive number in integers."""
ROUNDING = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-9}
"""Half the distance of two neighbours, relative to a number."""
LARGEST = {"e4m3": 448.0, "e2m1": 6.0}
STEPS = {"e4m3": (-6, 3), "e2m1": (0, 1)}
"""The exponent of the least normal number, and the bits of the mantissa."""


def poison(dtype: str) -> int:
    """The byte that fills the unused memory of a tensor."""
    return POISON.get(dtype, 0xFF)


@cache
def e4m3_numbers() -> np.ndarray:
    """The numbers of all 256 codes: a sign, 4 bits of exponent with bias 7, 3 of mantissa; 0x7F and 0xFF are NaN."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    magnitude = np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
    magnitude[code & 127 == 127] = np.nan
    return np.where(code < 128, magnitude, -magnitude)


@cache
def e2m1_pairs() -> np.ndarray:
    """The two numbers of all 256 bytes [256, 2]: a sign, 2 bits of exponent and 1 of mantissa, the low half first."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers, code = np.concatenate([magnitudes, -magnitudes]), np.arange(256)
    return np.stack([numbers[code & 15], numbers[code >> 4]], axis=1)


@cache
def e8m0_numbers() -> np.ndarray:
    """The numbers of all 256 codes: powers of two with bias 127; 0xFF is NaN."""
    return np.append(2.0 ** (np.arange(255) - 127.0), np.nan)


def decoded(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The float64 numbers of stored elements; of ``e2m1``, the last axis becomes twice as long."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in ("e4m3", "uint8"):
        return e4m3_numbers()[bits]
    if dtype == "e8m0":
        return e8m0_numbers()[bits]
    if dtype == "e2m1":
        return e2m1_pairs()[bits].reshape(*bits.shape[:-1], 2 * bits.shape[-1])
    return bits.astype(np.float64)


def encoded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Float32 numbers as elements are stored, rounded to the nearest even; only of types that have inputs."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return numbers.astype(STORED[dtype])


def nearest(numbers: np.ndarray, got: np.ndarray, element: str) -> np.ndarray:
    """Whether each element that was stored is a nearest one of its number; larger ones saturate."""
    want = np.clip(numbers, -LARGEST[element], LARGEST[element])
    least, mantissa = STEPS[element]
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), 2.0**least))) - mantissa)
    close: np.ndarray = np.abs(got - want) <= step / 2 * (1 + 1e-4) + np.abs(want) * 2.0**-22
    return close


def rounded_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of queries as kernels multiply them in e4m3: rounded, times the power of two that makes use of its range."""
    greatest = np.abs(rows).max(axis=-1, initial=0, keepdims=True)
    factor = 2.0 ** np.floor(np.log2(LARGEST["e4m3"] / np.where(greatest > 0, greatest, LARGEST["e4m3"])))
    least, mantissa = STEPS["e4m3"]
    scaled = rows * factor
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(scaled), 2.0**least))) - mantissa)
    found: np.ndarray = np.rint(scaled / step) * step / factor
    return found


class Noise:
    """Random elements of every type, made once a worker: a case takes slices from places of its own."""

    SIZE = 1 << 18

    def __init__(self) -> None:
        source = np.random.default_rng(20)
        self.normal = source.standard_normal(self.SIZE, dtype=np.float32)
        codes = source.integers(0, 127, self.SIZE, dtype=np.uint8)
        codes |= source.integers(0, 2, self.SIZE, dtype=np.uint8) << 7
        self._pools = {dtype: encoded(self.normal, dtype) for dtype in ("fp32", "fp16", "bf16")}
        self._pools["e4m3"] = codes
        self._pools["e2m1"] = source.integers(0, 256, self.SIZE, dtype=np.uint8)
        scales = (2.0 ** source.uniform(-10, -7, self.SIZE)).astype(np.float32)
        self._pools["scales of e4m3 in fp32"] = scales
        self._pools["scales of e4m3 in e8m0"] = source.integers(117, 121, self.SIZE, dtype=np.uint8)
        self._pools["scales of e2m1 in e8m0"] = source.integers(121, 126, self.SIZE, dtype=np.uint8)
        self._pools["scales of e2m1 in e4m3"] = source.integers(0x08, 0x30, self.SIZE, dtype=np.uint8)

    def take(self, dtype: str, shape: tuple[int, ...], place: float) -> np.ndarray:
        """Elements of a shape; the noise repeats where it is too short. ``place`` is a number from 0 to 1."""
        pool = self._pools[dtype]
        count = int(np.prod(shape, dtype=np.int64))
        first = int(place * len(pool))
        if first + count > len(pool):
            first = 0
        if count > len(pool):
            return np.resize(pool, count).reshape(shape)
        return pool[first : first + count].reshape(shape)
