"""vLLM's adapter without vLLM: signatures as they were read, stand-ins made from them, and its layer's calls.

``nox -s engines`` runs the same classes inside vLLM.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels import reference
from mla_kernels.compat import vllm as door
from mla_kernels.compat.flashmla_sparse.builder import Step
from mla_kernels.errors import InvalidArgumentError, ShapeError, UnsupportedError

from tests.runtime.compat.stand_ins import RELEASES, Overrides, check_overridden, installed, shape_of
from tests.support.compare import assert_same_bytes
from tests.support.engine import PAGE, Engine, check_tokens, engine_config, layer_arguments
from tests.support.model import HEADS, LATENT, NOPE, ROPE, Layer, V

OURS = "mla_kernels.compat._vllm_backend"


@pytest.fixture(params=list(RELEASES))
def vllm(monkeypatch, request) -> Iterator[Overrides]:
    """Install a package ``vllm`` of stand-ins of a release, and return what is registered with it."""
    for overrides in installed(monkeypatch, request.param):
        overrides.config.model_config = SimpleNamespace(dtype=torch.bfloat16)
        yield overrides


def ours() -> Any:
    """Import the module of our classes, which imports vLLM."""
    return importlib.import_module(OURS)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("FlashMLASparseBackend", ["AttentionBackend"]),
        ("FlashMLASparseMetadataBuilder", ["AttentionMetadataBuilder"]),
        ("FlashMLASparseImpl", ["MLAAttentionImpl", "AttentionImplBase"]),
    ],
)
def test_what_is_overridden_is_what_vllm_has(vllm, mine, theirs):
    check_overridden(getattr(ours(), mine), theirs, vllm.release)


def test_every_abstract_part_is_there(vllm):
    backend = ours().FlashMLASparseBackend
    assert backend.get_name() == "FLASHMLA_SPARSE"
    assert (backend.is_mla(), backend.is_sparse()) == (True, True)
    assert backend.supported_dtypes == [torch.bfloat16]
    assert backend.supported_kv_cache_dtypes == ["auto", "bfloat16", "fp8", "fp8_ds_mla"]
    assert backend.get_supported_head_sizes() == [576]
    assert backend.get_impl_cls() is ours().FlashMLASparseImpl
    assert backend.get_builder_cls()._cudagraph_support.name == "UNIFORM_BATCH"
    assert not backend.supports_device_cpu_query_lens_mismatch()


def test_gpus_without_a_payload_are_refused(vllm):
    """Only the CPU's payload is installed here."""
    backend, hopper = ours().FlashMLASparseBackend, SimpleNamespace(major=9, minor=0)
    assert not backend.supports_compute_capability(hopper)
    assert not backend.supports_compute_capability(SimpleNamespace(major=7, minor=5))
    asked = (576, torch.bfloat16, "auto", 64, True, False, True, False, hopper)
    assert backend.supports_combination(*asked) == (
        "no installed payload of mla-kernels serves this GPU; those installed serve none"
    )


REFUSED = [
    ({"kv_cache_dtype": "fp8_e5m2"}, "kv_cache_dtype: got 'fp8_e5m2'; accepts 'auto' or 'bfloat16' or 'fp8_ds_mla'"),
    ({"head_size": 512}, "head_size: got 512; accepts 576"),
    ({"kv_lora_rank": 448}, "kv_lora_rank: got 448; accepts 512"),
    ({"num_heads": 0}, "num_heads: got 0; accepts 1 and up"),
]


@pytest.mark.parametrize(("other", "text"), REFUSED)
def test_a_layer_that_no_kernel_serves_is_refused(vllm, other, text):
    given = layer_arguments(Layer(torch.Generator().manual_seed(0), 2), torch.zeros(1, 2).int(), "auto")
    with pytest.raises(InvalidArgumentError) as caught:
        ours().FlashMLASparseImpl(**given | other)
    assert str(caught.value) == text


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_model_of_another_type_is_refused(vllm, dtype):
    vllm.config.model_config.dtype = dtype
    given = layer_arguments(Layer(torch.Generator().manual_seed(0), 2), torch.zeros(1, 2).int(), "auto")
    name = str(dtype).removeprefix("torch.")
    text = f"kv_cache_dtype: got 'auto' with {name}; accepts auto with bfloat16 or bfloat16 with bfloat16 or fp8 with "
    with pytest.raises(UnsupportedError, match=text):
        ours().FlashMLASparseImpl(**given)


