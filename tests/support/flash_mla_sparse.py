"""Sparse problems in FlashMLA's shapes: one KV head, its order of arguments, +inf where nothing is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.compat import flash_mla
from mla_kernels.formats import HEAD_DIM, LATENT
from torch import Tensor

from .compare import PREFILL, SPARSE
from .rows import Row, rows
from .sparse import SCALE, SparseDecode, SparsePrefill

Given = dict[str, Any]


def served(op: str, device: str) -> list[Row]:
    """Return the variants that the adapter looks up: KV in the type of the queries, or in rows of bytes.

    528 bytes are V3.2 without rope to it, not V4.1.
    """
    found = [row for row in rows(op) if row.device == device and row.form.d_qk in (HEAD_DIM, LATENT)]
    return [row for row in found if row.kv_dtype == row.q_dtype or (row.form.is_bytes and row.kv_dtype != "fp8_ds_v41")]


def plus_inf(lse: Tensor) -> Tensor:
    """Replace the LSE of rows without keys by FlashMLA's."""
    return lse.where(lse > -torch.inf, torch.inf)


@dataclass(frozen=True)
class WithKvcache:
    """A call of ``flash_mla_with_kvcache`` with indices."""

    problem: SparseDecode

    @property
    def fp8(self) -> bool:
        """Whether the cache is an array of bytes."""
        return self.problem.row.form.is_bytes

    def given(self) -> Given:
        """Return the arguments without metadata."""
        ours = self.problem.tensors()
        given = {
            "q": ours["q"],
            "k_cache": ours["kv_cache"][:, :, None],
            "block_table": None,
            "cache_seqlens": None,
            "head_dim_v": LATENT,
            "softmax_scale": SCALE,
            "is_fp8_kvcache": self.fp8,
            "indices": ours["indices"],
            "attn_sink": ours.get("attn_sink"),
            "topk_length": ours.get("topk_length"),
        }
        if "extra_kv_cache" in ours:
            given |= {
                "extra_k_cache": ours["extra_kv_cache"][:, :, None],
                "extra_indices_in_kvcache": ours["extra_indices"],
                "extra_topk_length": ours.get("extra_topk_length"),
            }
        return given

    def ahead(self, given: Given) -> Given:
        """Return metadata in two tensors, as callers with CUDA graphs ask for it."""
        batch, s_q, heads, _ = given["q"].shape
        lengths = torch.full((batch,), given["indices"].shape[-1], dtype=torch.int32, device=given["q"].device)
        meta, num_splits = flash_mla.get_mla_metadata(
            cache_seqlens=lengths, num_q_tokens_per_head_k=s_q * heads, topk=given["indices"].shape[-1],
            num_heads_q=heads, num_heads_k=1, is_fp8_kvcache=self.fp8,
        )  # fmt: skip
        return {"tile_scheduler_metadata": meta.clone(), "num_splits": num_splits.clone()}

    def lazily(self, _: Given) -> Given:
        """Return metadata in an object."""
        return {"tile_scheduler_metadata": flash_mla.get_mla_metadata()[0]}

    def compare(self, out: Tensor, lse: Tensor) -> None:
        """Compare a result with the reference."""
        want_out, want_lse, _ = self.problem.expected()
        got, want = {"out": out, "lse": lse}, {"out": want_out, "lse": plus_inf(want_lse)}
        self.problem.compare(got | {"max_logits": lse}, want | {"max_logits": want["lse"]}, SPARSE)

    def check(self) -> None:
        """Run with metadata in both conventions and compare."""
        for convention in (self.ahead, self.lazily):
            given = self.given()
            self.compare(*flash_mla.flash_mla_with_kvcache(**given, **convention(given)))


@dataclass(frozen=True)
class SparseFwd:
    """A call of ``flash_mla_sparse_fwd``."""

    problem: SparsePrefill
    rope: bool = True

    def given(self) -> Given:
        """Return the arguments, of latents alone where there is no rope."""
        ours = self.problem.tensors()
        width = HEAD_DIM if self.rope else LATENT
        return {
            "q": ours["q"][..., :width].contiguous(),
            "kv": ours["kv"][:, None, :width].contiguous(),
            "indices": ours["indices"][:, None],
            "sm_scale": SCALE,
            "attn_sink": ours.get("attn_sink"),
            "topk_length": ours.get("topk_length"),
        }

    def expected(self, given: Given) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reference in float64, where rows without rope get one of zeros."""
        pad = (0, HEAD_DIM - given["q"].shape[-1])
        q, kv = (torch.nn.functional.pad(given[name], pad) for name in ("q", "kv"))
        options = {name: given[name] for name in ("attn_sink", "topk_length")}
        out, max_logits, lse = reference.sparse_prefill(
            q, kv[:, 0], given["indices"][:, 0], softmax_scale=SCALE, dtype=torch.float64, **options
        )
        return out, max_logits, plus_inf(lse)

    def check(self) -> None:
        """Run by both names and compare."""
        names = ("out", "max_logits", "lse")
        given = self.given()
        want = dict(zip(names, self.expected(given), strict=True))
        for function in (flash_mla.flash_mla_sparse_fwd, flash_mla.flash_mla_sparse_prefill):
            self.problem.compare(dict(zip(names, function(**given), strict=True)), want, PREFILL)


def past_the_end(indices: Tensor, slots: int) -> Tensor:
    """Replace indices that select nothing by ones that are too large."""
    large = torch.tensor([slots, slots + 1, 2**31 - 1], dtype=torch.int32, device=indices.device)
    choice = torch.arange(indices.numel(), device=indices.device).view(indices.shape) % 3
    return indices.where(indices >= 0, large[choice])
