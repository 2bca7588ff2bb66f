"""Dense MLA as vLLM's backend, driven as its layer does: stand-ins of its classes, the CPU's payload, the reference.

On a machine without a GPU the classes for GPUs run on the host, which is what shows that they pass arguments rightly.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.errors import UnsupportedError

from tests.runtime.compat.stand_ins import RELEASES, Overrides, check_overridden, installed, ours

LATENT, ROPE, HEADS, PAGE, SCALE = 512, 64, 4, 16, 0.07
KINDS = {"dense.Dense": "MLACommon", "cpu.Cpu": "CPUMLA", "amx.Amx": "AMXMLA"}


@pytest.fixture(params=list(RELEASES))
def vllm(monkeypatch, request) -> Iterator[Overrides]:
    """Install a package ``vllm`` of stand-ins of a release."""
    for overrides in installed(monkeypatch, request.param):
        overrides.config.model_config = SimpleNamespace(dtype=torch.bfloat16)
        for kind in ("dense", "cpu"):
            module = importlib.import_module(f"mla_kernels.compat._vllm.{kind}")
            monkeypatch.setattr(module, "current_arch", lambda: "cpu", raising=False)
        yield overrides


def kind_of(name: str, part: str) -> Any:
    return ours(f"mla_kernels.compat._vllm.{name}{part}")


def arguments(**other: Any) -> dict[str, Any]:
    """What vLLM's layer makes an impl with."""
    given = {
        "num_heads": HEADS, "head_size": LATENT + ROPE, "scale": SCALE, "num_kv_heads": 1, "alibi_slopes": None,
        "sliding_window": None, "kv_cache_dtype": "auto", "logits_soft_cap": None, "attn_type": "decoder",
        "kv_sharing_target_layer_name": None, "q_lora_rank": None, "kv_lora_rank": LATENT, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": ROPE, "qk_head_dim": 32 + ROPE, "v_head_dim": 32, "kv_b_proj": None, "indexer": None,
    }  # fmt: skip
    return given | other


def make_impl(vllm: Overrides, name: str, dtype: torch.dtype = torch.bfloat16, **other: Any) -> Any:
    vllm.config.model_config.dtype = dtype
    impl = kind_of(name, "Impl")(**arguments(**other))
    # What the constructor of vLLM's CPU classes reads out of its keywords.
    vars(impl).update({key: value for key, value in arguments(**other).items() if not hasattr(impl, key)})
    return impl


def make_builder(name: str, impl: Any, dtype: torch.dtype = torch.bfloat16, page: int = PAGE, ranks: int = 1) -> Any:
    """What plans the steps of a layer, as vLLM's base leaves it."""
    made = kind_of(name, "MetadataBuilder")
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context={"layer": SimpleNamespace(impl=impl)}),
        model_config=SimpleNamespace(dtype=dtype),
        parallel_config=SimpleNamespace(cp_kv_cache_interleave_size=1),
    )
    made.num_heads, made.dcp_world_size, made.model_config = impl.num_heads, ranks, config.model_config
    return made(SimpleNamespace(block_size=page), ["layer"], config, torch.device("cpu"))


def plan(builder: Any, lengths: list[int], table: torch.Tensor, *q_lens: int) -> Any:
    """Plan a step of one number of new tokens, or of a number for each request."""
    starts = starts_of(q_lens if len(q_lens) > 1 else q_lens * len(lengths))
    return builder._build_decode(
        block_table_tensor=table, seq_lens_device=torch.tensor(lengths).int(), max_seq_len=max(lengths),
        query_start_loc_cpu=starts, query_start_loc_device=starts, num_decode_tokens=int(starts[-1]),
        max_query_len=max(q_lens), dcp_tot_seq_lens_device=None,
    )  # fmt: skip


def starts_of(q_lens: tuple[int, ...]) -> torch.Tensor:
    """Where the queries of each request begin, and their number."""
    return torch.tensor([0, *q_lens]).cumsum(0).int()


