"""Sparse attention in SGLang's DSA backend, whose methods ours replace on request, beside the reference."""

from __future__ import annotations

import inspect
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels import reference
from mla_kernels.compat import sglang_plugin as door
from mla_kernels.errors import UnsupportedError, ValueRangeError

from tests.runtime.compat.sglang.problems import RANK, ROPE, SCALE, layer_of
from tests.runtime.compat.sglang.stand_ins import Engine

SLOTS, TOPK = 320, 64
HEADS = 5
"""A number that FlashMLA does not take."""
COUNTS = [1, 64, 0, 37]
"""Slots that count, of each token."""


@pytest.fixture
def hooks(sglang, monkeypatch) -> dict[str, Any]:
    """What SGLang calls of the DSA backend once both kernels are to be replaced, by the names of its methods."""
    monkeypatch.setenv(door.VARIABLE, " flashmla_kv, flashmla_sparse ")
    return registered(sglang)


def registered(sglang: Engine) -> dict[str, Any]:
    """The hooks of the DSA backend; a method is replaced, and what follows the constructor is called after it."""
    door.plugin()
    owner = f"{sglang.names['read']['DeepseekSparseAttnBackend']['module']}.DeepseekSparseAttnBackend."
    found = {target.removeprefix(owner): (hook, at) for target, hook, at in sglang.hooks if target.startswith(owner)}
    assert all(at == ("AFTER" if name == "__init__" else "REPLACE") for name, (_, at) in found.items())
    return {name: hook for name, (hook, _) in found.items()}


def started(
    sglang: Engine, hooks: dict[str, Any], fp8: bool = False, dtype: torch.dtype = torch.bfloat16, **other: Any
) -> Any:
    """A DSA backend as SGLang has just made it."""
    given = {"kv_lora_rank": RANK, "qk_rope_head_dim": ROPE, "num_q_heads": HEADS, "dsa_kv_cache_store_fp8": fp8}
    given |= {"dsa_prefill_impl": "flashmla_sparse", "dsa_decode_impl": "flashmla_kv"}
    cache = other.pop("cache", torch.float8_e4m3fn if fp8 else dtype)
    names = sglang.names["read"]["DeepseekSparseAttnBackend"]["names"]
    assert given.keys() < names.keys()
    backend = SimpleNamespace(**given | other)
    runner = SimpleNamespace(device="cpu", gpu_id=0, dtype=dtype, kv_cache_dtype=cache)
    assert hooks["__init__"](None, backend, runner, False) is None
    assert hooks["__init__"](None, backend, model_runner=runner, skip_prefill=True) is None
    return backend


def as_sglang_stores(rows: torch.Tensor) -> torch.Tensor:
    """Rows of bytes ``[slots, 656]``: 512 elements of e4m3, a scale of 32 bits for each 128, and the rope part."""
    latents = rows[:, :RANK].float().unflatten(1, (4, 128))
    scales = latents.abs().amax(2) / 448
    elements = (latents / scales[..., None]).to(torch.float8_e4m3fn).flatten(1)
    return torch.cat([each.contiguous().view(torch.uint8) for each in (elements, scales, rows[:, RANK:])], 1)


class Selected:
    """Tokens that attend to slots of a cache that an indexer has selected; what follows those that count is absent."""

    def __init__(self, fp8: bool, seed: int = 0) -> None:
        source = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=source).bfloat16()

        self.q, self.rows = random(len(COUNTS), HEADS, RANK + ROPE), random(SLOTS, 1, RANK + ROPE)
        if fp8:
            self.rows = as_sglang_stores(self.rows[:, 0])[:, None].view(torch.float8_e4m3fn)
        self.slots = torch.stack([torch.randperm(SLOTS, generator=source)[:TOPK] for _ in COUNTS]).int()
        for row, count in zip(self.slots, COUNTS, strict=True):
            row[count:] = -1
        self.counts = torch.tensor(COUNTS, dtype=torch.int32)

    def expected(self, sink: torch.Tensor | None = None) -> torch.Tensor:
        rows = self.rows.view(torch.uint8) if self.rows.element_size() == 1 else self.rows
        out, *_ = reference.sparse_decode(self.q[None], rows, self.slots[None], softmax_scale=SCALE, attn_sink=sink)
        return out[0].bfloat16()


