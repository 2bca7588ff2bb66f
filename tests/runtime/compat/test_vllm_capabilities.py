"""What dense decode serves, in vLLM's words, of the CPU's payload and by the registries of those of GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import mla_kernels as mla
import pytest
import torch
from mla_kernels.compat import _capabilities as capabilities

from tests.runtime.compat.stand_ins import gpus_installed, installed, ours


def test_formats_that_the_layer_does_not_write_are_not_offered():
    names = {capabilities.CACHE_DTYPES[name] for name in capabilities.cache_dtypes(("cpu",))[1:]}
    assert names <= {str(row.baked["kv_dtype"]) for row in mla.variants(op="decode", arch="cpu")}
    assert "fp8_ds_mla" not in names


@pytest.fixture
def of_gpus(monkeypatch) -> None:
    """Let both GPU payloads be installed, as far as their registries say what they serve."""
    gpus_installed(monkeypatch)


def test_hoppers_capabilities_are_its_registrys(of_gpus):
    """An e4m3 cache is read by TMA in boxes of 8 tokens, with bf16 queries; what is preferred has blocks of 64."""
    hopper = ("sm90a",)
    assert capabilities.dtypes(hopper) == ["bfloat16", "float16"]
    assert capabilities.cache_dtypes(hopper) == ["auto", "bfloat16", "float16", "fp8", "fp8_e4m3"]
    assert 576 in capabilities.head_sizes(hopper)
    assert capabilities.block_sizes(hopper) == [(8, True)]
    assert capabilities.block_sizes(hopper, "bfloat16") == [(1, True)]
    assert capabilities.block_sizes(hopper, "fp8") == [(8, True)]
    assert capabilities.preferred_block_size(hopper, 16) == 64
    assert not capabilities.quantised_queries(hopper)


def test_blackwells_capabilities_are_its_registrys(of_gpus):
    """Its queries have the type of the cache; blocks are of the sizes that CUTLASS's kernel copies."""
    blackwell = ("sm100f",)
    assert capabilities.cache_dtypes(blackwell) == ["auto", "bfloat16", "float16", "fp8", "fp8_e4m3"]
    assert [size for size, multiples in capabilities.block_sizes(blackwell)] == [128, 64, 32, 16, 8, 4, 2, 1]
    assert capabilities.preferred_block_size(blackwell, 16) == 128
    assert capabilities.quantised_queries(blackwell)
    traits = capabilities.config_of("sm100f", torch.float16, "fp8", 576, 512)
    assert (traits["q_dtype"], traits["out_dtype"]) == ("e4m3", "fp16")


def test_blocks_of_two_archs_are_what_both_read(of_gpus):
    """An engine with both payloads asks before it says on which GPU it runs."""
    both = ("sm90a", "sm100f")
    for cache_dtype in ("auto", "bfloat16", "fp8"):
        common = [size for size, _ in capabilities.block_sizes(both, cache_dtype)]
        assert common == [size for size in (128, 64, 32, 16, 8, 4, 2, 1) if size >= 8 or cache_dtype == "bfloat16"]
        assert not any(many for _, many in capabilities.block_sizes(both, cache_dtype))


@pytest.mark.parametrize(
    ("arch", "asked", "text"),
    [
        ("sm90a", {"cache_dtype": "fp8", "dtype": torch.float16}, "kv_cache_dtype: got 'fp8' with float16; accepts "),
        ("sm90a", {"cache_dtype": "fp8", "block_size": 4}, "block_size: got 4; accepts 8 and up, multiples of 8"),
        ("sm90a", {"head_size": 512, "rank": 448}, "head_size: got 512, of which 448 are the value; accepts "),
        ("sm90a", {"num_heads": 320}, "num_heads: got 320; accepts 1 to 256"),
        ("sm100f", {"block_size": 256}, "block_size: got 256; accepts 128 or 1, 2, 4, 8, 16, 32, 64, 128"),
        ("sm100f", {"dtype": torch.float32}, "kv_cache_dtype: got 'auto' with float32; accepts "),
    ],
)
def test_refusals_say_what_a_gpu_serves(of_gpus, arch, asked, text):
    given = {"dtype": torch.bfloat16, "cache_dtype": "auto", "head_size": 576, "rank": 512} | asked
    assert str(capabilities.refusal(arch, **given)).startswith(text)
    served = {"dtype": torch.bfloat16, "cache_dtype": "fp8", "head_size": 576, "block_size": 64, "num_heads": 128}
    assert capabilities.refusal(arch, **served) is None


