"""The cells of sparse attention: shapes, and the arithmetic and bytes that they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from mla_kernels.diagnostics.bench.problems import (
    BYTES,
    Shape,
    attributes,
    columns,
    dtypes_of,
    require_positive,
)
from mla_kernels.errors import ValueRangeError
from mla_kernels.formats import HEAD_DIM, LATENT, CacheFormat, format_named

DECODE_SUITES: dict[str, tuple[Shape, ...]] = {
    "h200": tuple(
        (heads, q_len, batch, 32768)
        for heads, q_len in ((64, 1), (64, 2), (128, 1), (128, 2))
        for batch in (1, 2, 4, 64, 128)
    )
}
PREFILL_SUITES: dict[str, tuple[Shape, ...]] = {
    "h200": tuple((heads, 4096, 1, kv_len) for heads in (128, 64) for kv_len in (8192, 32768, 65536, 131072))
}


@dataclass(frozen=True, slots=True)
class SparseDecode:
    """A sparse decode.

    Attributes
    ----------
    q_dtype, kv_dtype : str
    num_heads, batch : int
    seq : int
        Tokens in the cache of each request.
    topk : int
        Those that a new token attends to, all present and different.
    q_len : int
        New tokens of each request, each with a selection of its own.
    page_size : int
    d_qk : int
        Columns of a query.
    window : int
        Tokens of a second cache, which every new token attends to as well.
    """

    q_dtype: str
    kv_dtype: str
    num_heads: int
    batch: int
    seq: int
    topk: int
    q_len: int = 1
    page_size: int = 64
    d_qk: int = HEAD_DIM
    window: int = 0

    @property
    def form(self) -> CacheFormat:
        """The format of the caches."""
        return format_named(self.kv_dtype, self.d_qk)

    @property
    def counts(self) -> dict[str, int]:
        """Selected tokens; two FLOP for each multiplication; the selected rows, indices, Q and the output."""
        queries = self.batch * self.q_len
        selected = queries * (self.topk + self.window)
        return {
            "tokens": selected,
            "FLOP": 2 * self.num_heads * selected * (self.d_qk + LATENT),
            "bytes": selected * (self.form.token_bytes + 4)
            + queries * self.num_heads * (self.d_qk + LATENT) * BYTES[self.q_dtype],
        }

    @property
    def input_bytes(self) -> int:
        """The caches of all requests."""
        return self.batch * (self.seq + self.window) * self.form.token_bytes

    def config(self, arch: str) -> dict[str, object]:
        """What to look up for it."""
        traits = ("q_dtype", "kv_dtype", "d_qk", "page_size", "num_heads", "q_len")
        return {"op": "sparse_decode", "arch": arch, "topk": self.window or self.topk, **attributes(self, traits)}

    @property
    def fields(self) -> dict[str, object]:
        """What tells this cell from another, as columns of the table."""
        names = ("q_dtype", "kv_dtype", "d_qk", "num_heads", "q_len", "batch", "seq", "topk", "page_size")
        return columns(self, (*names, "window") if self.window else names)


@dataclass(frozen=True, slots=True)
class SparsePrefill:
    """A sparse prefill of one prompt.

    Attributes
    ----------
    q_dtype : str
        Of KV too.
    num_heads, q_len : int
    seq : int
        Rows of KV.
    topk : int
        Those that a token attends to, all present and different.
    d_qk : int
        Columns of a query and of a row of KV.
    """

    q_dtype: str
    num_heads: int
    q_len: int
    seq: int
    topk: int
    d_qk: int = HEAD_DIM

    @property
    def kv_dtype(self) -> str:
        """The type of KV."""
        return self.q_dtype

    @property
    def counts(self) -> dict[str, int]:
        """Selected rows; two FLOP for each multiplication; KV once, indices, Q and the output."""
        size, selected = BYTES[self.q_dtype], self.q_len * self.topk
        queries = self.q_len * self.num_heads
        return {
            "tokens": selected,
            "FLOP": 2 * self.num_heads * selected * (self.d_qk + LATENT),
            "bytes": (self.seq * self.d_qk + queries * (self.d_qk + LATENT)) * size + 4 * selected,
        }

    @property
    def input_bytes(self) -> int:
        """Queries and KV."""
        return (self.seq + self.q_len * self.num_heads) * self.d_qk * BYTES[self.q_dtype]

    def config(self, arch: str) -> dict[str, object]:
        """What to look up for it."""
        traits = ("q_dtype", "kv_dtype", "d_qk", "num_heads", "topk")
        return {"op": "sparse_prefill", "arch": arch, **attributes(self, traits)}

    @property
    def fields(self) -> dict[str, object]:
        """What tells this cell from another, as columns of the table."""
        return columns(self, ("q_dtype", "kv_dtype", "d_qk", "num_heads", "q_len", "seq", "topk"))


def decodes(
    dtypes: Sequence[str], shapes: Sequence[Shape], topks: Sequence[int], page_sizes: Sequence[int]
) -> tuple[SparseDecode, ...]:
    """Every element type (``bf16``, or ``bf16:fp8_ds_mla`` for Q and KV) with every shape, topk and page size.

    Raises
    ------
    ValueRangeError
        A name is no element type, a number is not positive, or a topk exceeds the tokens.
    """
    cells = []
    for name, (heads, q_len, batch, seq), topk, page_size in product(dtypes, shapes, topks, page_sizes):
        q_dtype, kv_dtype = dtypes_of(name)
        require_positive(heads=heads, q_len=q_len, batch=batch, seq=seq, topk=topk, page_size=page_size)
        _require_within(topk, seq)
        cells.append(SparseDecode(q_dtype, kv_dtype, heads, batch, seq, topk, q_len, page_size))
    return tuple(dict.fromkeys(cells))


def prefills(dtypes: Sequence[str], shapes: Sequence[Shape], topks: Sequence[int]) -> tuple[SparsePrefill, ...]:
    """Every element type with every shape, whose batch is 1, and topk.

    Raises
    ------
    ValueRangeError
        As of ``decodes``, or a batch is not 1, or KV is of another type than Q.
    """
    cells = []
    for name, (heads, q_len, batch, kv_len), topk in product(dtypes, shapes, topks):
        q_dtype, kv_dtype = dtypes_of(name)
        if kv_dtype != q_dtype:
            raise ValueRangeError("dtypes", repr(name), "one type for Q and KV, which sparse prefill reads")
        require_positive(heads=heads, q_len=q_len, seq=kv_len, topk=topk)
        if batch != 1:
            raise ValueRangeError("batch", str(batch), "1, because sparse prefill is of one prompt")
        _require_within(topk, kv_len)
        cells.append(SparsePrefill(q_dtype, heads, q_len, kv_len, topk))
    return tuple(dict.fromkeys(cells))


def _require_within(topk: int, seq: int) -> None:
    if topk > seq:
        raise ValueRangeError("topk", str(topk), f"up to {seq}, the tokens in the cache")
