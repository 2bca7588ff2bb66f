"""Our backends for GPUs beside vLLM's own classes, with the CPU's payload: ``nox -s engines`` runs this file.

vLLM's engine of the CPU chooses neither of them. Here its configuration, its layer, its description of a step and its
base of builders drive them on the host; what comes out is compared with attention over plain keys and values.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat import vllm_plugin
from mla_kernels.devices.machine import current_arch

from tests.engines import tiny_model
from tests.engines.tiny_model import HEADS, LATENT, NOPE, ROPE, VALUE

PAGE, PAGES, SCALE, TOPK = 16, 24, 0.07, 12
CLOSE = {torch.float32: {"rtol": 1e-4, "atol": 1e-4}, torch.bfloat16: {"rtol": 0.03, "atol": 0.03}}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """Register as an engine would; without a GPU, classes for GPUs run on the host."""
    assert current_arch() == "cpu"
    vllm_plugin.plugin()


@pytest.fixture
def config(tmp_path, request) -> Iterator[Any]:
    """An engine's configuration, current while a test runs."""
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs

    model = str(tiny_model.write(tmp_path / "model"))
    # Where a CPU has AMX, vLLM would choose a backend with blocks of another size.
    arguments = EngineArgs(
        model=model, skip_tokenizer_init=True, max_model_len=256, enforce_eager=True, attention_backend="CPU_MLA"
    )
    found = arguments.create_engine_config()
    found.cache_config.block_size = PAGE
    found.model_config.hf_text_config.index_topk = TOPK
    before = torch.get_default_dtype()
    with set_current_vllm_config(found):
        yield found
    torch.set_default_dtype(before)


def make_layer(config: Any, name: str, dtype: torch.dtype, **more: Any) -> Any:
    """vLLM's layer, with one of our backends inside."""
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    config.model_config.dtype = dtype
    torch.set_default_dtype(dtype)
    weight = torch.randn(HEADS * (NOPE + VALUE), LATENT, generator=torch.Generator().manual_seed(1)) * LATENT**-0.5
    project = torch.nn.Linear(LATENT, len(weight), bias=False).requires_grad_(False)
    project.weight.copy_(weight)
    project.quant_method = None
    layer = MLAAttention(
        num_heads=HEADS, scale=SCALE, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VALUE,
        q_lora_rank=None, kv_lora_rank=LATENT, kv_b_proj=project, cache_config=config.cache_config, prefix="layer",
        attn_backend=vllm_plugin.backend_named(name).get_class(), **more,
    )  # fmt: skip
    layer.process_weights_after_loading(dtype)
    return layer


def make_builder(config: Any, layer: Any) -> Any:
    spec = layer.get_kv_cache_spec(config)
    return layer.get_attn_backend().get_builder_cls()(spec, ["layer"], config, torch.device("cpu"))