class Problem:
    """Lengths, a poisoned cache, and queries as vLLM's layer has them: the latent part of another tensor's layout.

    Each request has ``q_lens`` new tokens, which is one number for all or one for each.
    """

    def __init__(self, dtype: torch.dtype, *q_lens: int, heads: int = HEADS) -> None:
        source = torch.Generator().manual_seed(sum(q_lens))
        self.lengths = [37, 3, 64]
        self.starts = starts_of(q_lens if len(q_lens) > 1 else q_lens * len(self.lengths))
        self.table = torch.tensor([[5, 0, 7, -9], [2, -9, -9, -9], [1, 4, 3, 6]]).int()
        self.cache = torch.full((9, PAGE, LATENT + ROPE), torch.nan, dtype=dtype)
        for row, length in zip(self.table, self.lengths, strict=True):
            for token in range(length):
                rows = torch.randn(LATENT + ROPE, generator=source)
                self.cache[row[token // PAGE], token % PAGE] = rows.to(dtype)
        tokens = int(self.starts[-1])
        self.latent = torch.randn(heads, tokens, LATENT, generator=source).to(dtype).transpose(0, 1)
        self.rope = torch.randn(tokens, heads, 32 + ROPE, generator=source).to(dtype)[..., 32:]

    def expected(self, kv_scale: float = 1) -> tuple[torch.Tensor, torch.Tensor]:
        q = torch.cat([self.latent, self.rope], -1)[None]
        lengths = torch.tensor(self.lengths).int()
        scales = {"softmax_scale": SCALE, "kv_scale": kv_scale}
        out, lse = reference.decode(q, self.cache, self.table, lengths, cu_seqlens_q=self.starts, **scales)
        return out[0], lse[0].T


def forward(impl: Any, decode: Any, problem: Problem, **scales: float) -> Any:
    metadata = SimpleNamespace(decode=decode, causal=True)
    layer = SimpleNamespace(_q_scale_float=1.0, _k_scale_float=1.0, **scales)
    return impl.forward_mqa((problem.latent, problem.rope), problem.cache, metadata, layer)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("q_lens", [(1,), (3,), (1, 3, 2), (3, 0, 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_layer_attends(vllm, name, q_lens, dtype):
    impl, problem = make_impl(vllm, name, dtype), Problem(dtype, *q_lens)
    impl.need_to_return_lse_for_decode = True
    decode = plan(make_builder(name, impl, dtype), problem.lengths, problem.table, *q_lens)
    out, lse = forward(impl, decode, problem)
    want, want_lse = problem.expected()
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(out, want.to(dtype), **close)
    torch.testing.assert_close(lse, want_lse, rtol=1e-5, atol=1e-4)
    assert out.shape == (problem.starts[-1], HEADS, LATENT)
    assert lse.shape == out.shape[:2]
    impl.need_to_return_lse_for_decode = False
    assert forward(impl, decode, problem)[1] is None


@pytest.mark.parametrize("q_lens", [(1,), (1, 2, 1)])
def test_nothing_is_copied_in_a_layer(vllm, monkeypatch, q_lens):
    """The kernel is handed the very memory of queries, cache, table and lengths."""
    impl, problem = make_impl(vllm, "dense.Dense"), Problem(torch.bfloat16, *q_lens)
    decode = plan(make_builder("dense.Dense", impl), problem.lengths, problem.table, *q_lens)
    launched: list[Any] = []
    kernel = type(decode.kernel)
    launch = kernel.launch

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        launched.append(args)
        return launch(self, *args, **kwargs)

    monkeypatch.setattr(kernel, "__call__", watched)
    forward(impl, decode, problem)
    ((queries, cache, table, lengths),) = launched
    given = (problem.latent, problem.rope, problem.cache, problem.table, decode.seq_lens)
    assert [each.data_ptr() for each in (*queries, cache, table, lengths)] == [each.data_ptr() for each in given]
    assert [each.stride()[2:] for each in queries] == [problem.latent.stride()[1:], problem.rope.stride()[1:]]


def test_plans_of_one_shape_are_refreshed_where_they_lie(vllm):
    impl, problem = make_impl(vllm, "dense.Dense"), Problem(torch.bfloat16, 1)
    builder = make_builder("dense.Dense", impl)
    first, second = (plan(builder, lengths, problem.table, 1) for lengths in (problem.lengths, [1, 2, 3]))
    assert second.plan is first.plan
    assert plan(builder, [4, 5], problem.table[:2], 1).plan is not first.plan
    assert plan(builder, problem.lengths, problem.table, 2).plan is not first.plan


@pytest.mark.parametrize("batch", [64, 256])
def test_plans_stay_within_the_bytes_that_are_stated(vllm, batch):
    """Of every number of requests, with one and two new tokens, however often; see ``Planning``."""
    impl = make_impl(vllm, "cpu.Cpu")
    builder = make_builder("cpu.Cpu", impl)
    for requests in (*range(1, batch + 1), 3, batch):
        for q_len in (1, 2):
            plan(builder, [2] * requests, torch.zeros(requests, 1).int(), q_len)
    sizes = [made.buffer.nbytes for made in builder._plans.values()]
    assert len(sizes) == 2 * batch
    assert max(sizes) == 20 * batch + 24
    assert sum(sizes) <= 2 * 1.1 * 2**20 * (batch / 256)


def test_ranks_of_context_parallelism_bring_their_heads(vllm):
    """Every rank decodes the heads of all, over its share of the cache."""
    impl, problem = make_impl(vllm, "dense.Dense"), Problem(torch.bfloat16, 1, heads=2 * HEADS)
    impl.need_to_return_lse_for_decode = True
    decode = plan(make_builder("dense.Dense", impl, ranks=2), problem.lengths, problem.table, 1)
    q = torch.cat([problem.latent, problem.rope], -1)
    layer = SimpleNamespace(_q_scale_float=0.5, _k_scale_float=1.0)  # a scale of the checkpoint, for queries of e4m3
    out, lse = impl.forward_mqa(q, problem.cache, SimpleNamespace(decode=decode, causal=True), layer)
    want, want_lse = problem.expected()
    torch.testing.assert_close(out, want.bfloat16(), rtol=0.02, atol=0.02)
    torch.testing.assert_close(lse, want_lse, rtol=1e-5, atol=1e-4)


def test_only_requests_that_differ_have_bounds(vllm):
    """Beside longer prefills, and where a graph's requests are padding, decodes are still a batch of one shape."""
    builder = make_builder("dense.Dense", make_impl(vllm, "dense.Dense"))
    table, lengths = torch.zeros(4, 1).int(), torch.ones(4).int()

    def planned(q_lens: tuple[int, ...], tokens: int, longest: int) -> Any:
        starts = starts_of(q_lens)
        return builder._build_decode(table, lengths, 4, starts, starts, tokens, longest, None)

    beside = planned((1, 1, 1, 1), tokens=4, longest=2)
    padded = planned((2, 2, 2, 0), tokens=8, longest=2)
    differ = planned((2, 1, 1, 1), tokens=5, longest=2)
    assert [(each.plan.q_len, each.plan.max_q_len) for each in (beside, padded, differ)] == [(1, 0), (2, 0), (2, 2)]
    assert beside.cu_seqlens_q is padded.cu_seqlens_q is None
    assert differ.cu_seqlens_q.tolist() == [0, 2, 3, 4, 5]


@pytest.mark.parametrize(("requests", "tokens", "longest"), [(1, 0, 0), (6, 5, 0), (5, 5, 0), (2, 3, 2)])
def test_a_microbatch_may_be_padding(vllm, requests, tokens, longest):
    """The second of two, where all tokens of a step are in the first: its requests have none."""
    builder = make_builder("dense.Dense", make_impl(vllm, "dense.Dense"))
    table, starts = torch.zeros(requests, 1).int(), torch.zeros(requests + 1).int()
    decode = builder._build_decode(table, torch.zeros(requests).int(), 1, starts, starts, tokens, longest, None)
    assert (decode.plan.batch, decode.plan.q_len) == (requests, 1)
    assert decode.latents == (tokens, HEADS, LATENT)


@pytest.mark.parametrize("cache_dtype", ["auto", "bfloat16", "fp8", "fp8_e4m3"])
def test_the_cache_of_the_cpu(vllm, cache_dtype):
    """What the layer writes it reads again; vLLM allocates an fp8 cache as bytes, and hands it over as e4m3."""
    impl, problem, scale = make_impl(vllm, "cpu.Cpu", kv_cache_dtype=cache_dtype), Problem(torch.bfloat16, 1), 0.02
    stored = torch.uint8 if cache_dtype.startswith("fp8") else torch.bfloat16
    cache = torch.zeros(9, PAGE, LATENT + ROPE, dtype=stored)
    tokens = [(row, i) for row, n in zip(problem.table, problem.lengths, strict=True) for i in range(n)]
    slots = torch.tensor([int(row[i // PAGE]) * PAGE + i % PAGE for row, i in tokens])
    rows = problem.cache.flatten(0, 1)[slots]
    padded = torch.cat([slots, torch.tensor([-1])])
    rows = torch.cat([rows, rows[:1]])
    impl.do_kv_cache_update(rows[:, :LATENT], rows[:, None, LATENT:], cache, padded, cache_dtype, torch.tensor(scale))
    read = cache.view(torch.float8_e4m3fn) if stored == torch.uint8 else cache
    kv_scale = scale if stored == torch.uint8 else 1.0
    torch.testing.assert_close(read.flatten(0, 1)[slots].float() * kv_scale, rows[:-1].float(), rtol=0.07, atol=1e-3)
    problem.cache = read
    decode = plan(make_builder("cpu.Cpu", impl), problem.lengths, problem.table, 1)
    layer = SimpleNamespace(_q_scale_float=1.0, _k_scale_float=kv_scale)
    metadata = SimpleNamespace(decode=decode, causal=True)
    out, _ = impl.forward_mqa((problem.latent, problem.rope), read, metadata, layer)
    torch.testing.assert_close(out, problem.expected(kv_scale)[0].bfloat16(), rtol=0.02, atol=0.02)


def test_a_cache_without_elements_is_not_written(vllm):
    """A layer that is run before its cache exists."""
    none = torch.empty(0)
    make_impl(vllm, "cpu.Cpu").do_kv_cache_update(none, none[None, None], none, none, "auto", None)


REFUSED = [
    ({"kv_cache_dtype": "fp8_e5m2"}, "kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bfloat16, float16, float32, fp8, "),
    ({"kv_cache_dtype": "float16"}, "kv_cache_dtype: got 'float16' with bfloat16; accepts auto with bfloat16 or bfl"),
    (
        {"head_size": 500},
        "head_size: got 500, of which 512 are the value; accepts 320, of which 256 are the value or 512, ",
    ),
    (
        {"kv_lora_rank": 448},
        "head_size: got 576, of which 448 are the value; accepts 320, of which 256 are the value or 512",
    ),
]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("other", "text"), REFUSED)
def test_a_layer_that_no_kernel_serves_is_refused(vllm, name, other, text):
    with pytest.raises(UnsupportedError) as caught:
        make_impl(vllm, name, **other)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("argument", ["alibi_slopes", "sliding_window", "logits_soft_cap"])
def test_what_mla_does_not_have_is_refused(vllm, argument):
    with pytest.raises(UnsupportedError, match=f"{argument}: got 5; accepts None: dense MLA has no such thing"):
        make_impl(vllm, "dense.Dense", **{argument: 5})


def test_a_block_that_no_kernel_reads_is_refused(vllm):
    with pytest.raises(UnsupportedError, match="block_size: got 0; accepts 1 and up"):
        make_builder("cpu.Cpu", make_impl(vllm, "cpu.Cpu"), page=0)


def test_as_many_new_tokens_as_an_engine_speculates_are_looked_up_at_start(vllm, monkeypatch):
    """And refused there, where no kernel takes them; every kernel that is installed takes any number."""
    made, impl = kind_of("cpu.Cpu", "MetadataBuilder"), make_impl(vllm, "cpu.Cpu")
    monkeypatch.setattr(made, "reorder_batch_threshold", 4)
    assert make_builder("cpu.Cpu", impl)._kernels.keys() == {1, 2, 3, 4}
    monkeypatch.setattr(made, "reorder_batch_threshold", -1)
    with pytest.raises(UnsupportedError, match="q_len: got -1; accepts 1 and up"):
        make_builder("cpu.Cpu", impl)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_overridden_is_what_vllm_has(vllm, name):
    theirs = KINDS[name]
    common = ["MLACommonBackend", "AttentionBackend"]
    check_overridden(kind_of(name, "Backend"), [f"{theirs}Backend", *common], vllm.release)
    decoding = importlib.import_module("mla_kernels.compat._vllm.decoding")
    check_overridden(decoding.Capabilities, common, vllm.release)
    check_overridden(decoding.Planning, ["MLACommonMetadataBuilder", "AttentionMetadataBuilder"], vllm.release)
    bases = [f"{theirs}Impl", "MLACommonImpl", "MLACommonBaseImpl", "MLAAttentionImpl", "AttentionImplBase"]
    check_overridden(decoding.Decoding, bases, vllm.release)


@pytest.mark.parametrize("name", KINDS)
def test_the_layer_calls_what_there_is(vllm, name):
    impl, calls = kind_of(name, "Impl"), RELEASES[vllm.release]["calls"]
    inspect.signature(impl).bind(**dict.fromkeys(calls["impl_cls"]["keywords"]))
    inspect.signature(impl.forward_mqa).bind(None, *range(calls["forward_mqa"]["positional"]))
    build = inspect.signature(kind_of(name, "MetadataBuilder")._build_decode)
    build.bind(None, **dict.fromkeys(calls["_build_decode"]["keywords"]))
    if "do_kv_cache_update" in vars(impl):
        inspect.signature(impl.do_kv_cache_update).bind(None, *range(calls["do_kv_cache_update"]["positional"]))


def test_the_cpus_capabilities_are_the_registrys(vllm):
    backend = kind_of("cpu.Cpu", "Backend")
    rows = [row for row in mla.variants(op="decode", arch="cpu") if row.baked["kv_dtype"] != "fp8_ds_mla"]
    assert backend.get_name() == "MLA_KERNELS"
    assert backend.get_supported_head_sizes() == sorted({row.baked["d_qk"] for row in rows})
    assert {str(dtype) for dtype in backend.supported_dtypes} == {"torch.float16", "torch.bfloat16", "torch.float32"}
    assert backend.supported_kv_cache_dtypes == ["auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3"]
    assert [str(size.base) for size in backend.get_supported_kernel_block_sizes()] == ["1"]
    assert (backend.supports_dtype(torch.float64), backend.supports_head_size(448)) == (False, False)
    assert (backend.supports_kv_cache_dtype("fp8_e5m2"), backend.supports_kv_cache_dtype("fp8")) == (False, True)
    assert (backend.supports_sink(), backend.supports_batch_invariance()) == (False, True)
    assert (backend.supports_block_size(None), backend.supports_block_size(48)) == (True, True)
    assert backend.get_preferred_block_size(16) == 16
    assert backend.supports_device_cpu_query_lens_mismatch() is False


def test_gpus_without_a_payload_are_refused(vllm):
    """Only the CPU's payload is installed here."""
    backend, hopper = kind_of("dense.Dense", "Backend"), SimpleNamespace(major=9, minor=0)
    assert not backend.supports_compute_capability(hopper)
    assert (backend.supported_dtypes, backend.supported_kv_cache_dtypes) == ([], [])
    assert not backend.supports_dtype(torch.bfloat16)
    asked = (576, torch.bfloat16, "auto", 64, True, False, False, False, hopper)
    assert backend.supports_combination(*asked) == (
        "no installed payload of mla-kernels serves this GPU; those installed serve none"
    )
