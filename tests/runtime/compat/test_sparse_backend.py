"""The backend in pieces: names and shapes, metadata in buffers that stay, one layer, and what is refused."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.backends.flashmla_sparse import (
    CudaGraphSupport,
    FlashMLASparseBackend,
    FlashMLASparseDecodeAndContextMetadata,
    FlashMLASparseImpl,
    FlashMLASparseMetadata,
    FlashMLASparseMetadataBuilder,
    MLASparsePrefillMetadata,
    lse2_to_lse,
)
from mla_kernels.compat.flash_mla import flash_mla_with_kvcache
from mla_kernels.errors import InvalidArgumentError, UnsupportedError, ValueRangeError

from tests.support.engine import PAGE, engine_config, make_layer
from tests.support.model import HEADS, LATENT, NOPE, ROPE, SCALE, Layer, V
from tests.support.rows import rows

TOPK = 8


def parameters(function: Any) -> str:
    """Return the names of its parameters, and defaults that are not None."""
    return " ".join(
        name if each.default in {each.empty, None} else f"{name}={each.default}"
        for name, each in inspect.signature(function).parameters.items()
    )


def test_signatures_are_those_of_the_seed():
    assert parameters(FlashMLASparseBackend.get_kv_cache_shape) == (
        "num_blocks block_size num_kv_heads head_size cache_dtype_str=auto"
    )
    assert parameters(FlashMLASparseMetadataBuilder) == "kv_cache_spec layer_names vllm_config device"
    assert parameters(FlashMLASparseMetadataBuilder.build) == (
        "self common_prefix_len common_attn_metadata fast_build=False"
    )
    assert parameters(FlashMLASparseImpl).startswith(
        "num_heads head_size scale num_kv_heads alibi_slopes sliding_window kv_cache_dtype logits_soft_cap attn_type "
        "kv_sharing_target_layer_name topk_indice_buffer indexer "
    )
    assert parameters(FlashMLASparseImpl.forward) == (
        "self layer q k_c_normed k_pe kv_cache attn_metadata output output_scale output_block_scale"
    )
    assert parameters(MLASparsePrefillMetadata) == "block_table has_context=False context_lens"


def test_the_backend_says_what_it_is():
    backend = FlashMLASparseBackend
    assert backend.get_name() == "FLASHMLA_SPARSE_VLLM_V1"
    assert backend.accept_output_buffer
    assert backend.get_metadata_cls() is FlashMLASparseMetadata
    assert backend.get_builder_cls() is FlashMLASparseMetadataBuilder
    assert backend.get_impl_cls() is FlashMLASparseImpl
    assert backend.get_kv_cache_shape(10, 64, 1, 576) == (10, 64, 576)
    assert backend.get_kv_cache_shape(10, 64, 1, 576, "fp8_ds_mla") == (10, 64, 656)
    assert (backend.get_supported_dtypes(), backend.get_supported_head_sizes()) == ([torch.bfloat16], [576])
    assert FlashMLASparseMetadataBuilder.cudagraph_support is CudaGraphSupport.UNIFORM_BATCH


def cache_of(row):
    """What of a variant an engine's cache decides."""
    return row.arch, row.q_dtype, row.form, row.extra_form


@pytest.mark.parametrize("row", rows("sparse_decode"), ids=lambda row: row.name)
def test_no_cache_needs_padded_heads(row):
    """Every number of heads is accepted by a variant for the cache, so that a layer never pads its queries."""
    variants = [each for each in rows("sparse_decode") if cache_of(each) == cache_of(row)]
    for heads in (1, 2, 16, 17, 64, 128):
        assert any(variant.serves(num_heads=heads) for variant in variants)


def test_filtered_indices():
    metadata = FlashMLASparseDecodeAndContextMetadata(prefill_context_lengths=torch.tensor([4, 0, 9]).int())
    indices = torch.tensor([[0, 3, 4, 7, -1], [0, 5, 2, -1, -1], [8, 0, -1, 2, 1]]).int()
    context, new = metadata.filter_prefill_indices(indices)
    assert context.tolist() == [[0, 3, -1, -1, -1], [-1] * 5, [8, 0, -1, 2, 1]]
    assert new.tolist() == [[-1, -1, 0, 3, -1], [0, 5, 2, -1, -1], [-1] * 5]
    assert (context.dtype, new.dtype) == (torch.int32, torch.int32)
    with pytest.raises(ValueError, match="prefill_context_lengths is None: this step has no prefill"):
        FlashMLASparseDecodeAndContextMetadata().filter_prefill_indices(indices)


