"""What the backend for SGLang refuses, and when: as the engine starts, with what would be served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mla_kernels.compat._sglang import serving
from mla_kernels.errors import DeviceError, UnsupportedError

from tests.runtime.compat.sglang.problems import Requests, backend_of, drafted_by, layer_of, runner_of, speculate
from tests.runtime.compat.stand_ins import gpus_installed

REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"kv_cache_dtype": torch.float8_e5m2},
        {},
        "kv_cache_dtype: got 'fp8_e5m2'; accepts auto, bf16, bfloat16, fp8_e4m3",
    ),
    ({"kv_cache_dtype": torch.uint8}, {}, "kv_cache_dtype: got 'uint8'; accepts auto, bf16, bfloat16, fp8_e4m3"),
    ({"dtype": torch.float64}, {}, "kv_cache_dtype: got 'auto' with float64; accepts auto with bfloat16 or "),
    ({"page_size": 0}, {}, "page_size: got 0; accepts 1 and up"),
    ({"kv_lora_rank": 448}, {}, "head_size: got 512, of which 448 are the value; accepts 320, of which "),
    (
        {"use_mla_backend": False},
        {},
        "attention_backend: got 'mla_kernels' for a model without a latent; accepts it for",
    ),
    (
        {"hf_config": SimpleNamespace(index_topk=2048)},
        {},
        "attention_backend: got 'mla_kernels' for a model that selects tokens; accepts 'dsa' for this model",
    ),
    ({"translated": True}, {}, "enable_unified_memory: got True; accepts False with 'mla_kernels', or 'flashmla'"),
    ({}, {"attn_dcp_size": 2}, "dcp_size: got 2; accepts 1 with 'mla_kernels', or 'flashmla'"),
    ({}, {"speculative_algorithm": "NGRAM"}, "speculative_algorithm: got 'NGRAM'; accepts DSPARK, EAGLE, EAGLE3, NE"),
    (
        {},
        {"speculative_eagle_topk": 4},
        "speculative_eagle_topk: got 4; accepts 1 with 'mla_kernels', whose drafts are one chain",
    ),
    (
        {"is_draft_worker": True, "use_mla_backend": False},
        {"speculative_eagle_topk": 1},
        "speculative_draft_attention_backend: got 'mla_kernels' for a model without a latent; accepts it for models ",
    ),
    (
        {"is_draft_worker": True},
        {"speculative_eagle_topk": 1, "enable_multi_layer_eagle": True},
        "speculative_draft_attention_backend: got 'mla_kernels' with enable_multi_layer_eagle; accepts another backend",
    ),
    (
        {},
        {"enable_deterministic_inference": True},
        "prefill_attention_backend: got 'mla_kernels' with enable_deterministic_inference; accepts another backend, ",
    ),
]


@pytest.mark.parametrize(("of_runner", "of_server", "text"), REFUSED)
def test_what_no_kernel_serves_is_refused_at_start(sglang, of_runner, of_server, text):
    """Before the class beneath allocates anything."""
    if any(name.startswith("speculative") for name in of_server):
        speculate(sglang, 2)
    for held in (sglang.parallel, sglang.spec, sglang.deterministic):
        vars(held).update({name: value for name, value in of_server.items() if hasattr(held, name)})
    with pytest.raises(UnsupportedError) as caught:
        backend_of(runner_of(sglang, **of_runner))
    assert str(caught.value).startswith(text)
    assert sglang.beneath == []


def test_an_extension_of_drafts_is_refused_where_their_prefill_would_not_be_deterministic(sglang):
    """What extends a draft model's cache prefills it as well, whatever prefills the model that is served."""
    speculate(sglang, 2)
    sglang.deterministic.enable_deterministic_inference = True
    text = (
        "^speculative_draft_attention_backend: got 'mla_kernels' with enable_deterministic_inference; accepts another"
    )
    with pytest.raises(UnsupportedError, match=text):
        drafted_by(sglang, runner_of(sglang, is_draft_worker=True, prefill_attention_backend_str="fa3"), 3)
    assert sglang.beneath == []


def test_a_served_model_takes_the_drafts_of_a_model_of_several_layers(sglang):
    speculate(sglang, 2)
    sglang.spec.enable_multi_layer_eagle = True
    backend_of(runner_of(sglang))


@pytest.mark.parametrize(
    ("arch", "given", "text"),
    [
        (
            "sm90a",
            {"kv_cache_dtype": torch.float8_e4m3fn, "page_size": 4},
            "page_size: got 4; accepts 8 and up, multiples of",
        ),
        ("sm90a", {"num_attention_heads": 320}, "num_heads: got 320; accepts 1 to 256"),
        ("sm90a", {"dtype": torch.float32}, "kv_cache_dtype: got 'auto' with float32; accepts auto with bfloat16 or "),
        ("sm100f", {"page_size": 256}, "page_size: got 256; accepts 128 or 1, 2, 4, 8, 16, 32, 64, 128"),
        (
            "sm100f",
            {"kv_cache_dtype": torch.float8_e4m3fn},
            "kv_cache_dtype: got 'fp8_e4m3' on sm100f; accepts auto, bf16, bfloat16: queries are not quantised here",
        ),
    ],
)
def test_refusals_say_what_a_gpu_serves(sglang, monkeypatch, arch, given, text):
    gpus_installed(monkeypatch)
    monkeypatch.setattr(serving, "arch_of", lambda device, ordinal: arch)
    with pytest.raises(UnsupportedError) as caught:
        backend_of(runner_of(sglang, **given))
    assert str(caught.value).startswith(text)


def test_a_gpu_without_a_payload_is_refused(monkeypatch):
    """Only the CPU's payload is installed here; its kernels must not be handed tensors of a GPU."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda ordinal: (8, ordinal))
    text = (
        "device: got a GPU of compute capability 8.6; accepts one that an installed payload of mla-kernels serves: none"
    )
    with pytest.raises(DeviceError, match=text):
        serving.arch_of(torch.device("cuda"), 6)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"logit_cap": 30.0}, "logit_cap: got 30.0; accepts 0: dense MLA has no such thing"),
        ({"sliding_window_size": 128}, "sliding_window_size: got 128; accepts -1: a query sees every token before it"),
    ],
)
def test_a_layer_that_attends_otherwise_is_refused(sglang, given, text):
    runner = runner_of(sglang)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37])
    backend.init_forward_metadata(requests.batch)
    with pytest.raises(UnsupportedError, match=text):
        backend.forward_decode(requests.q, None, None, layer_of(sglang, **given), requests.batch)