class Step:
    """Requests of some tokens, the newest of which are a step's, with keys, values and queries."""

    def __init__(self, layer: Any, dtype: torch.dtype, lengths: list[int], new: list[int]) -> None:
        source = torch.Generator().manual_seed(2)
        self.lengths, self.new, self.scale = lengths, new, layer.scale
        self.weight = layer.kv_b_proj.weight.float().view(HEADS, NOPE + VALUE, LATENT)
        self.latents = [torch.randn(n, LATENT, generator=source).to(dtype) for n in lengths]
        self.ropes = [torch.randn(n, ROPE, generator=source).to(dtype) for n in lengths]
        self.q = torch.randn(sum(new), HEADS, NOPE + ROPE, generator=source).to(dtype)
        free = torch.randperm(PAGES, generator=source).tolist()
        self.table = torch.full((len(lengths), 8), 2_147_480_000).int()
        for row, length in zip(self.table, lengths, strict=True):
            for page in range(-(-length // PAGE)):
                row[page] = free.pop()

    def slots(self, request: int) -> torch.Tensor:
        """Where each token of a request lies."""
        positions = torch.arange(self.lengths[request])
        return self.table[request][positions // PAGE].long() * PAGE + positions % PAGE

    def newest(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """The new tokens' rows of what every token has."""
        return torch.cat([part[len(part) - n :] for part, n in zip(parts, self.new, strict=True)])

    def described(self) -> Any:
        """The step as vLLM's runner describes it to a builder."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        starts = torch.tensor([0, *self.new]).cumsum(0).int()
        lengths = torch.tensor(self.lengths).int()
        return CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=len(self.new),
            num_actual_tokens=sum(self.new), max_query_len=max(self.new), max_seq_len=max(self.lengths),
            block_table_tensor=self.table, seq_lens_cpu_upper_bound=lengths,
            slot_mapping=self.newest([self.slots(i) for i in range(len(self.new))]),
        )  # fmt: skip

    def expected(self, selected: torch.Tensor | None = None) -> torch.Tensor:
        """Attention of every head over its own keys and values, in float32."""
        rows, token = [], 0
        for latent, rope, new in zip(self.latents, self.ropes, self.new, strict=True):
            k_nope, v = torch.einsum("nl,hdl->hnd", latent.float(), self.weight).split([NOPE, VALUE], -1)
            keys = torch.cat([k_nope, rope.float().expand(HEADS, -1, -1)], -1)
            for position in range(len(latent) - new, len(latent)):
                seen = torch.arange(position + 1) if selected is None else selected[token][selected[token] >= 0].long()
                logits = torch.einsum("hd,hnd->hn", self.q[token].float(), keys[:, seen]) * self.scale
                rows.append(torch.einsum("hn,hnv->hv", logits.softmax(-1), v[:, seen]).flatten())
                token += 1
        return torch.stack(rows)


def forward(layer: Any, builder: Any, step: Step, cache: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One step through vLLM's layer."""
    output = torch.full((len(step.q), HEADS * VALUE), torch.nan, dtype=dtype)
    metadata = builder.build(0, step.described())
    latent, rope = step.newest(step.latents), step.newest(step.ropes)
    layer.forward_impl(step.q, latent, rope[:, None], cache, metadata, output)
    return output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("new", [[1] * 4, [2] * 4, [2, 1, 3, 1]])
def test_dense_decode(config, dtype, new):
    layer = make_layer(config, "MLA_KERNELS", dtype)
    builder = make_builder(config, layer)
    builder.reorder_batch_threshold = max(new)  # as speculative decoding has it
    step = Step(layer, dtype, [37, 3, 64, 16], new)
    cache = torch.full((PAGES, PAGE, LATENT + ROPE), torch.nan, dtype=dtype)
    for request, (latent, rope) in enumerate(zip(step.latents, step.ropes, strict=True)):
        mla.store_kv(latent, rope, cache, step.slots(request))
    got = forward(layer, builder, step, cache, dtype)
    torch.testing.assert_close(got.float(), step.expected(), **CLOSE[dtype])


@pytest.mark.parametrize(("name", "more"), [("MLA_KERNELS", {}), ("MLA_KERNELS_SPARSE", {"use_sparse": True})])
def test_a_microbatch_without_tokens(config, name, more):
    """The second of two, where all tokens of a step are in the first: vLLM gives it the last request, with no token."""
    if more:
        buffer = torch.zeros(1, TOPK).int()
        more |= {"indexer": SimpleNamespace(topk_indices_buffer=buffer), "topk_indices_buffer": buffer}
    layer = make_layer(config, name, torch.bfloat16, **more)
    step, cache = Step(layer, torch.bfloat16, [37], [0]), torch.zeros(PAGES, PAGE, LATENT + ROPE).bfloat16()
    assert forward(layer, make_builder(config, layer), step, cache, torch.bfloat16).shape == (0, HEADS * VALUE)


def test_a_process_that_has_called_no_plugin_unpickles_a_name():
    """An engine's configuration, which names the backend, goes to processes that unpickle it first."""
    written = pickle.dumps(vllm_plugin.backend_named("MLA_KERNELS"))
    script = f"import pickle; print(pickle.loads({written!r}).get_path())"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert told.stdout.splitlines()[-1:] == [vllm_plugin.NAMES["MLA_KERNELS"]], told.stderr


def test_dense_backend_by_vllms_questions(config):
    """A GPU without a payload is refused with a reason, as vLLM prints it."""
    backend = vllm_plugin.backend_named("MLA_KERNELS").get_class()
    asked = {
        "head_size": 576, "dtype": torch.bfloat16, "kv_cache_dtype": "auto", "block_size": 64, "use_mla": True,
        "has_sink": False, "use_sparse": False, "use_mm_prefix": False, "use_per_head_quant_scales": False,
        "device_capability": SimpleNamespace(major=9, minor=0), "attn_type": "decoder",
    }  # fmt: skip
    reasons = backend.validate_configuration(**asked)
    assert "no installed payload of mla-kernels serves this GPU; those installed serve none" in reasons
    (more,) = set(backend.validate_configuration(**asked, use_adaptive_verification=True)) - set(reasons)
    assert more.startswith("device-cpu query lens mismatch not supported")


@pytest.mark.parametrize("cache_dtype", ["auto", "fp8_ds_mla"])
def test_sparse_attention(config, cache_dtype):
    """Prefill and decode in one step; the indexer's choice is random, with absent positions."""
    dtype = torch.bfloat16
    config.cache_config.cache_dtype = cache_dtype
    new = [1, 5, 2, 1]
    buffer = torch.full((64, TOPK), -1).int()
    indexer = SimpleNamespace(topk_indices_buffer=buffer)
    more = {"use_sparse": True, "indexer": indexer, "topk_indices_buffer": buffer}
    layer = make_layer(config, "MLA_KERNELS_SPARSE", dtype, **more)
    builder = make_builder(config, layer)
    step = Step(layer, dtype, [37, 5, 64, 16], new)
    shape, stored = ((656,), torch.uint8) if cache_dtype == "fp8_ds_mla" else ((LATENT + ROPE,), dtype)
    cache = torch.full((PAGES, PAGE, *shape), 255 if stored == torch.uint8 else torch.nan, dtype=stored)
    for request, (latent, rope) in enumerate(zip(step.latents, step.ropes, strict=True)):
        layer.impl.do_kv_cache_update(latent, rope[:, None], cache, step.slots(request), cache_dtype, torch.ones(1))
    positions = [n - k + i for n, k in zip(step.lengths, new, strict=True) for i in range(k)]
    source = torch.Generator().manual_seed(3)
    for token, position in enumerate(positions):
        chosen = torch.randperm(position + 1, generator=source)[: TOPK - 2]
        buffer[token, : len(chosen)] = chosen
    got = forward(layer, builder, step, cache, dtype)
    close = {"rtol": 0.1, "atol": 0.15} if cache_dtype == "fp8_ds_mla" else CLOSE[dtype]
    torch.testing.assert_close(got.float(), step.expected(buffer[: len(positions)]), **close)