def call(sglang: Engine, name: str, hook: Any, **given: Any) -> torch.Tensor:
    """Call a method as SGLang's code does, by keywords."""
    (keywords,) = {tuple(each["keywords"]) for each in sglang.names["calls"] if each["name"] == name}
    assert set(given) == {"backend", *keywords}
    out: torch.Tensor = hook(given.pop("backend"), **given)
    return out


def kv(
    sglang: Engine, hooks: dict[str, Any], backend: Any, problem: Selected, counts: torch.Tensor | None = None
) -> torch.Tensor:
    """What the method over the cache gives, without the axis of query tokens."""
    names = sglang.names["read"]["DSAMetadata"]["names"]
    metadata = SimpleNamespace(**dict.fromkeys(names, problem.counts if counts is None else counts))
    layer = layer_of(sglang, tp_q_head_num=HEADS)
    out = call(
        sglang, "_forward_flashmla_kv", hooks["_forward_flashmla_kv"], backend=backend, q_all=problem.q,
        kv_cache=problem.rows, sm_scale=SCALE, v_head_dim=RANK, layer=layer, metadata=metadata,
        page_table_1=problem.slots,
    )  # fmt: skip
    assert out.shape == (len(COUNTS), 1, HEADS, RANK)
    return out[:, 0]


def sparse(sglang: Engine, hooks: dict[str, Any], backend: Any, problem: Selected, **more: Any) -> torch.Tensor:
    """What the method over rows of 16 bits gives."""
    given = {"topk_length": problem.counts, "attn_sink": None} | more
    return call(
        sglang, "_forward_flashmla_sparse", hooks["_forward_flashmla_sparse"], backend=backend, q_all=problem.q,
        kv_cache=problem.rows, sm_scale=SCALE, v_head_dim=RANK, page_table_1=problem.slots, **given,
    )  # fmt: skip


