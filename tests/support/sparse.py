"""Random sparse problems: ``SparseDecode(...)`` and ``SparsePrefill(...)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.formats import CacheFormat
from torch import Tensor

from . import memory
from .caches import Packed, encode, poisoned_pool
from .compare import PREFILL, SPARSE, Tolerance, assert_close
from .problems import (
    KV_SCALE,
    SCALE,
    arrange,
    broadcast,
    garbage_workspace,
    generator,
    given_or_made,
    peak_of,
    random,
    tolerances,
    unchanged,
)
from .rows import Row, row

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
ABSENT = (-1, INT_MIN, -2, -577)
"""Indices that select nothing."""


def choose(source: torch.Generator, shape: tuple[int, ...], num_slots: int, lead: int, absent: float) -> Tensor:
    """Choose indices [..., topk], distinct within a token where slots suffice, and make some absent.

    The first ``lead`` of every token are absent.
    """
    *outer, topk = shape
    order = torch.rand(*outer, num_slots, generator=source).argsort(-1)
    repeats = -(-topk // num_slots)
    indices = order.repeat(*[1] * len(outer), repeats)[..., :topk].int()
    drop = torch.rand(*shape, generator=source) < absent
    drop[..., :lead] = True
    codes = torch.tensor(ABSENT, dtype=torch.int32)
    return torch.where(drop, codes[torch.randint(len(ABSENT), shape, generator=source)], indices)


def cut(indices: Tensor, counts: Tensor) -> Tensor:
    """Fill what lies beyond each token's count with garbage, which nobody may look at."""
    beyond = torch.arange(indices.shape[-1]) >= counts[..., None]
    return torch.where(beyond, torch.tensor(INT_MAX, dtype=torch.int32), indices)


def selected(indices: Tensor) -> Tensor:
    """Return the distinct slots among ``indices``."""
    slots = indices.unique().long()
    return slots[(slots >= 0) & (slots != INT_MAX)]


