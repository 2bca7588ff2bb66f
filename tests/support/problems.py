"""Random problems that are rebuilt from their own repr, so that a failure prints how to reproduce it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.formats import CacheFormat, format_named
from torch import Tensor

from . import memory
from .caches import Packed, encode, generator, poisoned_pool, random
from .compare import (
    DENSE,
    FP8,
    FP8_LSE,
    LSE,
    QUANTISED,
    ROUNDED_KEYS_LSE,
    SINGLE,
    SINGLE_LSE,
    SPARSE,
    Tolerance,
    assert_close,
    assert_same_bytes,
)
from .rows import Row, row

SCALE = 192**-0.5
KV_SCALE = 0.00173
"""The scale of e4m3 caches is no power of two, so that forgetting it shows."""


def arrange(values: Tensor, *, strided: bool, split: bool, device: str, form: CacheFormat | None = None) -> Packed:
    """Arrange rows of latent and rope as asked: sliced out of a larger tensor, latent and rope apart, or plain."""
    form = form or format_named("bf16")
    widths = [form.latent, form.rope]
    parts = [part.contiguous().to(device) for part in (values.split(widths, -1) if split else [values])]
    if strided:
        parts = [memory.strided_copy(part) for part in parts]
    return (parts[0], parts[1]) if split else parts[0]


def broadcast(values: Packed, dim: int | None) -> Packed:
    """Repeat what is at index 0 of a dimension along all of it, with a stride of 0; None changes nothing."""
    if dim is None:
        return values
    if isinstance(values, tuple):
        latent, rope = values
        return latent.narrow(dim, 0, 1).expand_as(latent), rope.narrow(dim, 0, 1).expand_as(rope)
    return values.narrow(dim, 0, 1).expand_as(values)


def tensors_of(*values: Any) -> list[Tensor]:
    """Return the tensors among ``values``, with pairs taken apart."""
    flat: list[Tensor] = []
    for value in values:
        flat += tensors_of(*value) if isinstance(value, tuple) else [value] if isinstance(value, Tensor) else []
    return flat


@contextmanager
def unchanged(*values: Any, reproduce: str = "") -> Iterator[None]:
    """Raise ``AssertionError`` where one of these tensors has other bytes after the block."""
    before = [(tensor, tensor.clone()) for tensor in tensors_of(*values)]
    yield
    for tensor, copy in before:
        assert_same_bytes("an input", tensor, copy, reproduce)


def tolerances(variant: Row, base: Tolerance, *, exact_scales: bool, peak: float) -> tuple[Tolerance, Tolerance]:
    """Return what ``out`` and ``lse`` may differ by.

    ``peak`` is the largest log-sum-exp: a logit's float32 error grows with the terms that it sums, even where the
    sum is near 0, and exp turns it into a relative error of the weights.
    """
    form = variant.form
    rounded = form.is_bytes and form.scale_type == "fp32" and not exact_scales  # others multiply exactly
    single = variant.q_dtype == "fp32"
    base = QUANTISED if variant.q_dtype == "e4m3" or variant.rounds_to_e4m3 else base
    for_lse = SINGLE_LSE if single else ROUNDED_KEYS_LSE if rounded else LSE
    if variant.rounds_to_e4m3 and variant.device != "cpu":
        base, for_lse = FP8, FP8_LSE
    for_lse = replace(for_lse, absolute=for_lse.absolute * max(1.0, peak / 4))
    return SINGLE.widened(max(1.0, peak / 8)) if single and not variant.rounds_to_e4m3 else base, for_lse


def peak_of(lse: Tensor) -> float:
    """Return the magnitude of the largest finite log-sum-exp."""
    finite = lse[torch.isfinite(lse)]
    return float(finite.abs().max()) if finite.numel() else 0.0


@functools.cache
def garbage_workspace(device: str) -> Tensor:
    """Return a workspace with room for every small problem; it is refilled before each use."""
    return memory.garbage(64 << 20 if device == "cpu" else 512 << 20, device)


def given_or_made(problem: Any, given: dict[str, Any] | None) -> dict[str, Any]:
    """Return the tensors that were given, or make the problem's."""
    made: dict[str, Any] = problem.tensors() if given is None else given
    return made


