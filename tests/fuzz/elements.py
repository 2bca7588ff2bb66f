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
LATENT, ROPE, GROUP = 512, 64, 128
WIDTH = LATENT + ROPE
LARGEST_E4M3 = 448.0


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


def decoded(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The float64 numbers of stored elements."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in ("e4m3", "uint8"):
        return e4m3_numbers()[bits]
    return bits.astype(np.float64)


def encoded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Float32 numbers as elements are stored, rounded to the nearest even; only of types that have inputs."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return numbers.astype(STORED[dtype])


def rows_decoded(bits: np.ndarray, kv_dtype: str) -> np.ndarray:
    """Rows of a cache [n, width] as float64 [n, 576], without the scale of an e4m3 cache."""
    if kv_dtype != "fp8_ds_mla":
        return decoded(bits, kv_dtype)
    codes, scales, rope = bits[:, :LATENT], bits[:, LATENT : LATENT + 16], bits[:, LATENT + 16 :]
    factors = np.ascontiguousarray(scales).view(np.float32).astype(np.float64)
    latent = decoded(codes, "e4m3") * np.repeat(factors, GROUP, axis=1)
    return np.concatenate([latent, decoded(np.ascontiguousarray(rope).view(np.uint16), "bf16")], axis=1)


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
        rows = self.SIZE // WIDTH
        scales = (2.0 ** source.uniform(-10, -7, (rows, 4))).astype(np.float32)
        rope = self._pools["bf16"][: rows * ROPE].reshape(rows, ROPE)
        packed = [codes[: rows * LATENT].reshape(rows, LATENT), scales.view(np.uint8), rope.view(np.uint8)]
        self._pools["fp8_ds_mla"] = np.concatenate(packed, axis=1).reshape(-1)

    def take(self, dtype: str, shape: tuple[int, ...], place: float) -> np.ndarray:
        """Elements of a shape; the noise repeats where it is too short. ``place`` is a number from 0 to 1."""
        pool = self._pools[dtype]
        unit = 656 if dtype == "fp8_ds_mla" else 1
        count = int(np.prod(shape, dtype=np.int64))
        first = int(place * (len(pool) // unit)) * unit
        if first + count > len(pool):
            first = 0
        if count > len(pool):
            return np.resize(pool, count).reshape(shape)
        return pool[first : first + count].reshape(shape)
