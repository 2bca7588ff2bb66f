"""A small engine drives the backend: paged caches in poisoned memory, prefill in chunks, decode, padded steps."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from mla_kernels.backends import flashmla_sparse
from mla_kernels.formats import FORMATS
from torch import Tensor

from .model import HEADS, LATENT, NOPE, ROPE, SCALE, VOCABULARY, Layer, Model, V

PAGES, PAGE, MOST_TOKENS = 40, 16, 96
UNUSED_PAGE = 2_147_480_000
PADDING = 3
"""Every step has as many tokens beyond its actual ones."""

Select = Callable[[Tensor], Tensor]


def engine_config(topk: int, cache_dtype: str, max_tokens: int = MOST_TOKENS) -> Any:
    """Return a configuration that has what a builder reads, and nothing else."""
    model = SimpleNamespace(
        max_model_len=PAGES * PAGE,
        hf_config=SimpleNamespace(index_topk=topk),
        get_num_attention_heads=lambda parallel: HEADS * parallel.share,
    )
    return SimpleNamespace(
        cache_config=SimpleNamespace(cache_dtype=cache_dtype),
        model_config=model,
        parallel_config=SimpleNamespace(share=1),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=max_tokens),
    )


def layer_arguments(layer: Layer, buffer: Tensor, cache_dtype: str) -> dict[str, Any]:
    """Return what a layer is made with."""
    return {
        "num_heads": HEADS,
        "head_size": LATENT + ROPE,
        "scale": SCALE,
        "num_kv_heads": 1,
        "alibi_slopes": None,
        "sliding_window": None,
        "kv_cache_dtype": cache_dtype,
        "logits_soft_cap": None,
        "attn_type": "decoder",
        "kv_sharing_target_layer_name": None,
        "q_lora_rank": None,
        "kv_lora_rank": LATENT,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "qk_head_dim": NOPE + ROPE,
        "v_head_dim": V,
        "kv_b_proj": deepcopy(layer.kv_b_proj).to(buffer.device),
        "indexer": SimpleNamespace(topk_indices_buffer=buffer),
    }


def make_layer(layer: Layer, buffer: Tensor, cache_dtype: str) -> Any:
    """Return the backend's part of a layer, with its weights loaded."""
    impl = flashmla_sparse.FlashMLASparseBackend.get_impl_cls()(**layer_arguments(layer, buffer, cache_dtype))
    impl.process_weights_after_loading(torch.bfloat16)
    return impl


@dataclass
class Request:
    """A request knows its tokens so far, how many of them are in the cache, and where."""

    tokens: list[int]
    pages: list[int] = field(default_factory=list)
    cached: int = 0


