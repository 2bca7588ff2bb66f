"""One DeepSeek-V3.2-shaped attention layer by the FlashMLA sparse backend: prefill, then decode over the top-k tokens.

``python examples/deepseek_layer.py [--device cuda] [--cache bfloat16]`` runs on the CPU unless a payload for the
current GPU attends sparsely, over a cache of 656 bytes a token unless told otherwise; it checks itself against float32.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import torch
from mla_kernels.backends.flashmla_sparse import FlashMLASparseBackend
from mla_kernels.devices import devices
from rich.console import Console
from rich.table import Table
from torch import Tensor

HIDDEN, Q_RANK, HEADS, LATENT, NOPE, ROPE, VALUE = 7168, 1536, 128, 512, 128, 64, 128
INDEX_HEADS, INDEX_DIM, TOPK = 64, 128, 64
PAGE, PAGES, PROMPT, STEPS = 64, 8, 192, 4
SCALE = (NOPE + ROPE) ** -0.5


class Indexer:
    """DeepSeek's lightning indexer in plain torch: which earlier tokens each token attends to."""

    def __init__(self, source: torch.Generator) -> None:
        self.q = weight(source, Q_RANK, INDEX_HEADS * INDEX_DIM)
        self.k = weight(source, HIDDEN, INDEX_DIM)
        self.heads = weight(source, HIDDEN, INDEX_HEADS)
        self.keys = torch.empty(0, INDEX_DIM)
        self.topk_indices_buffer = torch.empty(0, TOPK, dtype=torch.int32)

    def select(self, hidden: Tensor, q_latent: Tensor) -> Tensor:
        """Positions [tokens, topk]; -1 where fewer tokens precede."""
        first = len(self.keys)
        self.keys = torch.cat([self.keys, hidden @ self.k])
        scores = torch.einsum("thd,sd->ths", (q_latent @ self.q).view(-1, INDEX_HEADS, INDEX_DIM), self.keys).relu()
        scores = torch.einsum("ths,th->ts", scores, hidden @ self.heads)
        positions = torch.arange(len(self.keys))
        scores = scores.masked_fill(positions > positions[first:, None], -torch.inf)
        best = scores.topk(min(TOPK, len(self.keys)))
        chosen = best.indices.where(best.values > -torch.inf, -1).int()
        return torch.nn.functional.pad(chosen, (0, TOPK - chosen.shape[1]), value=-1)


