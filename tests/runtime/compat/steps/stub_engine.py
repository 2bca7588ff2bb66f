"""Steps of vLLM's decode by our backends on any device: its base classes are stand-ins, the kernels are real.

An engine projects, absorbs and samples between the layers. Here is nothing between them, so that what a profile shows
is the plug-in's.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import torch
from mla_kernels import reference
from mla_kernels.compat.vllm import concat_and_cache_mla
from mla_kernels.formats import HEAD_DIM, LATENT, ROPE

from tests.runtime.compat.stand_ins import Overrides, ours
from tests.support.compare import QUANTISED, SPARSE, Tolerance, assert_close

PAGE, SCALE, NOPE = 64, 192**-0.5, 128
KV_SCALE = 0.01
"""Of an e4m3 cache."""


class Step:
    """Requests with as many new tokens each, and layers that have a cache and queries of their own.

    Parameters
    ----------
    overrides : Overrides
        What ``installed`` yields.
    device : str
    layers, heads : int
    lengths : list[int]
        Tokens of each request, the new ones included.
    q_len : int
        New tokens of each request.
    most : int, optional
        What any length may grow to; the longest by default.
    cache_dtype : str
        By vLLM's name.
    """

    backend: str

    def __init__(
        self,
        overrides: Overrides,
        device: str,
        *,
        layers: int,
        heads: int,
        lengths: list[int],
        q_len: int = 1,
        most: int | None = None,
        cache_dtype: str = "auto",
    ) -> None:
        self.heads, self.q_len, self.cache_dtype = heads, q_len, cache_dtype
        self.device = torch.device(device)
        self.source = torch.Generator(self.device).manual_seed(len(lengths))
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
        width = -(-(most or max(lengths)) // PAGE)
        pages = torch.randperm(len(lengths) * width, generator=self.source, device=device)
        self.table = pages.view(len(lengths), width).int()
        self.most, self.tokens = width * PAGE, len(lengths) * q_len
        overrides.config.model_config = SimpleNamespace(dtype=torch.bfloat16)
        self.impls = [ours(self.backend).get_impl_cls()(**self.arguments()) for _ in range(layers)]
        self.caches = [self.stored(self.random(len(pages) * PAGE, HEAD_DIM, deviation=0.1)) for _ in range(layers)]
        # As vLLM's layer has them: the latent part is a product with heads outside, the rope part of wider rows.
        self.queries = [
            (
                self.random(heads, self.tokens, LATENT, deviation=5).transpose(0, 1),
                self.random(self.tokens, heads, NOPE + ROPE, deviation=5)[..., NOPE:],
            )
            for _ in range(layers)
        ]

    def random(self, *shape: int, deviation: float) -> torch.Tensor:
        """Normal values, bf16."""
        return (torch.randn(*shape, generator=self.source, device=self.device) * deviation).bfloat16()

    def arguments(self) -> dict[str, Any]:
        """What vLLM's layer makes an impl with."""
        return {
            "num_heads": self.heads,
            "head_size": HEAD_DIM,
            "scale": SCALE,
            "num_kv_heads": 1,
            "alibi_slopes": None,
            "sliding_window": None,
            "kv_cache_dtype": self.cache_dtype,
            "logits_soft_cap": None,
            "attn_type": "decoder",
            "kv_sharing_target_layer_name": None,
            "q_lora_rank": None,
            "kv_lora_rank": LATENT,
            "qk_nope_head_dim": NOPE,
            "qk_rope_head_dim": ROPE,
            "qk_head_dim": NOPE + ROPE,
            "v_head_dim": NOPE,
            "kv_b_proj": None,
            "indexer": None,
        }

    def stored(self, rows: torch.Tensor) -> torch.Tensor:
        """A cache that holds rows [num_pages * page_size, 576]."""
        if self.cache_dtype == "auto":
            return rows.view(-1, PAGE, HEAD_DIM)
        width, dtype = (656, torch.uint8) if self.cache_dtype == "fp8_ds_mla" else (HEAD_DIM, torch.float8_e4m3fn)
        cache = torch.empty(len(rows) // PAGE, PAGE, width, dtype=dtype, device=self.device)
        slots = torch.arange(len(rows), device=self.device)
        scale = torch.full((1,), KV_SCALE, device=self.device)
        concat_and_cache_mla(rows[:, :LATENT], rows[:, LATENT:], cache, slots, self.cache_dtype, scale)
        return cache

    def metadata(self) -> Any:
        """Describe the step by its present lengths, as vLLM does once before its layers."""
        raise NotImplementedError

    def run(self, metadata: Any) -> list[torch.Tensor]:
        """Every layer in turn; latents [num_tokens, num_heads, 512] of each."""
        return [self.layer(metadata, number) for number in range(len(self.impls))]

    def layer(self, metadata: Any, number: int) -> torch.Tensor:
        """One layer."""
        raise NotImplementedError

    def expected(self, number: int) -> torch.Tensor:
        """What the reference makes of a layer's cache, on the host."""
        raise NotImplementedError

    def query(self, number: int) -> torch.Tensor:
        """The queries of a layer in one tensor [batch, q_len, num_heads, 576], on the host."""
        return torch.cat(self.queries[number], -1).view(-1, self.q_len, self.heads, HEAD_DIM).cpu()


class DenseStep(Step):
    """Layers of ``MLA_KERNELS``: vLLM has written their caches."""

    backend = "mla_kernels.compat._vllm.dense.DenseBackend"

    def __init__(self, overrides: Overrides, device: str, **shape: Any) -> None:
        super().__init__(overrides, device, **shape)
        self.kv_scale = KV_SCALE if self.cache_dtype == "fp8" else 1.0
        self.scales = SimpleNamespace(_q_scale_float=1.0, _k_scale_float=self.kv_scale)
        for impl in self.impls:
            impl.need_to_return_lse_for_decode = False
        model = SimpleNamespace(dtype=torch.bfloat16)
        # What the constructor of vLLM's base sets.
        own = {"num_heads": self.heads, "dcp_world_size": 1, "model_config": model}
        made = type("Builder", (ours(self.backend).get_builder_cls(),), own)
        context = {"layer": SimpleNamespace(impl=self.impls[0])}
        config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=context), model_config=model)
        self.builder: Any = made(SimpleNamespace(block_size=PAGE), ["layer"], config, self.device)
        self.starts = torch.arange(len(self.lengths) + 1).int() * self.q_len
        self.starts_on_device = self.starts.to(device)

    def metadata(self) -> Any:
        """Plan the step."""
        decode = self.builder._build_decode(
            block_table_tensor=self.table,
            seq_lens_device=self.lengths,
            max_seq_len=self.most,
            query_start_loc_cpu=self.starts,
            query_start_loc_device=self.starts_on_device,
            num_decode_tokens=self.tokens,
            max_query_len=self.q_len,
            dcp_tot_seq_lens_device=None,
        )
        return SimpleNamespace(decode=decode, causal=True)

    def layer(self, metadata: Any, number: int) -> torch.Tensor:
        """Attend."""
        out, _ = self.impls[number].forward_mqa(self.queries[number], self.caches[number], metadata, self.scales)
        return out  # type: ignore[no-any-return]

    def expected(self, number: int) -> torch.Tensor:
        """Dense attention."""
        cache, table, lengths = self.caches[number].cpu(), self.table.cpu(), self.lengths.cpu()
        scales = {"softmax_scale": SCALE, "kv_scale": self.kv_scale}
        out, _ = reference.decode(self.query(number), cache, table, lengths, **scales)
        return out.flatten(0, 1)