@pytest.mark.parametrize("fp8", [False, True])
def test_the_cache_is_read_as_it_is(sglang, hooks, fp8):
    backend, problem = started(sglang, hooks, fp8=fp8), Selected(fp8)
    torch.testing.assert_close(kv(sglang, hooks, backend, problem), problem.expected(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("counts", [[TOPK] * len(COUNTS), [TOPK]])
def test_a_slot_that_is_absent_is_absent_whatever_is_counted(sglang, hooks, counts):
    backend, problem = started(sglang, hooks, fp8=True), Selected(fp8=True)
    found = kv(sglang, hooks, backend, problem, torch.tensor(counts, dtype=torch.int32))
    torch.testing.assert_close(found, problem.expected(), rtol=0.02, atol=0.02)


def test_rows_of_bytes_are_read_by_either_method(sglang, hooks):
    """SGLang hands them to both, and a sink only to this one."""
    backend, problem, sink = started(sglang, hooks, fp8=True), Selected(fp8=True), torch.randn(HEADS)
    found = sparse(sglang, hooks, backend, problem, attn_sink=sink)
    torch.testing.assert_close(found, problem.expected(sink), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("fp8", [False, True])
def test_rows_of_16_bits_are_read_beside_either_cache(sglang, hooks, fp8):
    backend, problem = started(sglang, hooks, fp8=fp8), Selected(fp8=False)
    torch.testing.assert_close(sparse(sglang, hooks, backend, problem), problem.expected(), rtol=0.02, atol=0.02)


def test_a_sink_takes_part(sglang, hooks):
    backend, problem, sink = started(sglang, hooks), Selected(fp8=False), torch.randn(HEADS)
    found = sparse(sglang, hooks, backend, problem, attn_sink=sink)
    torch.testing.assert_close(found, problem.expected(sink), rtol=0.02, atol=0.02)
    assert not torch.allclose(found, problem.expected(), rtol=0.02, atol=0.02)


def test_only_so_many_slots_count(sglang, hooks):
    """Where there is a count for each token; SGLang itself reads all slots where there is not."""
    backend, problem = started(sglang, hooks), Selected(fp8=False)
    fewer = torch.tensor([1, 9, 0, 2], dtype=torch.int32)
    found = sparse(sglang, hooks, backend, problem, topk_length=fewer)
    all_of_them = sparse(sglang, hooks, backend, problem, topk_length=fewer[:2])
    torch.testing.assert_close(all_of_them, problem.expected(), rtol=0.02, atol=0.02)
    for row, count in zip(problem.slots, fewer.tolist(), strict=True):
        row[count:] = -1
    torch.testing.assert_close(found, problem.expected(), rtol=0.02, atol=0.02)


def test_the_methods_take_what_those_of_sglang_take(sglang, hooks):
    from mla_kernels.compat._sglang import sparse as ours

    names = sglang.names["read"]["DeepseekSparseAttnBackend"]["names"]
    assert hooks.keys() == {"__init__", *door.INSTEAD.values()}
    for name, method in door.INSTEAD.items():
        mine = inspect.signature(getattr(ours, name)).parameters.values()
        shape = [each.name if each.default is each.empty else f"{each.name}=" for each in mine]
        assert shape[1:] == names[method][1:], name


def test_nothing_is_replaced_unless_it_is_asked_for(sglang, monkeypatch):
    monkeypatch.delenv(door.VARIABLE, raising=False)
    assert registered(sglang) == {}


def test_one_of_them_can_be_replaced(sglang, monkeypatch):
    monkeypatch.setenv(door.VARIABLE, "flashmla_kv")
    assert registered(sglang).keys() == {"__init__", "_forward_flashmla_kv"}


def test_what_cannot_be_replaced_is_refused_at_start(sglang, monkeypatch):
    monkeypatch.setenv(door.VARIABLE, "flashmla_kv,fa3")
    text = f"{door.VARIABLE}: got 'fa3'; accepts flashmla_sparse, flashmla_kv, with commas between them"
    with pytest.raises(ValueRangeError, match=text):
        started(sglang, registered(sglang))


WRONG = {
    "a latent of another width": ({"kv_lora_rank": 448}, "head_size: got 512, of which 448 are the value; accepts"),
    "no rope": ({"qk_rope_head_dim": 0}, "head_size: got 512, of which 512 are the value; accepts"),
    "another type": ({"dtype": torch.float16}, "kv_cache_dtype: got 'auto' with float16; accepts"),
    "rows without scales": ({"cache": torch.float8_e4m3fn}, "kv_cache_dtype: got 'fp8_e4m3' without scales, for"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_kernel_serves_is_refused_at_start(sglang, hooks, what):
    given, text = WRONG[what]
    with pytest.raises(UnsupportedError, match=text):
        started(sglang, hooks, **given)


def test_an_engine_that_calls_neither_is_told_so(sglang, hooks, caplog):
    """And is not refused for what it does not ask for."""
    with caplog.at_level(logging.WARNING):
        started(sglang, hooks, kv_lora_rank=448, dsa_prefill_impl="tilelang", dsa_decode_impl="fa3")
    told = "flashmla_kv,flashmla_sparse replaces nothing: this engine prefills by tilelang and decodes by fa3"
    assert set(caplog.messages) == {f"{door.VARIABLE}={told}"}


def test_kernels_that_are_chosen_for_each_batch_are_both_replaced(sglang, hooks):
    backend, problem = started(sglang, hooks, dsa_prefill_impl="flashmla_auto", dsa_decode_impl="fa3"), Selected(False)
    torch.testing.assert_close(sparse(sglang, hooks, backend, problem), problem.expected(), rtol=0.02, atol=0.02)