def test_lse_of_base_two():
    logits = torch.tensor([1.5, -0.5, 3.0])
    base_two = torch.log2(torch.exp2(logits / torch.log(torch.tensor(2.0))).sum())
    torch.testing.assert_close(lse2_to_lse(base_two), logits.logsumexp(0))


def builder(cache_dtype: str = "fp8_ds_mla", max_tokens: int = 10) -> FlashMLASparseMetadataBuilder:
    config = engine_config(TOPK, cache_dtype, max_tokens)
    return FlashMLASparseMetadataBuilder(SimpleNamespace(block_size=PAGE), ["layer"], config, torch.device("cpu"))


def step(*lengths: int, padded: int = 0) -> Any:
    """Make a step whose requests have so many new tokens, padded to ``padded``."""
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    return SimpleNamespace(
        num_reqs=len(lengths), num_actual_tokens=max(int(starts[-1]), padded), max_query_len=max(lengths),
        max_seq_len=99, query_start_loc=starts, query_start_loc_cpu=starts, slot_mapping=torch.arange(sum(lengths)),
        block_table_tensor=torch.zeros(len(lengths), 3).int(),
    )  # fmt: skip


def test_metadata_of_a_step():
    made, given = builder("auto"), step(3, 0, 1, 2)
    metadata = made.build(0, given, fast_build=True)
    assert metadata.req_id_per_token.tolist() == [0, 0, 0, 2, 3, 3]
    assert metadata.req_id_per_token.dtype == torch.int32
    assert (metadata.num_reqs, metadata.num_actual_tokens, metadata.max_query_len, metadata.max_seq_len) == (
        4,
        6,
        3,
        99,
    )
    assert (metadata.block_size, metadata.topk_tokens) == (PAGE, TOPK)
    assert metadata.block_table is given.block_table_tensor
    assert metadata.slot_mapping is given.slot_mapping
    assert metadata.query_start_loc is given.query_start_loc
    assert metadata.fp8_extra_metadata is None


def test_a_graph_may_read_the_buffers_of_every_step():
    made = builder()
    first = made.build(0, step(3, 2, 5))
    addresses = addresses_of(first)
    second = made.build(0, step(1, 1, padded=4))
    assert second.req_id_per_token.tolist() == [0, 1, 0, 0]
    assert made.req_id_per_token_buffer[4:].tolist() == [0] * 6
    assert addresses_of(second) == addresses


def addresses_of(metadata: FlashMLASparseMetadata) -> list[int]:
    extra = metadata.fp8_extra_metadata
    assert extra is not None
    return [tensor.data_ptr() for tensor in (metadata.req_id_per_token, *vars(extra).values())]


def test_too_many_tokens():
    with pytest.raises(ValueRangeError, match="num_actual_tokens: got 11; accepts up to 10, the engine's max_num_batc"):
        builder().build(0, step(6, 5))


def test_an_engine_may_call_flash_mla_itself():
    """Such an engine passes the tensors of ``fp8_extra_metadata`` to FlashMLA's function."""
    cache = torch.zeros(4, PAGE, 656, dtype=torch.uint8)
    latent, rope = torch.randn(4 * PAGE, 512).bfloat16(), torch.randn(4 * PAGE, 64).bfloat16()
    mla.store_kv(latent, rope, cache, torch.arange(4 * PAGE))
    extra = builder().build(0, step(3, 2)).fp8_extra_metadata
    assert extra is not None
    q = torch.randn(5, HEADS, 576).bfloat16()
    indices = torch.randint(-1, 4 * PAGE, (1, 5, TOPK)).int()
    out, _ = flash_mla_with_kvcache(
        q=q[None], k_cache=cache[:, :, None], block_table=extra.dummy_block_table, head_dim_v=512,
        cache_seqlens=extra.cache_lens, tile_scheduler_metadata=extra.scheduler_metadata, num_splits=extra.num_splits,
        is_fp8_kvcache=True, indices=indices, softmax_scale=SCALE,
    )  # fmt: skip
    want = mla.sparse_decode(q[None], cache, indices, softmax_scale=SCALE)[0]
    assert torch.equal(out, want)