class Attention:
    """The layer: projections in plain torch on the host, cache and attention by the backend."""

    def __init__(self, device: str, cache_dtype: str) -> None:
        source = torch.Generator().manual_seed(2025)
        self.device = device
        self.q_a, self.q_b = weight(source, HIDDEN, Q_RANK), weight(source, Q_RANK, HEADS * (NOPE + ROPE))
        self.kv_a = weight(source, HIDDEN, LATENT + ROPE)
        self.kv_b = torch.nn.Linear(LATENT, HEADS * (NOPE + VALUE), bias=False, dtype=torch.bfloat16, device=device)
        self.kv_b.requires_grad_(False).weight.copy_(weight(source, LATENT, HEADS * (NOPE + VALUE)).T)
        self.indexer = Indexer(source)
        self.backend = FlashMLASparseBackend
        self.builder = self.backend.get_builder_cls()(
            SimpleNamespace(block_size=PAGE), ["layer"], config(cache_dtype), torch.device(device)
        )
        self.impl = self.backend.get_impl_cls()(
            HEADS, LATENT + ROPE, SCALE, 1, None, None, cache_dtype, None, "decoder", None, indexer=self.indexer,
            q_lora_rank=Q_RANK, kv_lora_rank=LATENT, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE,
            qk_head_dim=NOPE + ROPE, v_head_dim=VALUE, kv_b_proj=self.kv_b,
        )  # fmt: skip
        self.impl.process_weights_after_loading(torch.bfloat16)
        shape = self.backend.get_kv_cache_shape(PAGES, PAGE, 1, LATENT + ROPE, cache_dtype)
        dtype = torch.uint8 if cache_dtype == "fp8_ds_mla" else torch.bfloat16
        self.cache = torch.zeros(shape, dtype=dtype, device=device)
        self.table = torch.randperm(PAGES, generator=source).int().view(1, PAGES)
        self.seen = 0

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values [tokens, heads * 128] of the next tokens of one request, their queries, and the positions selected."""
        positions = torch.arange(self.seen, self.seen + len(hidden))
        self.seen += len(hidden)
        q_latent = normed(hidden @ self.q_a)
        selected = self.indexer.select(hidden, q_latent)
        self.indexer.topk_indices_buffer = selected.to(self.device)
        q = (q_latent @ self.q_b).view(-1, HEADS, NOPE + ROPE)
        q = torch.cat([q[..., :NOPE], rotated(q[..., NOPE:], positions[:, None])], -1).bfloat16()
        latent, rope = (hidden @ self.kv_a).split([LATENT, ROPE], -1)
        rope = rotated(rope, positions)[:, None]
        slots = self.table[0, positions // PAGE].long() * PAGE + positions % PAGE
        metadata = self.builder.build(0, self.step(len(hidden), slots))
        given = (q, normed(latent).bfloat16(), rope.bfloat16())
        output = torch.empty(len(hidden), HEADS * VALUE, dtype=torch.bfloat16, device=self.device)
        self.impl.forward(None, *(tensor.to(self.device) for tensor in given), self.cache, metadata, output)
        return output.cpu(), q, selected

    def expected(self, q: Tensor, selected: Tensor) -> Tensor:
        """The values over keys and values of every head, in float32."""
        slots = self.table[0].long().repeat_interleave(PAGE) * PAGE + torch.arange(PAGE).repeat(PAGES)
        rows = mla.gather_kv(self.cache, slots[: self.seen].int().to(self.device)).cpu().float()
        heads = (rows[:, :LATENT] @ self.kv_b.weight.cpu().float().T).view(-1, HEADS, NOPE + VALUE)
        keys = torch.cat([heads[..., :NOPE], rows[:, None, LATENT:].expand(-1, HEADS, -1)], -1)
        mask = torch.zeros(len(q), self.seen + 1, dtype=torch.bool)
        mask = mask.scatter(1, selected.long().where(selected >= 0, self.seen), True)[:, None, :-1]
        scores = torch.einsum("thd,shd->ths", q.float(), keys) * SCALE
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        return torch.einsum("ths,shd->thd", weights, heads[..., NOPE:]).flatten(1)

    def step(self, tokens: int, slots: Tensor) -> Any:
        """What the builder reads of a step of one request."""
        starts = torch.tensor([0, tokens], dtype=torch.int32)
        return SimpleNamespace(
            num_reqs=1, num_actual_tokens=tokens, max_query_len=tokens, max_seq_len=self.seen,
            query_start_loc=starts.to(self.device), query_start_loc_cpu=starts,
            block_table_tensor=self.table.to(self.device), slot_mapping=slots.to(self.device),
        )  # fmt: skip


def config(cache_dtype: str) -> Any:
    """What the builder reads of an engine's configuration."""
    model = SimpleNamespace(
        max_model_len=PAGES * PAGE,
        hf_config=SimpleNamespace(index_topk=TOPK),
        get_num_attention_heads=lambda parallel: HEADS,
    )
    return SimpleNamespace(
        cache_config=SimpleNamespace(cache_dtype=cache_dtype),
        model_config=model,
        parallel_config=None,
        scheduler_config=SimpleNamespace(max_num_batched_tokens=PROMPT),
    )


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


def best_device() -> str:
    """``cuda`` where a payload of the current GPU attends sparsely."""
    gpus = [device.arch for device in devices() if device.kind == "cuda" and device.arch]
    return "cuda" if gpus and mla.variants(op="sparse_decode", arch=gpus[0]) else "cpu"


def main() -> None:
    """Print, for each step, its tokens, what they attend to, its time, and its error against float32."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--cache", default="fp8_ds_mla", choices=["fp8_ds_mla", "bfloat16"])
    options = parser.parse_args()
    layer = Attention(options.device, options.cache)
    source = torch.Generator().manual_seed(0)
    title = f"{HEADS} heads, top {TOPK}, {options.cache} on {options.device}"
    table = Table("step", "new tokens", "in the cache", "time", "largest error", title=title, title_justify="left")
    worst = 0.0
    for index in range(1 + STEPS):
        hidden = torch.randn(PROMPT if index == 0 else 1, HIDDEN, generator=source)
        start = time.perf_counter()
        values, q, selected = layer(hidden)
        took = f"{(time.perf_counter() - start) * 1e3:.0f} ms"
        error = float((values.float() - layer.expected(q, selected)).abs().max())
        table.add_row("decode" if index else "prefill", str(len(hidden)), str(layer.seen), took, f"{error:.1e}")
        worst = max(worst, error)
    Console().print(table)
    if worst > 0.05:
        raise SystemExit("the layer does not agree with float32")


if __name__ == "__main__":
    main()
