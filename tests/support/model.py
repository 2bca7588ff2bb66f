"""A small model with latent attention and an indexer, and what it computes in plain torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from mla_kernels import reference
from mla_kernels.formats import LATENT, ROPE, format_named
from torch import Tensor, nn

HIDDEN, HEADS, NOPE, V = 96, 6, 32, 32
VOCABULARY = 23
SCALE = (NOPE + ROPE) ** -0.5


class Indexer:
    """Selects positions by what tokens are and where they stand, so that rounding elsewhere changes no selection."""

    def __init__(self, source: torch.Generator, topk: int) -> None:
        self.topk = topk
        self.q, self.k = (torch.randn(HIDDEN, 16, generator=source) for _ in range(2))

    def select(self, embedded: Tensor, first: int) -> Tensor:
        """Positions [tokens - first, topk] for the tokens from ``first``; -1 where fewer precede.

        ``embedded`` [tokens, hidden] are all tokens of a request.
        """
        positions = torch.arange(len(embedded))
        scores = (embedded[first:] @ self.q) @ (embedded @ self.k).T + torch.sin(positions * 1.7)
        scores = scores.masked_fill(positions > positions[first:, None], -torch.inf)
        best = scores.topk(min(self.topk, len(embedded)), dim=-1)
        found = best.indices.where(best.values > -torch.inf, -1).int()
        return nn.functional.pad(found, (0, self.topk - found.shape[-1]), value=-1)


@dataclass
class Layer:
    """The weights of one layer; float32, except those that an engine holds in bf16."""

    source: torch.Generator
    topk: int
    q: Tensor = field(init=False)
    kv: Tensor = field(init=False)
    out: Tensor = field(init=False)
    kv_b_proj: nn.Linear = field(init=False)
    indexer: Indexer = field(init=False)

    def __post_init__(self) -> None:
        self.q = self.random(HIDDEN, HEADS * (NOPE + ROPE), deviation=2.0)
        self.kv = self.random(HIDDEN, LATENT + ROPE)
        self.out = self.random(HEADS * V, HIDDEN)
        self.kv_b_proj = nn.Linear(LATENT, HEADS * (NOPE + V), bias=False, dtype=torch.bfloat16)
        self.kv_b_proj.requires_grad_(False)
        self.kv_b_proj.weight.copy_(self.random(LATENT, HEADS * (NOPE + V)).T)
        self.indexer = Indexer(self.source, self.topk)

    def random(self, rows: int, columns: int, deviation: float = 1.0) -> Tensor:
        """A matrix that keeps the deviation of what it multiplies, times ``deviation``."""
        return torch.randn(rows, columns, generator=self.source) * deviation * rows**-0.5

    def project(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [tokens, heads, nope + rope], latents and rope parts [tokens, width], in bf16."""
        hidden = normed(hidden)
        q_nope, q_rope = (hidden @ self.q).view(-1, HEADS, NOPE + ROPE).split([NOPE, ROPE], -1)
        latent, k_rope = (hidden @ self.kv).split([LATENT, ROPE], -1)
        q = torch.cat([q_nope, rotated(q_rope, positions[:, None])], -1)
        return q.bfloat16(), normed(latent).bfloat16(), rotated(k_rope, positions).bfloat16()

    def add(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The residual stream after this layer, most of it what was attended to."""
        return normed(attended @ self.out) + 0.5 * normed(hidden)


class Model:
    """Two layers between an embedding and a head."""

    def __init__(self, seed: int, topk: int) -> None:
        source = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(VOCABULARY, HIDDEN, generator=source)
        self.layers = [Layer(source, topk) for _ in range(2)]
        self.head = torch.randn(HIDDEN, VOCABULARY, generator=source)

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of every next token."""
        return normed(hidden) @ self.head

    def plain(self, tokens: list[int], cache_dtype: str) -> Tensor:
        """Logits after ``tokens``: multi-head attention over keys and values of every head, nothing absorbed."""
        embedded = self.embedding[tokens]
        hidden, positions = embedded, torch.arange(len(tokens))
        for layer in self.layers:
            q, latent, rope = layer.project(hidden, positions)
            selected = layer.indexer.select(embedded, 0).long()
            heads = layer.kv_b_proj.weight.float() @ rounded(latent, cache_dtype).T
            k_nope, v = heads.view(HEADS, NOPE + V, -1).split([NOPE, V], 1)
            k = torch.cat([k_nope, rope.float().T.expand(HEADS, -1, -1)], 1)
            mask = torch.zeros(len(tokens), len(tokens) + 1, dtype=torch.bool)
            mask = mask.scatter(1, selected.where(selected >= 0, len(tokens)), True)[:, :-1]
            scores = (q.float().transpose(0, 1) @ k * SCALE).masked_fill(~mask, -torch.inf)
            attended = scores.softmax(-1) @ v.transpose(1, 2)
            hidden = layer.add(hidden, attended.transpose(0, 1).flatten(1))
        return self.logits(hidden[-1])

    def generate(self, prompt: list[int], count: int, cache_dtype: str) -> tuple[list[int], float]:
        """``count`` greedy tokens, and the least lead of a chosen one in deviations of its logits."""
        tokens, lead = list(prompt), torch.inf
        for _ in range(count):
            logits = self.plain(tokens, cache_dtype)
            first, second = logits.topk(2).values
            lead = min(lead, float((first - second) / logits.std()))
            tokens.append(int(logits.argmax()))
        return tokens[len(prompt) :], lead


def rounded(latent: Tensor, cache_dtype: str) -> Tensor:
    """What a cache keeps of latents, in float32."""
    if cache_dtype in {"auto", "bfloat16"}:
        return latent.float()
    cache = torch.zeros(1, len(latent), format_named(cache_dtype).token_bytes, dtype=torch.uint8)
    reference.store_kv(latent, latent[:, :ROPE], cache, torch.arange(len(latent)))
    slots = torch.arange(len(latent), dtype=torch.int32)
    return reference.gather_kv(cache, slots, out_dtype="fp32")[:, :LATENT]


def normed(hidden: Tensor) -> Tensor:
    """Divided by its root mean square."""
    return hidden * hidden.square().mean(-1, keepdim=True).rsqrt()


def rotated(rope: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of neighbouring pairs."""
    angles = positions[..., None] * 10000.0 ** (-torch.arange(0, ROPE, 2) / ROPE)
    even, odd = rope[..., ::2], rope[..., 1::2]
    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return torch.stack(turned, -1).flatten(-2)