def layer_of(cache_dtype: str, buffer: torch.Tensor | None = None) -> FlashMLASparseImpl:
    layer = Layer(torch.Generator().manual_seed(0), TOPK)
    buffer = torch.zeros(10, TOPK, dtype=torch.int32) if buffer is None else buffer
    made: FlashMLASparseImpl = make_layer(layer, buffer, cache_dtype)
    return made


def test_weights():
    impl = layer_of("auto")
    weight = impl.kv_b_proj.weight.view(HEADS, NOPE + V, LATENT)
    assert torch.equal(impl.W_UK_T, weight[:, :NOPE])
    assert torch.equal(impl.W_UV, weight[:, NOPE:].transpose(1, 2))
    assert torch.equal(impl.W_UK_T, layer_with(lambda units: (units @ weight.flatten(0, 1).T, None)).W_UK_T)


def layer_with(project: Any) -> FlashMLASparseImpl:
    """A layer whose projection is a function, as one that dequantises is."""
    impl = layer_of("auto")
    weight = impl.kv_b_proj.weight

    class Projection:
        def __init__(self) -> None:
            self.weight = weight

        def __call__(self, units: torch.Tensor) -> Any:
            return project(units)

    impl.kv_b_proj = Projection()
    impl.process_weights_after_loading(torch.bfloat16)
    return impl


@pytest.mark.parametrize("cache_dtype", ["auto", "bfloat16", "fp8_ds_mla"])
def test_attend_tells_the_lse(cache_dtype):
    buffer = torch.tensor([[0, 5, 2, -1], [-1] * 4, [7, -1, 0, 3]]).int()
    impl = layer_of(cache_dtype, buffer)
    shape = FlashMLASparseBackend.get_kv_cache_shape(3, PAGE, 1, 576, cache_dtype)
    cache = torch.zeros(shape, dtype=torch.uint8 if shape[-1] == 656 else torch.bfloat16)
    source = torch.Generator().manual_seed(1)
    latent, rope = (torch.randn(8, width, generator=source).bfloat16() for width in (LATENT, ROPE))
    impl.write(latent, rope[:, None], cache, torch.arange(8) + PAGE)
    metadata = FlashMLASparseMetadata(
        num_reqs=1, max_query_len=3, max_seq_len=8, num_actual_tokens=3, query_start_loc=torch.tensor([0, 3]).int(),
        slot_mapping=torch.arange(3), block_table=torch.ones(1, 1).int(), req_id_per_token=torch.zeros(3).int(),
        block_size=PAGE, topk_tokens=4,
    )  # fmt: skip
    q = torch.randn(3, HEADS, 576, generator=source).bfloat16()
    out, lse = impl.attend(q, cache, metadata)
    slots = buffer.where(buffer < 0, buffer + PAGE)
    want_out, want_lse = reference.sparse_decode(q[None], cache, slots[None], softmax_scale=SCALE)
    # A kernel may round the weights of these few tokens to 16 bits, and codes times scales, which move logits; values
    # and logits have deviations of 1 and more.
    torch.testing.assert_close(out.float(), want_out[0], rtol=0.02, atol=2e-2)
    of_lse = 2e-2 if cache_dtype == "fp8_ds_mla" else 1e-4
    torch.testing.assert_close(lse, want_lse[0].T, rtol=1e-4, atol=of_lse)
    assert lse[1].isneginf().all()
    assert not out[1].any()
    assert impl.attend(q, cache, metadata, lse=False)[1] is None


def test_a_profiling_run_gives_zeros():
    output = torch.full((4, HEADS * V), torch.nan)
    got = layer_of("auto").forward(None, torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0), None, output)
    assert got is output
    assert not got.any()


