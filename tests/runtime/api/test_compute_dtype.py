"""``compute_dtype``: a kernel that multiplies in e4m3 is found by those who ask for it, and by nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import mla_kernels as mla
import pytest
import torch
from mla_kernels.errors import ValueRangeError, VariantNotFoundError
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry
from mla_kernels.resolve.addition import addition
from mla_kernels.resolve.config import with_defaults

from tests.runtime.small_decode import SCALE, Decode

GENERATED = Path(__file__).parents[3] / "generated"
REGISTRIES = {
    path.parent.name: Registry.parse(json.loads(path.read_text())) for path in sorted(GENERATED.glob("*/registry.json"))
}
FP8 = {"op": "decode", "arch": "cpu", "q_dtype": "bf16", "kv_dtype": "e4m3"}
OF_E4M3 = [torch.float8_e4m3fn, "float8_e4m3fn", "e4m3"]


@pytest.fixture
def fp8(problem: Decode) -> Decode:
    problem.kv_cache = problem.kv_cache.to(torch.float8_e4m3fn)
    return problem


@pytest.mark.parametrize("payload", REGISTRIES)
@pytest.mark.parametrize("asked", [None, "exact", "e4m3"])
def test_every_payload_finds_the_kind_that_was_asked_for(payload, asked):
    """Whatever else a config says: each row's own traits, and each row's types alone."""
    registry = REGISTRIES[payload]
    index = Index([variant for variant in registry.variants if variant.op == "decode"])
    named = {} if asked is None else {"compute_dtype": asked}
    for variant in index.variants:
        own = {trait: value for trait, value in variant.baked.items() if trait != "compute_dtype"}
        types = {trait: value for trait, value in own.items() if trait.endswith("_dtype")}
        for config in (own, types):
            found = index.matching(with_defaults({"arch": registry.arch, **config, **named}, index.fields))
            assert {each.baked["compute_dtype"] for each in found} <= {asked or "exact"}
            if config is own and asked in (None, "exact"):
                assert found


@pytest.mark.parametrize("payload", REGISTRIES)
def test_the_registry_states_the_accuracy_of_what_rounds_more(payload):
    for variant in REGISTRIES[payload].variants:
        rounds = variant.baked.get("compute_dtype") == "e4m3"
        assert ("% of their norm" in variant.accuracy) == rounds, variant.name
        assert variant.as_dict().get("accuracy", "") == variant.accuracy


@pytest.mark.parametrize("dtype", OF_E4M3)
def test_a_lookup_that_names_it(dtype):
    for d_qk, q_dtype in ((576, "bf16"), (512, "bf16"), (576, "fp32"), (512, "fp32")):
        kernel = mla.lookup(**FP8 | {"q_dtype": q_dtype}, d_qk=d_qk, compute_dtype=dtype)
        assert kernel.variant.baked["compute_dtype"] == "e4m3"
        assert kernel.variant.name.endswith("_mmae4m3")


def test_a_lookup_that_does_not():
    exact = mla.lookup(**FP8)
    mla.lookup(**FP8, compute_dtype="e4m3")
    assert mla.lookup(**FP8) is exact
    assert exact.variant.name == "cpu_decode_qbf16_kve4m3_obf16_direct_split"
    assert mla.lookup(**FP8, compute_dtype="exact").variant is exact.variant


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"kv_dtype": "bf16"},
            "only an e4m3 cache is multiplied in e4m3; leave compute_dtype out for exact arithmetic",
        ),
        ({"q_dtype": "fp16"}, "to add it: nox -s generate -- add op=decode arch=cpu .*compute_dtype=e4m3"),
        ({"op": "sparse_decode"}, "config field of sparse_decode: got 'compute_dtype'; accepts op, arch"),
        ({"compute_dtype": "fp16"}, "compute_dtype: got 'fp16'; accepts exact, e4m3"),
    ],
)
def test_what_no_kernel_serves_is_told_with_what_would_work(changes, said):
    with pytest.raises((VariantNotFoundError, ValueRangeError), match=said):
        mla.lookup(**FP8 | {"compute_dtype": "e4m3"} | changes)


@pytest.mark.parametrize(
    ("payload", "config", "said"),
    [
        ("sm100", {"kv_dtype": "bf16"}, "no Blackwell kernel rounds a 16-bit Q to e4m3; leave compute_dtype out for"),
        ("sm100", {"kv_dtype": "bf16", "load": "cpasync"}, "no Blackwell kernel rounds a 16-bit Q to e4m3"),
        ("sm90", {"kv_dtype": "bf16"}, "multiplies in e4m3 where the cache is e4m3, Q bf16"),
        ("sm90", {"kv_dtype": "bf16", "load": "gather"}, "an e4m3 cache, loaded by TMA, has a kernel"),
        ("sm90", {"kv_dtype": "e4m3", "schedule": "swap_ab"}, "leave schedule out, as rows_m64 multiplies in e4m3"),
        ("sm90", {"kv_dtype": "e4m3", "d_qk": 320, "d_v": 256}, "and d_qk 576 or 512; leave compute_dtype out"),
    ],
)
def test_gpus_say_why_not(payload, config, said):
    """As a registry says it on the machine where its payload is installed."""
    point = {
        "arch": REGISTRIES[payload].arch,
        "q_dtype": "bf16",
        "out_dtype": "bf16",
        "compute_dtype": "e4m3",
        **config,
    }
    command, reason = addition("decode", point, (), REGISTRIES[payload])
    assert not command
    assert said in reason
    assert "(compute_dtype is e4m3; accepts exact" in reason


def test_one_call(fp8):
    """Each asks for its own kernel, whichever was called before."""
    exact, _ = fp8.call()
    for dtype in OF_E4M3:
        rounded, _ = fp8.call(compute_dtype=dtype)
        assert not torch.equal(rounded, exact)
        assert torch.equal(fp8.call()[0], exact)
        assert torch.equal(fp8.call(compute_dtype="exact")[0], exact)


@pytest.mark.parametrize("dtype", [1.5, (), [], "fp99", "bf16"])
def test_one_call_refuses_other_names(fp8, dtype):
    with pytest.raises(ValueRangeError, match=r"^compute_dtype: got .*; accepts exact, e4m3$"):
        fp8.call(compute_dtype=dtype)


def test_one_call_over_another_cache(problem):
    with pytest.raises(VariantNotFoundError, match="only an e4m3 cache is multiplied in e4m3"):
        problem.call(compute_dtype="e4m3")


def test_a_plan_is_of_one_kind(fp8):
    """With all that a captured launch gives, also where the other kind was called with this plan before."""
    given = {"out": torch.empty(3, 1, 4, 512, dtype=torch.bfloat16), "lse": torch.empty(3, 4, 1)}
    kernels = {asked: mla.lookup(**FP8, compute_dtype=asked) for asked in ("exact", "e4m3")}
    plans = {asked: kernel.plan(fp8.seq_lens, num_heads=4, q_len=1) for asked, kernel in kernels.items()}
    wanted = {asked: fp8.call(compute_dtype=asked)[0] for asked in kernels}
    for _ in range(2):
        for asked, other in (("exact", "e4m3"), ("e4m3", "exact")):
            out, _ = fp8.call(compute_dtype=asked, plan=plans[asked], **given)
            assert torch.equal(out, wanted[asked])
            with pytest.raises(ValueRangeError, match="plan: got a plan of cpu_decode_qbf16_kve4m3"):
                fp8.call(compute_dtype=asked, plan=plans[other], **given)
    with pytest.raises(ValueRangeError, match=r"plan: got a plan of .*_mmae4m3"):
        fp8.call(plan=plans["e4m3"], **given)


def test_a_compiled_call(fp8):
    def decode(q, kv_cache, block_table, seq_lens):
        return mla.decode(q, kv_cache, block_table, seq_lens, softmax_scale=SCALE, compute_dtype="e4m3")

    tensors = vars(fp8).values()
    compiled = torch.compile(decode, backend="eager", fullgraph=True)(*tensors)
    for got, want in zip(compiled, decode(*tensors), strict=True):
        assert torch.equal(got, want)