@pytest.mark.parametrize(
    ("arch", "asked", "text"),
    [
        ("sm90a", {"cache_dtype": "fp8_e4m3"}, "kv_cache_dtype: got 'fp8_e4m3'; accepts auto, bfloat16, fp8, fp8_d"),
        ("sm90a", {"dtype": torch.float16}, "kv_cache_dtype: got 'auto' with float16; accepts auto with bfloat16 or "),
        ("sm90a", {"num_heads": 320}, "num_heads: got 320; accepts 1 to 128"),
        ("sm90a", {"head_size": 512}, "head_size: got 512; accepts 576, of which 512 are the value"),
        ("sm90a", {"block_size": 0}, "block_size: got 0; accepts 1 and up"),
    ],
)
def test_refusals_say_what_a_gpu_attends_to_sparsely(of_gpus, arch, asked, text):
    given = {"dtype": torch.bfloat16, "cache_dtype": "auto", "head_size": 576} | asked
    assert str(capabilities.refusal(arch, op="sparse_decode", **given)).startswith(text)
    served = {"dtype": torch.bfloat16, "cache_dtype": "fp8", "head_size": 576, "block_size": 48, "num_heads": 128}
    assert capabilities.refusal(arch, op="sparse_decode", **served) is None


DENSE, SPARSE = "_vllm.dense.DenseBackend", "_vllm_backend.FlashMLASparseBackend"


def asked(
    major: int, cache_dtype: str, block_size: int | None, kind: str = DENSE, dtype: torch.dtype = torch.bfloat16
) -> str | None:
    """Why a GPU does not serve a combination, as vLLM asks before it chooses a backend."""
    backend = ours(f"mla_kernels.compat.{kind}")
    capability = SimpleNamespace(major=major, minor=0)
    given = (576, dtype, cache_dtype, block_size, True, False, kind == SPARSE, False, capability)
    answer = backend.supports_combination(*given)
    assert answer is None or isinstance(answer, str)
    return answer


def test_a_gpu_is_asked_about_a_combination(of_gpus, monkeypatch):
    """Blocks may be made of those that a kernel reads, and reasons are whole."""
    arch = {(9, 0): "sm90a", (10, 0): "sm100f"}
    monkeypatch.setattr(capabilities, "gpu_archs", lambda op="decode": tuple(arch.values()))
    monkeypatch.setattr(capabilities, "arch_of_capability", lambda major, minor, op="decode": arch.get((major, minor)))
    for _ in installed(monkeypatch, "0.33.0"):
        backend = ours("mla_kernels.compat._vllm.dense.DenseBackend")
        assert backend.supported_dtypes == [torch.bfloat16, torch.float16]
        assert [asked(10, "auto", size) for size in (None, 64, 256)] == [None] * 3
        assert [asked(9, "fp8", size) for size in (None, 8, 64)] == [None] * 3
        assert asked(9, "fp8", 20) == "block_size: got 20; accepts 8 and up, multiples of 8"
        assert str(asked(9, "fp8_e5m2", 64)).startswith("kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bfloat16, float")
        assert backend.supports_compute_capability(SimpleNamespace(major=9, minor=0))
        assert not backend.supports_compute_capability(SimpleNamespace(major=8, minor=0))
        assert [asked(9, name, size, SPARSE) for name in ("auto", "fp8") for size in (None, 1, 64)] == [None] * 6
        assert asked(9, "fp8_e4m3", 64, SPARSE) == (
            "kv_cache_dtype: got 'fp8_e4m3'; accepts auto, bfloat16, fp8, fp8_ds_mla"
        )
        assert asked(9, "auto", 0, SPARSE) == "block_size: got 0; accepts 1 and up"
        assert str(asked(9, "auto", 64, SPARSE, torch.float16)).startswith("kv_cache_dtype: got 'auto' with float16; ")
        assert asked(8, "auto", 64, SPARSE) == (
            "no installed payload of mla-kernels serves this GPU; those installed serve sm90a, sm100f"
        )