@pytest.mark.parametrize(
    ("page", "cache_dtype", "text"),
    [
        (0, "auto", "block_size: got 0; accepts 1 and up"),
        (16, "nvfp4_ds_mla", "kv_cache_dtype: got 'nvfp4_ds_mla'; accepts auto, bfloat16, fp8, fp8_ds_mla"),
    ],
)
def test_a_cache_that_no_kernel_reads_is_refused(vllm, page, cache_dtype, text):
    """By the builder of metadata, which an engine makes when it starts."""
    with pytest.raises(UnsupportedError) as caught:
        make_builder(engine_config(2, cache_dtype), page=page)
    assert str(caught.value) == text


def make_builder(config: Any, page: int = PAGE, device: str = "cpu", **layer: Any) -> Any:
    """The builder of an engine with two layers, which may have another cache and other heads than the engine."""
    alike = {"kv_cache_dtype": config.cache_config.cache_dtype, "num_heads": HEADS} | layer
    context = dict.fromkeys(("0", "1"), SimpleNamespace(impl=SimpleNamespace(**alike)))
    config.compilation_config = SimpleNamespace(static_forward_context=context)
    config.model_config.dtype = torch.bfloat16
    builder = ours().FlashMLASparseBackend.get_builder_cls()
    return builder(SimpleNamespace(block_size=page), ["0", "1"], config, torch.device(device))


def test_a_draft_has_another_cache_and_other_heads(vllm):
    """vLLM gives the builder of its layers the engine's configuration all the same."""
    builder = make_builder(engine_config(2, "fp8_ds_mla"), kv_cache_dtype="auto", num_heads=2 * HEADS)
    queries, rows = torch.ones(1, 1, 2 * HEADS, LATENT + ROPE).bfloat16(), torch.ones(1, PAGE, LATENT + ROPE).bfloat16()
    out, _ = builder._kernel(queries, rows, torch.zeros(1, 1, 2).int(), softmax_scale=1.0)
    assert torch.equal(out, torch.ones_like(out))


def test_blocks_of_rows_begin_at_whole_rows(vllm):
    """Whatever lies between the blocks of a layer: vLLM's layers demand it of bf16 caches, not of packed rows."""
    made = dataclasses.make_dataclass("Spec", ["cache_dtype_str", "state_content_size_bytes", "block_stride_alignment"])
    backend = ours().FlashMLASparseBackend
    assert backend.customize_spec(made("auto", 1152, None)).block_stride_alignment == 1152
    assert backend.customize_spec(made("fp8_ds_mla", 656, None)).block_stride_alignment is None


def test_decodes_come_first(vllm, monkeypatch):
    """Which the indexer wants and does not ask for itself; as many tokens as speculation makes are a decode."""
    asked: list[Any] = []
    theirs = importlib.import_module("vllm.v1.attention.backend").AttentionMetadataBuilder
    keep = lambda self, *args, **kwargs: asked.append((args, kwargs))  # noqa: E731
    monkeypatch.setattr(theirs, "_init_reorder_batch_threshold", keep)
    make_builder(engine_config(2, "auto"))
    assert asked == [((1,), {"supports_spec_as_decode": True})]


def test_a_cache_that_is_partly_on_the_host_is_refused(vllm):
    """Which vLLM calls HiSparse: it keeps rows elsewhere than where a block table says."""
    vllm.config.attention_config.hisparse_config = object()
    given = layer_arguments(Layer(torch.Generator().manual_seed(0), 2), torch.zeros(1, 2).int(), "auto")
    with pytest.raises(UnsupportedError, match="hisparse_config: got a HiSparse cache; accepts None"):
        ours().FlashMLASparseImpl(**given)