def test_a_cache_without_elements_is_not_written():
    """A layer that is run before its cache exists."""
    impl = layer_of("auto", torch.full((4, TOPK), -1).int())
    metadata = builder("auto").build(0, step(4))
    output = torch.full((4, HEADS * V), torch.nan).bfloat16()
    q = torch.randn(4, HEADS, NOPE + ROPE).bfloat16()
    latent, rope = torch.randn(4, LATENT).bfloat16(), torch.randn(4, 1, ROPE).bfloat16()
    impl.forward(None, q, latent, rope, torch.empty(0, PAGE, 576).bfloat16(), metadata, output)
    assert not output.any()


@pytest.mark.parametrize("num_heads", [1, 3, 128])
def test_any_number_of_heads(num_heads):
    project = torch.nn.Linear(LATENT, num_heads * (NOPE + V), bias=False, dtype=torch.bfloat16).requires_grad_(False)
    buffer = torch.zeros(2, TOPK).int()
    impl = FlashMLASparseImpl(
        num_heads, 576, SCALE, 1, None, None, "auto", None, "decoder", None, buffer, kv_lora_rank=LATENT,
        qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=V, kv_b_proj=project,
    )  # fmt: skip
    impl.process_weights_after_loading(torch.bfloat16)
    latent, rope = torch.randn(2, LATENT).bfloat16(), torch.randn(2, 1, ROPE).bfloat16()
    q = torch.randn(2, num_heads, NOPE + ROPE).bfloat16()
    cache = torch.zeros(1, PAGE, 576).bfloat16()
    output = torch.empty(2, num_heads * V).bfloat16()
    impl.forward(None, q, latent, rope, cache, builder("auto").build(0, step(2)), output)
    # Every index is position 0, so that what is attended to is its value.
    want = project(latent[:1]).view(num_heads, NOPE + V)[:, NOPE:].flatten().expand(2, -1)
    torch.testing.assert_close(output, want, rtol=0.03, atol=0.03)


ARGUMENTS: dict[str, Any] = {
    "num_heads": HEADS, "head_size": 576, "scale": SCALE, "num_kv_heads": 1, "alibi_slopes": None,
    "sliding_window": None, "kv_cache_dtype": "auto", "logits_soft_cap": None, "attn_type": "decoder",
    "kv_sharing_target_layer_name": None, "topk_indice_buffer": torch.zeros(1, TOPK).int(), "kv_lora_rank": LATENT,
    "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": V, "kv_b_proj": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("head_size", 512, "got 512; accepts 576"),
        ("num_kv_heads", 2, "got 2; accepts 1"),
        ("alibi_slopes", [1.0], "accepts None: MLA has no such thing"),
        ("sliding_window", 128, "got 128; accepts None"),
        ("logits_soft_cap", 30.0, "got 30.0; accepts None"),
        ("kv_sharing_target_layer_name", "layer", "accepts None"),
        ("kv_cache_dtype", "fp8", "got 'fp8'; accepts 'auto' or 'bfloat16' or 'fp8_ds_mla'"),
        ("attn_type", "encoder", "got 'encoder'; accepts 'decoder'"),
        ("kv_lora_rank", 256, "got 256; accepts 512"),
        ("qk_rope_head_dim", 32, "got 32; accepts 64"),
    ],
)
def test_refusals_of_a_layer(name, value, text):
    FlashMLASparseImpl(**ARGUMENTS)
    with pytest.raises(InvalidArgumentError, match=f"{name}: {'' if text.startswith('got') else '.*'}{text}"):
        FlashMLASparseImpl(**ARGUMENTS | {name: value})


def test_a_layer_needs_an_indexer():
    with pytest.raises(UnsupportedError, match="indexer: got None; accepts an indexer, or its buffer"):
        FlashMLASparseImpl(**ARGUMENTS | {"topk_indice_buffer": None})


@pytest.mark.parametrize("name", ["output", "output_scale", "output_block_scale"])
def test_refusals_of_a_call(name):
    given = {"output": torch.zeros(1, HEADS * V), "attn_metadata": None}
    given |= {name: None if name == "output" else torch.ones(1)}
    rest = dict.fromkeys(("layer", "q", "k_c_normed", "k_pe", "kv_cache"), torch.empty(0))
    with pytest.raises(UnsupportedError, match=f"{name}: got"):
        layer_of("auto").forward(**rest, **given)