class Engine:
    """Serves requests by the backend; ``alter`` changes what the indexer selected, for tests that want it wrong."""

    def __init__(
        self, model: Model, topk: int, cache_dtype: str, device: str = "cpu", alter: Select | None = None
    ) -> None:
        self.model, self.device, self.alter = model, device, alter or (lambda selected: selected)
        self.cache_dtype = cache_dtype
        self.builder = self.make_builder(engine_config(topk, cache_dtype))
        self.buffer = torch.full((MOST_TOKENS, topk), UNUSED_PAGE, dtype=torch.int32, device=device)
        self.layers = [self.make_layer(layer) for layer in model.layers]
        shape = flashmla_sparse.FlashMLASparseBackend.get_kv_cache_shape(PAGES, PAGE, 1, LATENT + ROPE, cache_dtype)
        in_bytes = cache_dtype in {form.name for form in FORMATS if form.is_bytes}
        value, dtype = (0xFF, torch.uint8) if in_bytes else (torch.nan, torch.bfloat16)
        self.caches = [torch.full(shape, value, dtype=dtype, device=device) for _ in model.layers]
        self.free = torch.randperm(PAGES, generator=torch.Generator().manual_seed(1)).tolist()

    def make_builder(self, config: Any) -> Any:
        """Make what builds the metadata of every step."""
        builder = flashmla_sparse.FlashMLASparseBackend.get_builder_cls()
        return builder(SimpleNamespace(block_size=PAGE), ["0", "1"], config, torch.device(self.device))

    def make_layer(self, layer: Layer) -> Any:
        """Make what attends."""
        return make_layer(layer, self.buffer, self.cache_dtype)

    def step(self, batch: list[tuple[Request, int]]) -> None:
        """Advance requests by so many tokens each; one whose tokens are then all cached gets its next token."""
        starts, slots, positions = [0], [], []
        for request, count in batch:
            seen = request.cached + count
            while len(request.pages) * PAGE < seen:
                request.pages.append(self.free.pop())
            new = range(request.cached, seen)
            slots += [request.pages[i // PAGE] * PAGE + i % PAGE for i in new]
            positions += new
            starts.append(starts[-1] + count)
        metadata = self.builder.build(0, self._common(batch, starts, slots))
        tokens = [t for request, count in batch for t in request.tokens[request.cached : request.cached + count]]
        hidden = self.model.embedding[tokens]
        for layer, impl, cache in zip(self.model.layers, self.layers, self.caches, strict=True):
            selected = torch.cat([self._select(layer, request, count) for request, count in batch])
            self.buffer[: len(selected)] = self.alter(selected).to(self.device)
            projected = layer.project(hidden, torch.tensor(positions))
            hidden = layer.add(hidden, self._attend(impl, cache, projected, metadata))
        for (request, count), end in zip(batch, starts[1:], strict=True):
            request.cached += count
            if request.cached == len(request.tokens):
                request.tokens.append(int(self.model.logits(hidden[end - 1]).argmax()))

    def _select(self, layer: Layer, request: Request, count: int) -> Tensor:
        embedded = self.model.embedding[request.tokens[: request.cached + count]]
        return layer.indexer.select(embedded, request.cached)

    def _attend(self, impl: Any, cache: Tensor, projected: tuple[Tensor, Tensor, Tensor], metadata: Any) -> Tensor:
        """Return the layer's values in float32. Inputs are padded with NaN, the output with ones that must stay."""
        padded = [torch.nn.functional.pad(part.flatten(1), (0, 0, 0, PADDING), value=torch.nan) for part in projected]
        q, latent, rope = (part.to(self.device) for part in padded)
        output = torch.ones(len(q), HEADS * V, dtype=torch.bfloat16, device=self.device)
        got = impl.forward(None, q.view(-1, HEADS, NOPE + ROPE), latent, rope[:, None], cache, metadata, output)
        assert got is output
        assert output[-PADDING:].eq(1).all()
        return output[:-PADDING].cpu().float()

    def _common(self, batch: list[tuple[Request, int]], starts: list[int], slots: list[int]) -> Any:
        width = max(len(request.pages) for request, _ in batch) + 1
        table = [request.pages + [UNUSED_PAGE] * (width - len(request.pages)) for request, _ in batch]
        loc = torch.tensor(starts, dtype=torch.int32)
        return SimpleNamespace(
            num_reqs=len(batch),
            num_actual_tokens=starts[-1],
            max_query_len=max(count for _, count in batch),
            max_seq_len=max(request.cached + count for request, count in batch),
            query_start_loc=loc.to(self.device),
            query_start_loc_cpu=loc,
            block_table_tensor=torch.tensor(table, dtype=torch.int32, device=self.device),
            slot_mapping=torch.tensor(slots + [-1] * PADDING, device=self.device),
        )


def in_another_order(selected: Tensor) -> Tensor:
    """Shuffle the positions of each token."""
    return selected[:, torch.randperm(selected.shape[1], generator=torch.Generator().manual_seed(2))]


def drawn_anew(selected: Tensor) -> Tensor:
    """Replace the positions of each token by as many others, none later than its latest."""
    chance = torch.rand(selected.shape, generator=torch.Generator().manual_seed(3))
    others = (chance * (selected.amax(1, keepdim=True) + 1)).int()
    return others.where(selected >= 0, -1)


def check_tokens(device: str, seed: int, cache_dtype: str, engine: type[Engine] = Engine) -> None:
    """Check that the engine's greedy tokens are the plain model's, and depend on what is selected, not on its order."""
    topk, count = 12, 8
    source = torch.Generator().manual_seed(100 + seed)
    prompts = [torch.randint(VOCABULARY, (length,), generator=source).tolist() for length in (30, 21, 38)]
    model = Model(seed, topk)
    plain = [model.generate(prompt, count, cache_dtype) for prompt in prompts]
    assert min(lead for _, lead in plain) > 0.05, "a seed whose tokens hang on rounding tells nothing"
    want = [tokens for tokens, _ in plain]
    assert serve(engine(model, topk, cache_dtype, device), prompts, count) == want
    assert serve(engine(model, topk, cache_dtype, device, in_another_order), prompts, count) == want
    changed = serve(engine(model, topk, cache_dtype, device, drawn_anew), prompts, count)
    assert all(tokens != wanted for tokens, wanted in zip(changed, want, strict=True))


def serve(engine: Engine, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Return ``count`` greedy tokens of each prompt. The first comes in two chunks, the last while others decode."""
    requests = [Request(list(prompt)) for prompt in prompts]
    first, *middle, last = requests
    chunk = len(first.tokens) // 2
    engine.step([(first, chunk), *((request, len(request.tokens)) for request in middle)])
    rest = len(first.tokens) - chunk
    engine.step([(first, rest), *((request, 1) for request in middle), (last, len(last.tokens))])
    while any(len(r.tokens) - len(p) < count for r, p in zip(requests, prompts, strict=True)):
        engine.step([(request, 1) for request in requests])
    return [r.tokens[len(p) : len(p) + count] for r, p in zip(requests, prompts, strict=True)]