def test_vllm_tells_what_the_builder_reads():
    for described in RELEASES.values():
        assert set(Step.__annotations__) <= set(described["classes"]["CommonAttentionMetadata"]["attributes"])


def test_the_layer_calls_what_there_is(vllm):
    impl, calls = ours().FlashMLASparseImpl, RELEASES[vllm.release]["calls"]
    more = ["topk_indices_buffer", "index_group_builder"]
    inspect.signature(impl).bind(**dict.fromkeys([*calls["impl_cls"]["keywords"], *more]))
    for name in ("do_kv_cache_update", "forward_mqa"):
        assert not calls[name]["keywords"]
        inspect.signature(getattr(impl, name)).bind(None, *range(calls[name]["positional"]))


class LayerOfVllm:
    """Do what vLLM's layer does around an impl: write, absorb, ask for latents, project."""

    def __init__(self, layer: Layer, buffer: torch.Tensor, cache_dtype: str) -> None:
        self.impl = ours().FlashMLASparseImpl(**layer_arguments(layer, buffer, cache_dtype), topk_indices_buffer=buffer)
        self.cache_dtype = cache_dtype
        weight = layer.kv_b_proj.weight.to(buffer.device).view(HEADS, NOPE + V, LATENT)
        self.w_uk_t, self.w_uv = weight[:, :NOPE], weight[:, NOPE:].transpose(1, 2)

    def forward(self, _: None, q: Any, latent: Any, rope: Any, cache: Any, metadata: Any, output: Any) -> torch.Tensor:
        scale = torch.ones(1)
        tokens = metadata.num_actual_tokens
        slots = metadata.slot_mapping[:tokens]
        self.impl.do_kv_cache_update(latent, rope, cache, slots, self.cache_dtype, scale, False)
        assert metadata.num_decode_tokens == tokens
        assert metadata.num_prefills == 0
        nope, q_rope = q[:tokens].split([NOPE, ROPE], -1)
        absorbed = nope.new_empty(tokens, HEADS, LATENT)
        torch.bmm(nope.transpose(0, 1), self.w_uk_t, out=absorbed.transpose(0, 1))
        latents, lse = self.impl.forward_mqa((absorbed, q_rope), cache, metadata, self)
        assert lse is None
        output[:tokens] = torch.bmm(latents.transpose(0, 1), self.w_uv).transpose(0, 1).flatten(1)
        assert isinstance(output, torch.Tensor)
        return output


class EngineOfVllm(Engine):
    """The small engine drives vLLM's classes."""

    def make_builder(self, config: Any) -> Any:
        return make_builder(config, device=self.device)

    def make_layer(self, layer: Layer) -> Any:
        return LayerOfVllm(layer, self.buffer, self.cache_dtype)


@pytest.mark.parametrize("cache_dtype", ["auto", "fp8_ds_mla"])
def test_tokens_are_those_of_a_plain_model(vllm, cache_dtype):
    check_tokens("cpu", 0, cache_dtype, EngineOfVllm)


def test_an_indexer_may_change_its_buffer(vllm):
    first, second = torch.zeros(1, 2).int(), torch.ones(1, 2).int()
    arguments = layer_arguments(Layer(torch.Generator().manual_seed(0), 2), first, "auto")
    impl = ours().FlashMLASparseImpl(**arguments)
    assert impl.topk_indices_buffer is first
    arguments["indexer"].topk_indices_buffer = second
    assert impl.topk_indices_buffer is second
    impl.topk_indices_buffer = first
    assert impl.topk_indices_buffer is first


@pytest.mark.parametrize(
    "name", ["concat_and_cache_mla", "quantize_and_insert_k_cache", "triton_convert_req_index_to_global_index"]
)
def test_functions_have_their_signatures(name):
    """Those of 0.33; 0.32 has no ``skip_scale``."""
    assert shape_of(getattr(door, name)) == RELEASES["0.33.0"]["functions"][name]["parameters"]


