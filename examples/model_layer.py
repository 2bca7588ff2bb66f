"""One attention layer of the shape of GLM-5.3-Flash, DeepSeek V4 or Mistral-Small-4: prefill, then decode.

``python examples/model_layer.py`` runs on the CPU. Heads, widths, sinks and cache formats are those of
``mla_kernels.models``; weights and prompt are random, and small enough for a laptop. Each step is checked against
attention over full keys and values of every head, in float32. Sparse models attend to the last 64 tokens here, in the
place of those that an indexer would select.
"""

from __future__ import annotations

import mla_kernels as mla
import torch
from mla_kernels.models import Model, model
from rich.console import Console
from rich.table import Table
from torch import Tensor

MODELS = {"GLM-5.3-Flash": "fp8_ds_mla", "DeepSeek-V4-Flash": "fp8_ds_v4", "Mistral-Small-4": "bf16"}
"""Each with the format of its cache, of those that engines store it in."""
HIDDEN, NOPE, VALUE, ROPE = 1024, 128, 128, 64
PAGE, PAGES, PROMPT, STEPS, TOPK = 64, 4, 150, 4, 64
V4_ROW, V4_ALIGNMENT = 584, 576
"""Bytes of a token in DeepSeek V4's cache, and of what its pages are multiples."""


