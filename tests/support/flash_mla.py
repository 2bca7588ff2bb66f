"""Problems in FlashMLA's shapes: query heads are grouped over several KV heads, and unused memory is poisoned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.compat import flash_mla
from mla_kernels.formats import HEAD_DIM, LATENT
from torch import Tensor

from . import memory
from .caches import write_rows
from .compare import DENSE, assert_close
from .problems import Decode, generator, peak_of, random, tolerances, unchanged
from .rows import Row, row

Given = dict[str, Any]
Convention = Callable[["FlashMla", Given], Given]

HEADS = ((16, 1), (6, 2), (9, 3), (128, 8))
"""These are the numbers of query heads and of KV heads."""
QUERY_TOKENS = (1, 2, 4)


@dataclass(frozen=True)
class FlashMla:
    """A call of ``flash_mla_with_kvcache``. Every arch takes pages of 128 tokens."""

    variant: str
    lengths: tuple[int, ...] = (140, 20, 1, 0, 1100)
    num_heads_q: int = 16
    num_heads_k: int = 1
    s_q: int = 1
    causal: bool = False
    page_size: int = 128
    softmax_scale: float | None = None
    strided: bool = False
    spare: int = 3
    seed: int = 0

    @property
    def row(self) -> Row:
        """The variant under test."""
        return row(self.variant)

    @cached_property
    def heads(self) -> Decode:
        """The query heads of one KV head are a problem of ``mla_kernels.decode``."""
        return Decode(
            self.variant, lengths=self.lengths, num_heads=self.num_heads_q // self.num_heads_k, q_len=self.s_q,
            page_size=self.page_size, causal=self.causal, spare=self.spare, seed=self.seed,
            softmax_scale=HEAD_DIM**-0.5 if self.softmax_scale is None else self.softmax_scale,
        )  # fmt: skip

    def reproduce(self) -> str:
        """Return the command that runs this problem alone from the repository root."""
        return f'reproduce: python -c "from tests.support.flash_mla import *; {self}.check()"'

    def given(self) -> Given:
        """Return the arguments on the variant's device, without metadata."""
        source, device, dtype = generator(self.seed), self.row.device, memory.DTYPES[self.row.q_dtype]
        q = random(source, len(self.lengths), self.s_q, self.num_heads_q, HEAD_DIM, deviation=5.0).to(dtype).to(device)
        values = random(source, sum(self.lengths), self.num_heads_k * HEAD_DIM, deviation=0.1).to(dtype)
        pages = sum(self.heads.pages) + self.spare
        # A row of the pool is a token of every KV head. Beside strided rows lie others that nobody may read.
        heads = self.num_heads_k + 2 * self.strided
        pool = memory.poisoned((pages, self.page_size, heads, HEAD_DIM), dtype, device)
        k_cache = pool[:, :, int(self.strided) :][:, :, : self.num_heads_k]
        write_rows(
            k_cache, torch.cat([torch.arange(0), *self.heads.slots]), values.unflatten(-1, (self.num_heads_k, HEAD_DIM))
        )
        table = self.heads.block_table
        return {
            "q": memory.strided_copy(q) if self.strided else q,
            "k_cache": k_cache,
            "block_table": (memory.strided_copy(table) if self.strided else table).to(device),
            "cache_seqlens": torch.tensor(self.lengths, dtype=torch.int32, device=device),
            "head_dim_v": LATENT,
            "softmax_scale": self.softmax_scale,
            "causal": self.causal,
        }

    def metadata(self, cache_seqlens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two tensors of the convention that passes arguments to ``get_mla_metadata``."""
        rows = self.s_q * self.num_heads_q // self.num_heads_k
        return flash_mla.get_mla_metadata(cache_seqlens, rows, self.num_heads_k)

    def expected(self) -> tuple[Tensor, Tensor]:
        """Return the reference in float64, KV head by KV head, with FlashMLA's +inf."""
        given, results = self.given(), []
        for head, q in enumerate(given["q"].chunk(self.num_heads_k, 2)):
            inputs = (q, given["k_cache"][:, :, head], given["block_table"], given["cache_seqlens"])
            results.append(reference.decode(*inputs, **self.heads.scalars(), dtype=torch.float64))
        out, lse = torch.cat([out for out, _ in results], 2), torch.cat([lse for _, lse in results], 1)
        return out, lse.where(lse > -torch.inf, torch.inf)

    def compare(self, out: Tensor, lse: Tensor) -> None:
        """Compare a result with the reference."""
        want_out, want_lse = self.expected()
        assert out.dtype == memory.DTYPES[self.row.out_dtype]
        assert lse.dtype == torch.float32
        for_out, for_lse = tolerances(self.row, DENSE, exact_scales=True, peak=peak_of(want_lse))
        assert_close("lse", lse, want_lse, for_lse, self.reproduce())
        assert_close("out", out, want_out, for_out, self.reproduce())

    def check(self, convention: Convention | None = None) -> None:
        """Run and compare, in all conventions of metadata where none is given."""
        for each in [convention] if convention else CONVENTIONS.values():
            given = self.given()
            given |= each(self, given)
            with unchanged(*given.values(), reproduce=self.reproduce()):
                out, lse = flash_mla.flash_mla_with_kvcache(**given)
            self.compare(out, lse)


def lazily(_: FlashMla, __: Given) -> Given:
    """Pass an object that the call fills."""
    meta, nothing = flash_mla.get_mla_metadata()
    assert nothing is None
    return {"tile_scheduler_metadata": meta}


def ahead(problem: FlashMla, given: Given) -> Given:
    """Pass the two tensors that are made ahead of the call."""
    meta, num_splits = problem.metadata(given["cache_seqlens"])
    return {"tile_scheduler_metadata": meta, "num_splits": num_splits}


def alone(problem: FlashMla, given: Given) -> Given:
    """Pass the first result alone, as the object that FlashMLA 9241ae3 and vLLM 0.33 take it for."""
    meta, _ = problem.metadata(given["cache_seqlens"])
    assert isinstance(meta, flash_mla.FlashMLASchedMeta)
    return {"tile_scheduler_metadata": meta, "num_splits": None}


def copied(problem: FlashMla, given: Given) -> Given:
    """Pass slices of larger buffers into which the two tensors were copied, as callers with CUDA graphs do."""
    meta, num_splits = problem.metadata(given["cache_seqlens"])
    parts, batch = meta.size(0), num_splits.size(0)
    persistent = meta.new_full((parts + 7, 8), -1)
    splits = num_splits.new_full((batch + 5,), -1)
    persistent[:parts].copy_(meta)
    splits[:batch].copy_(num_splits)
    meta.fill_(-1)
    num_splits.fill_(-1)
    return {"tile_scheduler_metadata": persistent[:parts], "num_splits": splits[:batch]}


CONVENTIONS: dict[str, Convention] = {each.__name__: each for each in (lazily, ahead, alone, copied)}


def check_object_serves_layers_and_steps(variant: str) -> None:
    """Check that an object serves several layers, and lengths other than those that it was filled for."""
    problem = FlashMla(variant)
    meta, _ = flash_mla.get_mla_metadata()
    assert not meta.have_initialized
    filled = None
    for lengths in (problem.lengths, problem.lengths, (1200, 0, 700, 3, 20), (0, 0, 0, 0, 1)):
        layer = replace(problem, lengths=lengths, seed=sum(lengths))
        layer.compare(*flash_mla.flash_mla_with_kvcache(**layer.given(), tile_scheduler_metadata=meta))
        assert meta.have_initialized
        filled = filled if filled is not None else meta.tile_scheduler_metadata
        assert meta.tile_scheduler_metadata is filled


def check_plans_are_of_rows(variants: list[str]) -> None:
    """Check that all variants and all factors of the rows give the same plan, as ``get_mla_metadata`` assumes."""
    lengths = torch.tensor((4000, 140, 20, 0, 1100), dtype=torch.int32, device=row(variants[0]).device)
    for rows in (1, 6, 64, 128, 512):
        factors = [(q_len, rows // q_len) for q_len in (1, 2, 4, rows) if rows % q_len == 0 and rows // q_len <= 128]
        plans = {
            (variant, q_len, num_heads): _plan_of(variant, q_len, num_heads, lengths)
            for variant in variants
            for q_len, num_heads in factors
            if row(variant).serves(q_len=q_len, num_heads=num_heads)
        }
        first = next(iter(plans.values()))
        for which, plan in plans.items():
            assert plan == first, f"{which} plans otherwise than {next(iter(plans))}"


def _plan_of(variant: str, q_len: int, num_heads: int, lengths: Tensor) -> list[int]:
    """Return the bytes of a plan, where those that are not written are 255."""
    kernel = Decode(variant, q_len=q_len, num_heads=num_heads, page_size=128).kernel()
    plan = kernel.plan(lengths)
    plan.buffer.fill_(255)
    return kernel.plan(lengths, out=plan).buffer.tolist()