class RaggedStep(DenseStep):
    """The same, of requests with one new token and with ``q_len`` in turn."""

    def __init__(self, overrides: Overrides, device: str, **shape: Any) -> None:
        super().__init__(overrides, device, **shape)
        new = torch.ones_like(self.starts)
        new[0], new[1::2] = 0, self.q_len
        self.starts = new.cumsum(0).int()
        self.starts_on_device = self.starts.to(device)
        self.tokens = int(self.starts[-1])
        self.queries = [(latent[: self.tokens], rope[: self.tokens]) for latent, rope in self.queries]

    def expected(self, number: int) -> torch.Tensor:
        """Dense attention of each request's tokens."""
        q = torch.cat(self.queries[number], -1)[None].cpu()
        cache, table, lengths = self.caches[number].cpu(), self.table.cpu(), self.lengths.cpu()
        out, _ = reference.decode(q, cache, table, lengths, cu_seqlens_q=self.starts, softmax_scale=SCALE)
        return out[0]


class SparseStep(Step):
    """Layers of ``MLA_KERNELS_SPARSE``, which also write the new tokens; ``topk`` positions of a token are selected."""

    backend = "mla_kernels.compat._vllm_backend.FlashMLASparseBackend"

    def __init__(self, overrides: Overrides, device: str, *, topk: int, **shape: Any) -> None:
        self.selected = torch.empty(0)
        super().__init__(overrides, device, **shape)
        self.selected = torch.full((self.tokens, topk), -1, dtype=torch.int32, device=device)
        for impl in self.impls:
            impl.topk_indices_buffer = self.selected
        config = SimpleNamespace(
            cache_config=SimpleNamespace(cache_dtype=self.cache_dtype),
            model_config=SimpleNamespace(
                dtype=torch.bfloat16,
                max_model_len=self.most,
                hf_config=SimpleNamespace(index_topk=topk),
                get_num_attention_heads=lambda parallel_config: self.heads,
            ),
            parallel_config=None,
            scheduler_config=SimpleNamespace(max_num_batched_tokens=self.tokens),
            compilation_config=SimpleNamespace(
                static_forward_context={"layer": SimpleNamespace(impl=self.impls[0])},
            ),
        )
        made = ours(self.backend).get_builder_cls()
        self.builder: Any = made(SimpleNamespace(block_size=PAGE), ["layer"], config, self.device)
        self.starts = torch.arange(len(self.lengths) + 1).int() * self.q_len
        self.starts_on_device = self.starts.to(device)
        self.slots = torch.empty(self.tokens, dtype=torch.int64, device=device)
        rows = [self.random(self.tokens, HEAD_DIM, deviation=0.1) for _ in self.impls]
        self.new = [(row[:, :LATENT], row[:, None, LATENT:]) for row in rows]
        self.one = torch.ones(1, device=device)
        self.select()

    def arguments(self) -> dict[str, Any]:
        """With a buffer of an indexer."""
        return super().arguments() | {"topk_indices_buffer": self.selected}

    def select(self) -> None:
        """Choose positions below the present lengths, and slots for the new tokens, where the old ones are."""
        ends = self.lengths.repeat_interleave(self.q_len)
        chance = torch.rand(self.selected.shape, generator=self.source, device=self.device)
        self.selected.copy_((chance * ends[:, None]).int())
        self.selected[:, 6::7] = -1
        new = torch.arange(self.q_len, device=self.device).repeat(len(self.lengths)) - self.q_len
        self.slots.copy_(self.slots_of((ends + new)[:, None])[:, 0])

    def slots_of(self, positions: torch.Tensor) -> torch.Tensor:
        """Where positions [num_tokens, n] of requests lie in a cache; -1 where a position is negative."""
        rows = self.table.repeat_interleave(self.q_len, 0).long()
        pages = rows.gather(1, positions.clamp(min=0).long() // PAGE)
        return (pages * PAGE + positions % PAGE).where(positions >= 0, -1)

    def metadata(self) -> Any:
        """Describe the step."""
        step = SimpleNamespace(
            num_reqs=len(self.lengths),
            num_actual_tokens=self.tokens,
            max_query_len=self.q_len,
            max_seq_len=self.most,
            query_start_loc=self.starts_on_device,
            query_start_loc_cpu=self.starts,
            block_table_tensor=self.table,
            slot_mapping=self.slots,
        )
        return self.builder.build(0, step)

    def layer(self, metadata: Any, number: int) -> torch.Tensor:
        """Write the new tokens, and attend."""
        impl, cache, (latent, rope) = self.impls[number], self.caches[number], self.new[number]
        impl.do_kv_cache_update(latent, rope, cache, self.slots, self.cache_dtype, self.one)
        out, _ = impl.forward_mqa(self.queries[number], cache, metadata, None)
        return out  # type: ignore[no-any-return]

    def expected(self, number: int) -> torch.Tensor:
        """Attention to what is selected; the layer has written its tokens."""
        slots = self.slots_of(self.selected).int().view(len(self.lengths), self.q_len, -1).cpu()
        cache = self.caches[number].cpu()
        out, *_ = reference.sparse_decode(self.query(number), cache, slots, softmax_scale=SCALE)
        return out.flatten(0, 1)


STEPS: dict[str, tuple[type[DenseStep | SparseStep], dict[str, Any]]] = {
    "dense": (DenseStep, {}),
    "dense, two tokens": (DenseStep, {"q_len": 2}),
    "dense, one and three tokens": (RaggedStep, {"q_len": 3}),
    "dense, fp8": (DenseStep, {"cache_dtype": "fp8"}),
    "sparse": (SparseStep, {"topk": 40}),
    "sparse, two tokens": (SparseStep, {"topk": 40, "q_len": 2}),
    "sparse, fp8_ds_mla": (SparseStep, {"topk": 40, "cache_dtype": "fp8_ds_mla"}),
}
"""The steps that tests drive, and what is particular to each."""

LENGTHS, OTHERS = [700, 3, 1300, 64], [64, 2000, 2, 1025]
"""Tokens of the requests of a step, and of the next one."""

OPERATORS = re.compile(
    r"aten::((new_)?empty(_strided|_like)?|\w*view|flatten|(un)?squeeze|slice|select|narrow|as_strided|_reshape_alias)"
)
"""What torch may do in a layer: allocate, and look at the same memory in another shape."""


def make(name: str, overrides: Overrides, device: str, heads: int = 16) -> Step:
    """One of ``STEPS``, of three layers."""
    kind, more = STEPS[name]
    return kind(overrides, device, layers=3, heads=heads, lengths=LENGTHS, most=max(OTHERS), **more)


def advance(step: Step) -> None:
    """Let the requests have other lengths, and other tokens selected, in the memory that they have."""
    step.lengths.copy_(torch.tensor(OTHERS))
    if isinstance(step, SparseStep):
        step.select()


def check(step: Step, outs: list[torch.Tensor]) -> None:
    """Compare what every layer gave with the reference.

    Raises
    ------
    AssertionError
    """
    tolerance: Tolerance = QUANTISED if step.cache_dtype == "fp8" else SPARSE
    for number, out in enumerate(outs):
        assert_close(f"layer {number}", out, step.expected(number), tolerance)