class Layer:
    """Projections in plain torch, cache and attention by the kernels; one request."""

    def __init__(self, shape: Model, kv_dtype: str) -> None:
        self.shape, self.format = shape, kv_dtype
        source = torch.Generator().manual_seed(2026)
        self.shared = self.format == "fp8_ds_v4"  # the value is the whole row, so that nothing is absorbed
        self.rope = ROPE if self.shared else shape.d_qk - shape.d_v
        self.nope = shape.d_qk - ROPE if self.shared else NOPE
        self.content = shape.d_qk - self.rope
        self.q = weight(source, HIDDEN, shape.heads * (self.nope + self.rope))
        self.kv = weight(source, HIDDEN, shape.d_qk)
        self.key = weight(source, self.content, shape.heads * NOPE).view(self.content, shape.heads, NOPE)
        self.value = weight(source, shape.d_v, shape.heads * VALUE).view(shape.d_v, shape.heads, VALUE)
        self.sink = torch.randn(shape.heads, generator=source) if shape.sink else None
        self.scale = (self.nope + self.rope) ** -0.5
        self.cache = self._cache()
        self.table = torch.randperm(PAGES, generator=source).int().view(1, PAGES)
        self.seen = 0

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Values [tokens, heads, 128] of the next tokens, and what full attention in float32 gives for them."""
        positions = torch.arange(self.seen, self.seen + len(hidden))
        self.seen += len(hidden)
        content, rope = (hidden @ self.kv).split([self.content, self.rope], -1)
        latent, rotary = normed(content).bfloat16(), rotated(rope, positions).bfloat16() if self.rope else None
        mla.store_kv(latent, rotary, self.cache, self.slots(positions), kv_dtype=self._named)
        nope, rope = (hidden @ self.q).view(len(hidden), self.shape.heads, -1).split([self.nope, self.rope], -1)
        rope = rotated(rope, positions[:, None]) if self.rope else rope
        absorbed = nope if self.shared else torch.einsum("thn,lhn->thl", nope, self.key)
        chosen = self._chosen(positions)
        attended = self._attend(torch.cat([absorbed, rope], -1).bfloat16(), chosen)
        values = torch.einsum("thl,lhv->thv", attended.float(), self.value)
        return values, self._expected(nope, rope, chosen)

    def slots(self, positions: Tensor) -> Tensor:
        """The places of positions in the cache."""
        return self.table[0, positions // PAGE].long() * PAGE + positions % PAGE

    @property
    def _named(self) -> str | None:
        """The format's name, where the rows of the cache have a twin."""
        return self.format if self.cache.shape[-1] == 528 else None

    def _cache(self) -> Tensor:
        if self.format == "bf16":
            return torch.zeros(PAGES, PAGE, self.shape.d_qk, dtype=torch.bfloat16)
        if not self.shared:
            return torch.zeros(PAGES, PAGE, 528, dtype=torch.uint8)
        page = -(-PAGE * V4_ROW // V4_ALIGNMENT) * V4_ALIGNMENT
        return torch.zeros(PAGES, page, dtype=torch.uint8).as_strided((PAGES, PAGE, V4_ROW), (page, V4_ROW, 1))

    def _chosen(self, positions: Tensor) -> Tensor:
        """The positions [tokens, topk] that each token attends to, -1 where there are fewer: the last ones, or all."""
        width = TOPK if self.shape.topk else self.seen
        last = positions[:, None] - torch.arange(width)
        return last.where(last >= 0, -1)

    def _attend(self, q: Tensor, chosen: Tensor) -> Tensor:
        if not self.shape.topk:
            lengths = torch.tensor([self.seen], dtype=torch.int32)
            return mla.decode(q[None], self.cache, self.table, lengths, softmax_scale=self.scale)[0][0]
        indices = torch.where(chosen >= 0, self.slots(chosen.clamp(min=0)), -1).int()
        options = {"softmax_scale": self.scale, "attn_sink": self.sink, "kv_dtype": self._named}
        return mla.sparse_decode(q[:, None], self.cache, indices[:, None], **options)[0][:, 0]

    def _expected(self, nope: Tensor, rope: Tensor, chosen: Tensor) -> Tensor:
        rows = mla.gather_kv(self.cache, self.slots(torch.arange(self.seen)).int(), kv_dtype=self._named).float()
        content, rotary = rows.split([self.content, self.rope], -1)
        keys = content[:, None] if self.shared else torch.einsum("sl,lhn->shn", content, self.key)
        scores = torch.einsum("thn,shn->ths", nope, keys.expand(-1, self.shape.heads, -1))
        scores = (scores + torch.einsum("thr,sr->ths", rope, rotary)) * self.scale
        mask = torch.zeros(len(nope), self.seen + 1, dtype=torch.bool)
        mask = mask.scatter(1, chosen.where(chosen >= 0, self.seen), True)[:, None, :-1]
        scores = scores.masked_fill(~mask, -torch.inf)
        if self.sink is not None:
            scores = torch.cat([scores, self.sink.expand(len(nope), -1)[..., None]], -1)
        weights = scores.softmax(-1)[..., : self.seen]
        values = torch.einsum("sl,lhv->shv", rows[:, : self.shape.d_v], self.value)
        return torch.einsum("ths,shv->thv", weights, values)


def weight(source: torch.Generator, rows: int, columns: int) -> Tensor:
    """A random matrix that keeps the deviation of what it multiplies."""
    return torch.randn(rows, columns, generator=source) * rows**-0.5


def normed(hidden: Tensor) -> Tensor:
    """Divided by its root mean square."""
    return hidden * hidden.square().mean(-1, keepdim=True).rsqrt()


def rotated(rope: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of neighbouring pairs."""
    angles = positions[..., None] * 10000.0 ** (-torch.arange(0, ROPE, 2) / ROPE)
    even, odd = rope[..., ::2], rope[..., 1::2]
    turned = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(turned, -1).flatten(-2)


def main() -> None:
    """Print, for each model and step, its tokens and its largest error against float32."""
    table = Table("model", "cache", "step", "tokens", "in cache", "error")
    source = torch.Generator().manual_seed(0)
    for name, kv_dtype in MODELS.items():
        layer = Layer(model(name), kv_dtype)
        for step in range(1 + STEPS):
            hidden = torch.randn(1 if step else PROMPT, HIDDEN, generator=source)
            values, expected = layer(hidden)
            error = float((values - expected).abs().max())
            kind = "decode" if step else "prefill"
            table.add_row(name, layer.format, kind, str(len(hidden)), str(layer.seen), f"{error:.1e}")
            if not error < 0.05:
                raise SystemExit(f"{name}: a {kind} differs from float32 by {error}")
    Console().print(table)


if __name__ == "__main__":
    main()
