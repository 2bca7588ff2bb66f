"""The FlashMLA sparse backend on a GPU: an engine's tokens, and a layer in a CUDA graph that replays other steps."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels.backends.flashmla_sparse import FlashMLASparseBackend

from tests.gpu.support.availability import require_arch
from tests.gpu.support.launches import captured
from tests.gpu.support.tensors import set_all_bits
from tests.support.engine import PAGE, check_tokens, engine_config, make_layer
from tests.support.model import HEADS, LATENT, NOPE, ROPE, Layer, V
from tests.support.rows import rows

ARCHS = sorted({row.arch for row in rows("sparse_decode") if row.device == "cuda"})
TOPK, TOKENS = 64, 5

pytestmark = pytest.mark.parametrize("served", ARCHS)
each_cache = pytest.mark.parametrize("cache_dtype", ["auto", "fp8_ds_mla"])


@pytest.fixture(autouse=True)
def arch_under_test(served: str) -> None:
    """Skip an arch that is not under test."""
    require_arch(served)


@each_cache
def test_tokens_are_those_of_a_plain_model(served: str, cache_dtype: str) -> None:
    check_tokens("cuda", 0, cache_dtype)


@each_cache
def test_a_graph_replays_other_steps(served: str, cache_dtype: str) -> None:
    """A graph captured over one step is replayed over others of its size, whose metadata is built anew in place."""
    builder = FlashMLASparseBackend.get_builder_cls()(
        SimpleNamespace(block_size=PAGE), ["layer"], engine_config(TOPK, cache_dtype), torch.device("cuda")
    )
    buffer = torch.zeros(TOKENS, TOPK, dtype=torch.int32, device="cuda")
    impl = make_layer(Layer(torch.Generator().manual_seed(0), TOPK), buffer, cache_dtype)
    shape = FlashMLASparseBackend.get_kv_cache_shape(40, PAGE, 1, LATENT + ROPE, cache_dtype)
    cache = torch.zeros(shape, dtype=torch.uint8 if shape[-1] == 656 else torch.bfloat16, device="cuda")
    given = tensors(0)
    step = common(given)
    output = torch.empty(TOKENS, HEADS * V, dtype=torch.bfloat16, device="cuda")

    def attend(metadata: Any) -> None:
        impl.forward(None, given["q"], given["latent"], given["rope"], cache, metadata, output)

    attend(builder.build(0, step))
    torch.cuda.synchronize()
    graph = captured(partial(attend, builder.build(0, step)))
    for seed in (1, 2):
        for name, value in tensors(seed).items():
            given[name].copy_(value)
        # The indices name rows that the step itself has written, and rows of zeros that nobody has.
        buffer.copy_(torch.randint(-1, 6, buffer.shape, generator=torch.Generator().manual_seed(seed)))
        cache.zero_()
        attend(builder.build(0, step))
        want = output.clone()
        cache.zero_()
        set_all_bits(output)
        builder.build(0, step)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(output, want)
        assert output.any()


def tensors(seed: int) -> dict[str, torch.Tensor]:
    """The tensors that a step's layer is given, and the slots that they are stored in."""
    source = torch.Generator().manual_seed(seed)
    table = torch.randperm(40, generator=source)[:6].view(2, 3)
    values = {
        "q": torch.randn(TOKENS, HEADS, NOPE + ROPE, generator=source).bfloat16(),
        "latent": torch.randn(TOKENS, LATENT, generator=source).bfloat16(),
        "rope": torch.randn(TOKENS, 1, ROPE, generator=source).bfloat16(),
        "slots": torch.cat([table[0, 0] * PAGE + torch.arange(2), table[1, 0] * PAGE + torch.arange(3)]),
        "table": table.int(),
    }
    return {name: value.cuda() for name, value in values.items()}


def common(given: dict[str, torch.Tensor]) -> Any:
    """The metadata of a step of two requests, of two and three new tokens."""
    starts = torch.tensor([0, 2, TOKENS], dtype=torch.int32)
    return SimpleNamespace(
        num_reqs=2,
        num_actual_tokens=TOKENS,
        max_query_len=3,
        max_seq_len=3 * PAGE,
        query_start_loc=starts.cuda(),
        query_start_loc_cpu=starts,
        block_table_tensor=given["table"],
        slot_mapping=given["slots"],
    )