@dataclass(frozen=True)
class Sparse:
    """What both sparse ops share. Rows that no index selects are NaN, and indices that do not count are garbage."""

    variant: str
    q_len: int = 1
    num_heads: int = 16
    topk: int = 64
    lead: int = 0
    absent: float = 0.2
    counts: bool = False
    sink: bool = False
    extra_topk: int = 0
    q_deviation: float = 5.0
    softmax_scale: float = SCALE
    out_scale: float = 1.0
    exact_scales: bool = True
    strided: bool = False
    split_q: bool = False
    broadcast_q: int | None = None
    split_kv: bool = False
    seed: int = 0

    @property
    def row(self) -> Row:
        """The variant under test."""
        return row(self.variant)

    def reproduce(self) -> str:
        """A command that runs this problem alone, from the repository root."""
        return f'reproduce: python -c "from tests.support.sparse import *; {self}.check()"'

    def scalars(self) -> dict[str, Any]:
        """Return the scalar arguments."""
        kv_scale = KV_SCALE if self.row.kv_dtype == "e4m3" else 1.0
        return {"softmax_scale": self.softmax_scale, "kv_scale": kv_scale, "out_scale": self.out_scale}

    def config(self) -> dict[str, Any]:
        """Return the config that looks exactly this variant up."""
        config: dict[str, Any] = {"op": self.row.op, "arch": self.row.arch, **dict(self.row.traits)}
        return config | {"num_heads": self.num_heads, "q_len": self.q_len, "topk": self.topk}

    def queries(self, source: torch.Generator, *tokens: int) -> Packed:
        """Make queries [*tokens, num_heads, d_qk], arranged as asked."""
        q = random(source, *tokens, self.num_heads, self.row.form.d_qk, deviation=self.q_deviation)
        q = q.to(memory.DTYPES[self.row.q_dtype])
        q = arrange(q, strided=self.strided, split=self.split_q, device=self.row.device, form=self.row.form)
        return broadcast(q, self.broadcast_q)

    def sinks(self, source: torch.Generator) -> dict[str, Tensor]:
        """Make ``attn_sink`` where it is asked for."""
        sink = random(source, self.num_heads, deviation=3.0).to(self.row.device)
        return {"attn_sink": sink} if self.sink else {}

    def selection(
        self, source: torch.Generator, shape: tuple[int, ...], num_slots: int, lead: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Make indices [*shape], of which the first ``lead`` are absent, and how many indices of each token count."""
        indices = choose(source, shape, num_slots, lead, self.absent)
        if not self.counts:
            return indices, torch.full(shape[:-1], shape[-1], dtype=torch.int32)
        counts = torch.randint(0, shape[-1] + 1, shape[:-1], generator=source).int()
        counts.view(-1)[0] = shape[-1]
        counts.view(-1)[-1] = 0
        return cut(indices, counts), counts

    def pool(
        self, source: torch.Generator, indices: Tensor, num_pages: int, page_size: int, form: CacheFormat
    ) -> Packed:
        """Make a poisoned pool with random rows at the slots that ``indices`` select."""
        slots, scale = selected(indices), self.scalars()["kv_scale"]
        values = random(source, len(slots), form.d_qk, deviation=0.1)
        return poisoned_pool(
            encode(values, form, scale, exact_scales=self.exact_scales),
            slots,
            num_pages,
            page_size,
            strided=self.strided,
            split=self.split_kv,
            device=self.row.device,
            form=form,
        )

    def on_device(self, indices: Tensor) -> Tensor:
        """Copy the indices to the device, sliced where asked."""
        return (memory.strided_copy(indices) if self.strided else indices).to(self.row.device)

    def compare(self, got: dict[str, Tensor], want: dict[str, Tensor], base: Tolerance) -> None:
        """Compare what there is of ``out``, ``lse`` and ``max_logits``, results by name."""
        for_out, for_lse = tolerances(self.row, base, exact_scales=self.exact_scales, peak=peak_of(want["lse"]))
        for name, result in got.items():
            assert_close(name, result, want[name], for_out if name == "out" else for_lse, self.reproduce())


@dataclass(frozen=True)
class SparseDecode(Sparse):
    """A sparse decode over paged caches."""

    batch: int = 3
    num_pages: int = 9
    page_size: int = 64
    max_splits: int = 0

    def tensors(self) -> dict[str, Any]:
        """Return the tensor arguments on the variant's device."""
        source = generator(self.seed)
        arguments: dict[str, Any] = {"q": self.queries(source, self.batch, self.q_len), **self.sinks(source)}
        caches = {"": (self.num_pages, self.page_size, self.topk)}
        if self.extra_topk:
            caches["extra_"] = (5, 3, self.extra_topk)
        for prefix, (num_pages, page_size, topk) in caches.items():
            lead = 0 if prefix else self.lead
            indices, counts = self.selection(source, (self.batch, self.q_len, topk), num_pages * page_size, lead)
            form = self.row.extra_form if prefix else self.row.form
            arguments[f"{prefix}kv_cache"] = self.pool(source, indices, num_pages, page_size, form)
            arguments[f"{prefix}indices"] = self.on_device(indices)
            if self.counts:
                arguments[f"{prefix}topk_length"] = counts.to(self.row.device)
        return arguments

    def launch(self, inputs: dict[str, Any], **options: Any) -> tuple[Tensor, ...]:
        """Run the kernel on ``inputs``."""
        import mla_kernels as mla

        kernel = mla.lookup(**self.config(), page_size=self.page_size)
        got: tuple[Tensor, ...] = kernel(**inputs, **self.scalars(), max_splits=self.max_splits, **options)
        return got

    def run(self, given: dict[str, Any] | None = None) -> tuple[Tensor, ...]:
        """Return ``out``, ``lse`` and ``max_logits``, written between guard zones over NaN, with a workspace of NaN."""
        inputs, device = given_or_made(self, given), self.row.device
        out_shape = (self.batch, self.q_len, self.num_heads, self.row.form.d_v)
        out = memory.guarded(out_shape, memory.DTYPES[self.row.out_dtype], device)
        lse, max_logits = (
            memory.guarded((self.batch, self.num_heads, self.q_len), torch.float32, device, pad=1) for _ in range(2)
        )
        with unchanged(*inputs.values(), reproduce=self.reproduce()):
            self.launch(
                inputs,
                out=out.view,
                lse=lse.view,
                max_logits=max_logits.view,
                workspace=garbage_workspace(device).fill_(0xFF),
            )
        for name, guarded in (("out", out), ("lse", lse), ("max_logits", max_logits)):
            guarded.assert_guards(name, self.reproduce())
        return out.view, lse.view, max_logits.view

    def expected(self, given: dict[str, Any] | None = None) -> tuple[Tensor, ...]:
        """Return the reference in float64."""
        inputs = given_or_made(self, given)
        named = {"kv_dtype": self.row.kv_dtype, "extra_kv_dtype": self.row.extra_form.name, "dtype": torch.float64}
        return reference.sparse_decode(**inputs, **self.scalars(), return_max_logits=True, **named)

    def check(self) -> None:
        """Run and compare."""
        names = ("out", "lse", "max_logits")
        inputs = self.tensors()
        got, want = (
            dict(zip(names, self.run(inputs), strict=True)),
            dict(zip(names, self.expected(inputs), strict=True)),
        )
        self.compare(got, want, SPARSE)


@dataclass(frozen=True)
class SparsePrefill(Sparse):
    """A sparse prefill over one cache without pages."""

    q_len: int = 5
    kv_len: int = 300

    def tensors(self) -> dict[str, Any]:
        """Return the tensor arguments on the variant's device."""
        source = generator(self.seed)
        arguments: dict[str, Any] = {"q": self.queries(source, self.q_len), **self.sinks(source)}
        caches = {"": (self.kv_len, self.topk)} | ({"extra_": (13, self.extra_topk)} if self.extra_topk else {})
        for prefix, (kv_len, topk) in caches.items():
            indices, counts = self.selection(source, (self.q_len, topk), kv_len, 0 if prefix else self.lead)
            pool = self.pool(source, indices, kv_len, 1, self.row.form)
            arguments[f"{prefix}kv"] = tuple(part[:, 0] for part in pool) if isinstance(pool, tuple) else pool[:, 0]
            arguments[f"{prefix}indices"] = self.on_device(indices)
            if self.counts:
                arguments[f"{prefix}topk_length"] = counts.to(self.row.device)
        return arguments

    def run(self, given: dict[str, Any] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``out``, ``max_logits`` and ``lse``, written between guard zones over NaN."""
        import mla_kernels as mla

        inputs, device = given_or_made(self, given), self.row.device
        out_shape = (self.q_len, self.num_heads, self.row.form.d_v)
        out = memory.guarded(out_shape, memory.DTYPES[self.row.out_dtype], device)
        max_logits, lse = (memory.guarded((self.q_len, self.num_heads), torch.float32, device, pad=1) for _ in range(2))
        written = {"out": out, "max_logits": max_logits, "lse": lse}
        with unchanged(*inputs.values(), reproduce=self.reproduce()):
            kernel = mla.lookup(**self.config())
            kernel(**inputs, **self.scalars(), **{name: guarded.view for name, guarded in written.items()})
        for name, guarded in written.items():
            guarded.assert_guards(name, self.reproduce())
        return out.view, max_logits.view, lse.view

    def expected(self, given: dict[str, Any] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reference in float64."""
        inputs = given_or_made(self, given)
        return reference.sparse_prefill(**inputs, **self.scalars(), dtype=torch.float64)

    def check(self) -> None:
        """Run and compare."""
        names = ("out", "max_logits", "lse")
        inputs = self.tensors()
        got, want = (
            dict(zip(names, self.run(inputs), strict=True)),
            dict(zip(names, self.expected(inputs), strict=True)),
        )
        self.compare(got, want, PREFILL)