@dataclass(frozen=True)
class Decode:
    """A dense decode whose unused memory is poisoned; ``q_lens`` gives each request its own number of query tokens."""

    variant: str
    lengths: tuple[int, ...] = (140, 20, 1, 0)
    num_heads: int = 16
    q_len: int = 1
    q_lens: tuple[int, ...] = ()
    page_size: int = 64
    paged: bool = True
    causal: bool = True
    max_splits: int | None = None
    batch_invariant: bool = False
    q_deviation: float = 5.0
    softmax_scale: float = SCALE
    out_scale: float = 1.0
    exact_scales: bool = True
    strided: bool = False
    split_q: bool = False
    broadcast_q: int | None = None
    split_kv: bool = False
    uint8: bool = False
    per_token: bool = False
    finite: bool = False
    spare: int = 3
    seed: int = 0

    @property
    def row(self) -> Row:
        """The variant under test."""
        return row(self.variant)

    @property
    def most_q_len(self) -> int:
        """The most query tokens of a request."""
        return max((*self.q_lens, 1)) if self.q_lens else self.q_len

    @property
    def queries(self) -> tuple[int, int]:
        """The batch and the query tokens of ``q``: ragged ones are one batch, the last of which no request has."""
        return (1, sum(self.q_lens) + self.spare) if self.q_lens else (len(self.lengths), self.q_len)

    @property
    def q_scale(self) -> float:
        """The factor of an e4m3 query."""
        return 0.7 if self.row.q_dtype == "e4m3" else 1.0

    @property
    def kv_scale(self) -> float:
        """The factor of an e4m3 cache."""
        return KV_SCALE if self.row.kv_dtype == "e4m3" else 1.0

    def reproduce(self) -> str:
        """Return the command that runs this problem alone from the repository root."""
        return f'reproduce: python -c "from tests.support.problems import *; {self}.check()"'

    @functools.cached_property
    def slots(self) -> tuple[Tensor, ...]:
        """The global slots of each request, in order."""
        if not self.paged:
            return tuple(b * self.capacity + torch.arange(n) for b, n in enumerate(self.lengths))
        return tuple(
            self.block_table[b, torch.arange(n) // self.page_size].long() * self.page_size
            + torch.arange(n) % self.page_size
            for b, n in enumerate(self.lengths)
        )

    @property
    def capacity(self) -> int:
        """The tokens that a contiguous request has room for."""
        return max((*self.lengths, 1)) + self.spare

    @functools.cached_property
    def pages(self) -> tuple[int, ...]:
        """The pages that each request uses."""
        return tuple(-(-n // self.page_size) for n in self.lengths)

    @functools.cached_property
    def block_table(self) -> Tensor:
        """The permuted pages of each request. Entries beyond its length name no page."""
        order = torch.randperm(sum(self.pages) + self.spare, generator=generator(self.seed + 1))
        table = torch.full((len(self.lengths), max((*self.pages, 1)) + self.spare), memory.UNUSED_PAGE)
        at = 0
        for b, used in enumerate(self.pages):
            table[b, :used] = order[at : at + used]
            at += used
        return table.int()

    def numbers(self, source: torch.Generator, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return queries of this shape and the rows of all requests, in float32."""
        q = random(source, *shape, deviation=self.q_deviation)
        return q, random(source, sum(self.lengths), self.row.form.d_qk, deviation=0.1)

    def tensors(self) -> dict[str, Any]:
        """Return the arguments ``q, kv_cache, block_table, seq_lens`` on the variant's device."""
        source, device, variant = generator(self.seed), self.row.device, self.row
        form = variant.form
        shape = (*self.queries, self.num_heads, form.d_qk)
        q, values = self.numbers(source, shape)
        q = q.to(memory.DTYPES[variant.q_dtype])
        stored = encode(values, form, self.kv_scale, exact_scales=self.exact_scales)
        slots = torch.cat(self.slots) if self.lengths else torch.zeros(0)
        size = self.page_size if self.paged else self.capacity
        num_pages = sum(self.pages) + self.spare if self.paged else len(self.lengths)
        kv_cache = poisoned_pool(
            stored,
            slots,
            num_pages,
            size,
            strided=self.strided,
            split=self.split_kv,
            device=device,
            finite=self.finite,
            form=form,
        )
        if self.uint8 and isinstance(kv_cache, Tensor):
            kv_cache = kv_cache.view(torch.uint8)
        table = memory.strided_copy(self.block_table) if self.strided else self.block_table
        return {
            "q": broadcast(
                arrange(q, strided=self.strided, split=self.split_q, device=device, form=form), self.broadcast_q
            ),
            "kv_cache": kv_cache,
            "block_table": table.to(device) if self.paged else None,
            "seq_lens": torch.tensor(self.lengths, dtype=torch.int32, device=device),
            **({"cu_seqlens_q": self.bounds.to(device)} if self.q_lens else {}),
            **({"token_seq_lens": self.token_seq_lens.to(device)} if self.per_token else {}),
        }

    @property
    def token_seq_lens(self) -> Tensor:
        """How many keys each query token sees, in no order; tokens of no request have a wild number."""
        source = generator(self.seed + 2)
        counts = self.q_lens or (self.q_len,) * len(self.lengths)
        seen = [torch.randint(n + 1, (count,), generator=source) for n, count in zip(self.lengths, counts, strict=True)]
        batch, tokens = self.queries
        spare = torch.full((batch * tokens - sum(counts),), memory.UNUSED_PAGE)
        lengths = torch.cat([*seen, spare]).view(batch, tokens).int()
        return memory.strided_copy(lengths) if self.strided else lengths

    @property
    def bounds(self) -> Tensor:
        """Where the query tokens of each request begin, and where the last one's end."""
        return torch.tensor((0, *self.q_lens)).cumsum(0).int()

    def scalars(self) -> dict[str, Any]:
        """Return the scalar arguments that the reference takes too."""
        return {
            "softmax_scale": self.softmax_scale,
            "causal": self.causal,
            "q_scale": self.q_scale,
            "kv_scale": self.kv_scale,
            "out_scale": self.out_scale,
        }

    @property
    def options(self) -> dict[str, Any]:
        """What selects the variant beside its tensors, for the op in one call and for the reference."""
        return {"compute_dtype": "e4m3"} if self.row.rounds_to_e4m3 else {}

    def kernel(self) -> Any:
        """Look up the kernel of exactly this variant."""
        import mla_kernels as mla

        config: dict[str, Any] = {"op": "decode", "arch": self.row.arch, **dict(self.row.traits)}
        config |= {"num_heads": self.num_heads, "q_len": self.most_q_len}
        config |= {"kv_layout": "paged", "page_size": self.page_size} if self.paged else {"kv_layout": "contiguous"}
        return mla.lookup(**config)

    def plan(self, kernel: Any, seq_lens: Tensor) -> Any:
        """Make the plan that was asked for, or None."""
        if self.max_splits is None and not self.batch_invariant and not self.q_lens:
            return None
        return kernel.plan(
            seq_lens,
            num_heads=self.num_heads,
            **({"max_q_len": self.most_q_len} if self.q_lens else {"q_len": self.q_len}),
            max_splits=self.max_splits or 0,
            batch_invariant=self.batch_invariant,
        )

    def launch(self, inputs: dict[str, Any], **options: Any) -> tuple[Tensor, Tensor]:
        """Run the kernel on ``inputs``."""
        kernel = self.kernel()
        plan = self.plan(kernel, inputs["seq_lens"])
        out, lse = kernel(**inputs, **self.scalars(), plan=plan, **options)
        return out, lse

    def run(self, given: dict[str, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Return ``out`` and ``lse``, written between guard zones over NaN with a workspace full of NaN."""
        inputs, device = given_or_made(self, given), self.row.device
        batch, tokens = self.queries
        shape = (batch, tokens, self.num_heads, self.row.form.d_v)
        out = memory.guarded(shape, memory.DTYPES[self.row.out_dtype], device)
        lse = memory.guarded((batch, self.num_heads, tokens), torch.float32, device, pad=1)
        workspace = garbage_workspace(device).fill_(0xFF)
        with unchanged(*inputs.values(), reproduce=self.reproduce()):
            self.launch(inputs, out=out.view, lse=lse.view, workspace=workspace)
        out.assert_guards("out", self.reproduce())
        lse.assert_guards("lse", self.reproduce())
        return out.view, lse.view

    def expected(self, given: dict[str, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Return the reference in float64."""
        inputs = given_or_made(self, given)
        return reference.decode(**inputs, **self.scalars(), **self.options, dtype=torch.float64)

    def check(self) -> None:
        """Run and compare."""
        inputs = self.tensors()
        out, lse = self.run(inputs)
        self.compare(out, lse, *self.expected(inputs))

    def compare(self, out: Tensor, lse: Tensor, want_out: Tensor, want_lse: Tensor) -> None:
        """Compare a result of this problem with the wanted one."""
        base = SPARSE if self.row.form.is_bytes else DENSE
        peak = peak_of(want_lse)
        for_out, for_lse = tolerances(self.row, base, exact_scales=self.exact_scales, peak=peak)
        if self.q_lens:  # nothing is written for the last tokens
            of_requests = sum(self.q_lens)
            assert bool(out[:, of_requests:].isnan().all()), self.reproduce()
            assert bool(lse[:, :, of_requests:].isnan().all()), self.reproduce()
            out, want_out = out[:, :of_requests], want_out[:, :of_requests]
            lse, want_lse = lse[:, :, :of_requests], want_lse[:, :, :of_requests]
        assert_close("lse", lse, want_lse, for_lse, self.reproduce())
        assert_close("out", out, want_out, for_out, self.reproduce())