@pytest.mark.parametrize(
    ("kv_cache_dtype", "rank", "width", "dtype"),
    [
        ("auto", 512, 576, torch.bfloat16),
        ("auto", 512, 576, torch.float32),
        ("bfloat16", 512, 576, torch.bfloat16),
        ("float16", 256, 320, torch.float16),
        ("float32", 256, 320, torch.float32),
        ("fp8", 512, 576, torch.uint8),
        ("fp8_e4m3", 512, 576, torch.float8_e4m3fn),
        ("fp8_e4m3", 256, 320, torch.uint8),
        ("fp8_ds_mla", 512, 656, torch.uint8),
    ],
)
def test_concat_and_cache_mla(kv_cache_dtype, rank, width, dtype):
    source = torch.Generator().manual_seed(0)
    own = torch.bfloat16 if dtype.itemsize == 1 else dtype
    latent, rope = (torch.randn(5, n, generator=source).to(own) for n in (rank, ROPE))
    slots, scale = torch.tensor([3, -1, 17]), torch.tensor([0.02])
    got, want = (
        torch.zeros(2, PAGE, width, dtype=torch.uint8).repeat(1, 1, dtype.itemsize).view(dtype) for _ in range(2)
    )
    door.concat_and_cache_mla(latent, rope, got, slots, kv_cache_dtype, scale)
    quantised = want.view(torch.float8_e4m3fn) if kv_cache_dtype.startswith("fp8") and width != 656 else want
    own_scale = scale if quantised.dtype == torch.float8_e4m3fn else None
    reference.store_kv(latent[:3], rope[:3], quantised, slots, own_scale, power_of_two_scales=width == 656)
    assert_same_bytes("the cache", got, want)
    assert got.view(torch.uint8).any()


def test_scales_in_rows_are_those_of_vllm(vllm):
    """By the function and by the impl: ``2 ** ceil(log2(max(amax / 448, 1e-4)))``, as vLLM 0.33 stores them."""
    latent, rope = torch.zeros(1, LATENT).bfloat16(), torch.zeros(1, ROPE).bfloat16()
    latent[0, 5], latent[0, 200], latent[0, 300] = 336.0, -450.0, 1e-6
    written = [torch.zeros(1, PAGE, 656, dtype=torch.uint8) for _ in range(2)]
    slot, one = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    door.concat_and_cache_mla(latent, rope, written[0], slot, "fp8_ds_mla", one)
    arguments = layer_arguments(Layer(torch.Generator().manual_seed(0), 2), torch.zeros(1, 2).int(), "fp8_ds_mla")
    impl = ours().FlashMLASparseImpl(**arguments)
    impl.do_kv_cache_update(latent, rope[:, None], written[1], slot, "fp8_ds_mla", one)
    for cache in written:
        assert cache[0, 0, 512:528].view(torch.float32).tolist() == [1.0, 2.0, 2.0**-13, 2.0**-13]


@pytest.mark.parametrize(
    ("rank", "rope", "text"),
    [
        (448, 64, r"kv_c: got shape \[1, 448\]; accepts \[num_tokens, 512\]"),
        (512, 32, r"k_pe: got shape \[1, 32\]; accepts \[num_tokens, 64\]"),
    ],
)
def test_rows_that_do_not_fit_the_cache(rank, rope, text):
    given = torch.zeros(1, rank), torch.zeros(1, rope), torch.zeros(1, 1, 576)
    with pytest.raises(ShapeError, match=text):
        door.concat_and_cache_mla(*given, torch.zeros(1).long(), "auto", torch.ones(1))


def test_a_cache_that_is_not_known():
    given = torch.zeros(1, 512), torch.zeros(1, 64), torch.zeros(1, 1, 576)
    with pytest.raises(UnsupportedError, match="kv_cache_dtype: got 'nvfp4'; accepts auto, bfloat16"):
        door.concat_and_cache_mla(*given, torch.zeros(1).long(), "nvfp4", torch.ones(1))
