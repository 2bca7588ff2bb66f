"""The cells of a table: shapes, lengths, and the arithmetic and bytes that they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import log
from random import Random

from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import D_V, FORMATS, HEAD_DIM, CacheFormat, format_named
from mla_kernels.scalars import MOST

SCALE = 192**-0.5
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""The bytes of an element of Q and of the output."""
KV_DTYPES = tuple(dict.fromkeys(row.name for row in FORMATS))

_COLUMNS = {"q_dtype": "q", "kv_dtype": "kv", "num_heads": "heads"}
"""Attributes whose columns have shorter names."""

LENGTHS = ("equal", "normal", "long", "zipf")
LONG, SHORT = 16 * 4096, 1024
"""Tokens of the one long request of ``long``, and of those beside it."""
SHORTEST = 256
"""Tokens of the shortest request of ``zipf``; the longest has ``LONG``."""

Shape = tuple[int, int, int, int]
"""Heads, new tokens, requests, and tokens in the cache of each."""

SUITES: dict[str, tuple[Shape, ...]] = {
    "h200": tuple(
        (*rows, *cache)
        for rows in ((16, 1), (64, 1), (128, 1), (128, 2))
        for cache in ((1, 8192), (16, 8192), (64, 4096), (128, 4096), (128, 8192))
    )
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One cell of the table.

    Attributes
    ----------
    q_dtype, kv_dtype : str
    num_heads, batch : int
    seq : int
        Tokens in the cache of each request, the new ones included; of the longest where ``lengths`` is ``long`` or
        ``zipf``.
    q_len : int
        New tokens of each request.
    page_size : int
    lengths : str
        ``equal``; ``normal``, with half the mean as deviation and as many tokens in all; ``long``, one request of
        65536 tokens among requests of 1024; or ``zipf``, from 65536 tokens to 256 by a power of the rank.
    kv_mean : float
        The mean of keys and values, whose standard deviation is 1.
    """

    q_dtype: str
    kv_dtype: str
    num_heads: int
    batch: int
    seq: int
    q_len: int = 1
    page_size: int = 64
    lengths: str = "equal"
    d_qk: int = HEAD_DIM
    kv_mean: float = 0.0

    @property
    def form(self) -> CacheFormat:
        """The format of the cache."""
        return format_named(self.kv_dtype, self.d_qk, D_V[self.d_qk])

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Tokens in the cache of each request; the same in every run."""
        if self.lengths == "equal":
            return (self.seq,) * self.batch
        if self.lengths == "long":
            return (LONG, *[SHORT] * (self.batch - 1))
        if self.lengths == "zipf":
            return _zipf(self.batch)
        return _normal(self.batch, self.seq)

    @property
    def tokens(self) -> int:
        """Tokens in the cache of all requests."""
        return sum(self.seq_lens)

    @property
    def flop(self) -> int:
        """Two for each multiplication of ``Q K^T`` and ``P V``; every new token with every key, as tables count."""
        return 2 * self.q_len * self.num_heads * self.tokens * (self.d_qk + D_V[self.d_qk])

    @property
    def input_bytes(self) -> int:
        """KV once."""
        return self.tokens * self.form.token_bytes

    @property
    def counts(self) -> dict[str, int]:
        """What it costs, as columns of the table."""
        return {"tokens": self.tokens, "FLOP": self.flop, "bytes": self.bytes}

    @property
    def bytes(self) -> int:
        """KV once, Q and the output."""
        columns_of_row = self.d_qk + D_V[self.d_qk]
        return self.input_bytes + self.batch * self.q_len * self.num_heads * columns_of_row * BYTES[self.q_dtype]

    def config(self, arch: str) -> dict[str, object]:
        """What to look up for it."""
        traits = ("q_dtype", "kv_dtype", "d_qk", "page_size", "num_heads", "q_len")
        widths = {"d_v": D_V[self.d_qk]}
        return {"op": "decode", "arch": arch, "kv_layout": "paged", **attributes(self, traits), **widths}

    @property
    def fields(self) -> dict[str, object]:
        """What tells this cell from another, as columns of the table."""
        names = ("q_dtype", "kv_dtype", "d_qk", "num_heads", "q_len", "batch", "seq", "page_size", "lengths")
        return columns(self, (*names, "kv_mean") if self.kv_mean else names)


def attributes(cell: object, names: Iterable[str]) -> dict[str, object]:
    """Some attributes of a cell by name."""
    return {name: getattr(cell, name) for name in names}


def columns(cell: object, names: Iterable[str]) -> dict[str, object]:
    """Some attributes of a cell by the names of their columns."""
    return {_COLUMNS.get(name, name): value for name, value in attributes(cell, names).items()}


def shapes(
    heads: Iterable[int], q_lens: Iterable[int], batches: Iterable[int], seqs: Iterable[int]
) -> tuple[Shape, ...]:
    """Every combination; the last varies fastest."""
    return tuple(product(heads, q_lens, batches, seqs))


def problems(
    dtypes: Sequence[str],
    shapes: Sequence[Shape],
    page_sizes: Sequence[int] = (64,),
    lengths: str = "equal",
    d_qks: Sequence[int] = (HEAD_DIM,),
) -> tuple[Problem, ...]:
    """Every element type (``bf16``, or ``bf16:e4m3`` for Q and KV) with every width, shape and page size.

    Raises
    ------
    ValueRangeError
        A name is no element type, a number is not positive, or no format has so many columns.
    """
    result = []
    for name, d_qk, (heads, q_len, batch, seq), page_size in product(dtypes, d_qks, shapes, page_sizes):
        q_dtype, kv_dtype = dtypes_of(name)
        require_positive(heads=heads, q_len=q_len, batch=batch, seq=seq, page_size=page_size)
        widths = [row.d_qk for row in FORMATS if row.name == kv_dtype]
        if d_qk not in widths:
            raise ValueRangeError("d-qk", str(d_qk), f"{', '.join(map(str, widths))} of {kv_dtype}")
        longest = LONG if lengths in {"long", "zipf"} else seq
        result.append(Problem(q_dtype, kv_dtype, heads, batch, longest, q_len, page_size, lengths, d_qk))
    return tuple(dict.fromkeys(result))


def dtypes_of(name: str) -> tuple[str, str]:
    """The types of Q and KV that ``bf16`` or ``bf16:e4m3`` names.

    Raises
    ------
    ValueRangeError
    """
    q_dtype, _, kv_dtype = name.partition(":")
    if q_dtype not in BYTES or (kv_dtype or q_dtype) not in KV_DTYPES:
        accepts = f"one of {', '.join(BYTES)}, and after a colon {', '.join(KV_DTYPES)}"
        raise ValueRangeError("dtypes", repr(name), accepts)
    return q_dtype, kv_dtype or q_dtype


def require_positive(**numbers: int) -> None:
    """Refuse numbers below 1, and those that no tensor's extent can be, by the name of their option.

    Raises
    ------
    ValueRangeError
    """
    for name, number in numbers.items():
        if not 1 <= number <= MOST:
            raise ValueRangeError(
                name.replace("_", "-"), str(number), "integers from 1" + " to 2^63 - 1" * (number > 1)
            )


@cache
def _normal(batch: int, mean: int) -> tuple[int, ...]:
    """Lengths from 1 around ``mean``, as many tokens as ``batch`` equal ones."""
    random = Random(f"{batch} x {mean}")
    drawn = [max(1.0, random.gauss(mean, mean / 2)) for _ in range(batch)]
    total = batch * mean
    factor = total / sum(drawn)
    lengths = [max(1, round(length * factor)) for length in drawn]
    while off := total - sum(lengths):
        step = 1 if off > 0 else -1
        for place in sorted(range(batch), key=lengths.__getitem__, reverse=True)[: abs(off)]:
            lengths[place] = max(1, lengths[place] + step)
    return tuple(lengths)


@cache
def _zipf(batch: int) -> tuple[int, ...]:
    """Lengths that fall with a power of their rank, from ``LONG`` to ``SHORTEST``, in random order."""
    exponent = log(LONG / SHORTEST) / log(max(2, batch))
    lengths = [round(LONG / rank**exponent) for rank in range(1, batch + 1)]
    Random(f"zipf {batch}").shuffle(lengths)
    return tuple(lengths)
