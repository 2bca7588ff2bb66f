"""Models of the package: what they look up, and what of it the installed payloads serve."""

from __future__ import annotations

from dataclasses import replace

import mla_kernels as mla
import pytest
from mla_kernels.errors import ValueRangeError
from mla_kernels.models import model, models


def test_a_dense_model():
    found = model("deepseek-r1")
    assert found is model("DeepSeek-V3")
    bf16, e4m3 = found.configs(arch="cpu", tensor_parallel=8)
    assert bf16 == {
        "op": "decode", "arch": "cpu", "kv_dtype": "bf16", "out_dtype": "bf16",
        "num_heads": 16, "d_qk": 576, "d_v": 512,
    }  # fmt: skip
    assert e4m3 == {**bf16, "kv_dtype": "e4m3"}
    assert found.served(arch="cpu", tensor_parallel=8) == (bf16, e4m3)


def test_a_sparse_model():
    served = model("DeepSeek-V3.2").served(arch="cpu")
    assert [(config["op"], config["kv_dtype"], config["topk"]) for config in served] == [
        ("sparse_decode", "bf16", 2048),
        ("sparse_decode", "fp8_ds_mla", 2048),
        ("sparse_decode", "nvfp4_ds_mla", 2048),
        ("sparse_prefill", "bf16", 2048),
    ]


def test_drafts():
    found = model("DeepSeek-V4-Flash")
    assert (found.topk, found.window, found.q_lens) == (640, 128, (2, 6))
    *decodes, prefill = found.served(arch="cpu", tensor_parallel=8, q_len=6)
    assert [config["q_len"] for config in decodes] == [6, 6]
    assert "q_len" not in prefill
    assert model("DeepSeek-V2").q_lens == ()


@pytest.mark.parametrize(
    ("each", "q_len"),
    [(each, q_len) for each in models() for q_len in (None, *each.q_lens)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_is_served_resolves_and_nothing_else_does(each, q_len):
    served = each.served(arch="cpu", q_len=q_len)
    for config in each.configs(arch="cpu", q_len=q_len):
        if config in served:
            assert mla.lookup(**config).variant.op == config["op"]
        else:
            with pytest.raises(mla.MlaError):
                mla.lookup(**config)


def test_other_widths():
    (config,) = model("Mistral-Small-4").served(arch="cpu")
    assert (config["op"], config["kv_dtype"], config["d_qk"], config["d_v"]) == ("decode", "bf16", 320, 256)
    served = model("DeepSeek-V4-Flash").served(arch="cpu")
    assert [(config["op"], config["kv_dtype"]) for config in served] == [
        ("sparse_decode", "fp8_ds_v4"),
        ("sparse_decode", "mxfp4_ds_v4"),
        ("sparse_prefill", "bf16"),
    ]


def test_widths_that_no_kernel_has_are_not_served():
    assert model("MiniCPM3-4B").served(arch="cpu") == ()
    assert model("A.X-K2").served() == ()


def test_reasons():
    assert model("A.X-K2").reason("cpu") == "no kernel here has 160 columns"
    of_one = replace(model("GLM-5.3-Flash"), unserved=(("sm100f", "no kernel there has its rows"),))
    assert of_one.reason("sm100f") == "no kernel there has its rows"
    assert of_one.reason("cpu") is None


def test_errors():
    with pytest.raises(ValueRangeError, match=r"tensor_parallel: got 8; accepts a divisor of 20"):
        model("GLM-4.7-Flash").configs(tensor_parallel=8)
    with pytest.raises(ValueRangeError, match=r"q_len: got 0; accepts an integer from 1"):
        model("GLM-4.7-Flash").configs(q_len=0)
    with pytest.raises(ValueRangeError, match=r"model: got 'GPT-2'; accepts DeepSeek-V2-Lite, "):
        model("GPT-2")


def test_an_organisation_before_the_name_has_no_effect():
    assert model("deepseek-ai/DeepSeek-V3.2") is model("DeepSeek-V3.2")
