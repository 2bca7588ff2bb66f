"""What a model runner of SGLang asks for, and the kernels that serve it; all that none serves is refused here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import mla_kernels as mla
from mla_kernels.compat import _capabilities as capabilities
from mla_kernels.devices.machine import HOST, dotted
from mla_kernels.errors import DeviceError, UnsupportedError
from mla_kernels.kernels.base import Kernel
from mla_kernels.tensors import element_name

SGLANG = capabilities.Words(
    {
        "decode": {"bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "e4m3"},
        "sparse_decode": {"bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8_ds_mla"},
    },
    "page_size",
)
"""The names of ``--kv-cache-dtype`` and ``--page-size``."""

ALGORITHMS = ("DSPARK", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
"""Ways of speculative decoding whose drafts can be one chain of tokens, each of which sees those before it."""

FP8 = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What SGLang keeps for a whole process, and not in a model runner.

    Attributes
    ----------
    name : str
        Of the backend.
    tensor_parallel, context_parallel : int
        Ranks that share the heads, and ranks that share the tokens of a request in decode.
    speculative : Any
        The arguments of speculative decoding.
    sparse : bool
        Whether the model selects tokens by an indexer.
    deterministic : bool
        Whether the answer to a request must not depend on other requests.
    """

    name: str
    tensor_parallel: int
    context_parallel: int
    speculative: Any
    sparse: bool
    deterministic: bool


def kernels_for(model_runner: Any, around: Surroundings) -> dict[int, Kernel]:
    """The kernels that a runner needs, by the number of new tokens of each request, each loaded for its first launch.

    Raises
    ------
    InvalidArgumentError
        It says what would be served.
    VariantNotFoundError
        No kernel takes so many draft tokens.
    """
    require_dense(model_runner, around)
    require_chain(model_runner, around)
    arch = arch_of(torch.device(model_runner.device), model_runner.gpu_id)
    traits, numbers = _asked(model_runner, around)
    error = capabilities.refusal(arch, **traits, **numbers, words=SGLANG)
    if error is not None:
        raise error
    found = capabilities.config_of(arch, **traits, words=SGLANG)
    if found["q_dtype"] != element_name(model_runner.dtype):
        own = ", ".join(name for name in capabilities.cache_dtypes((arch,), words=SGLANG) if name != "fp8_e4m3")
        raise UnsupportedError("kv_cache_dtype", f"'fp8_e4m3' on {arch}", f"{own}: queries are not quantised here")
    kernels: dict[int, Kernel] = {}
    heads, page = numbers["num_heads"], numbers["block_size"]
    for q_len in sorted({1, around.speculative.speculative_num_draft_tokens or 1}):
        limits = {"page_size": page, "num_heads": heads, "q_len": q_len}
        kernel = mla.lookup(op="decode", arch=arch, kv_layout="paged", **found, **limits)  # type: ignore[arg-type]
        kernel.prepare(model_runner.gpu_id)
        kernels[q_len] = kernel
    return kernels


def arch_of(device: torch.device, ordinal: int, op: str = "decode") -> str:
    """The arch of an installed payload that has an op for a device.

    Raises
    ------
    DeviceError
        No payload serves it.
    """
    if device.type == "cpu":
        return HOST
    capability = torch.cuda.get_device_capability(ordinal)
    arch = capabilities.arch_of_capability(*capability, op)
    if arch is None:
        installed = ", ".join(capabilities.gpu_archs(op)) or "none; install that of your GPU"
        got = f"a GPU of compute capability {dotted(capability)}"
        raise DeviceError("device", got, f"one that an installed payload of mla-kernels serves: {installed}")
    return arch


def require_dense(model_runner: Any, around: Surroundings) -> None:
    """Refuse models, and ways to keep their cache, that dense decode of a latent does not serve.

    Raises
    ------
    UnsupportedError
    """
    backend = _argument(model_runner, "attention_backend")
    if not model_runner.use_mla_backend:
        accepts = "it for models with MLA only, or another backend, such as 'flashinfer'"
        raise UnsupportedError(backend, f"{around.name!r} for a model without a latent", accepts)
    if around.sparse:
        raise UnsupportedError(backend, f"{around.name!r} for a model that selects tokens", "'dsa' for this model")
    if around.context_parallel > 1:
        raise UnsupportedError("dcp_size", f"{around.context_parallel}", f"1 with {around.name!r}, or 'flashmla'")
    if model_runner.kv_index_translator.reads_are_translated:
        raise UnsupportedError("enable_unified_memory", "True", f"False with {around.name!r}, or 'flashmla'")


def require_chain(model_runner: Any, around: Surroundings) -> None:
    """Refuse drafts that are trees, and drafts by a model of several layers that each draft one token.

    Raises
    ------
    UnsupportedError
    """
    asked = around.speculative
    if asked.speculative_algorithm is None:
        return
    if asked.speculative_algorithm not in ALGORITHMS:
        accepts = f"{', '.join(ALGORITHMS)} or None with {around.name!r}"
        raise UnsupportedError("speculative_algorithm", repr(asked.speculative_algorithm), accepts)
    if asked.speculative_eagle_topk not in {None, 1}:
        got = f"{asked.speculative_eagle_topk}"
        raise UnsupportedError("speculative_eagle_topk", got, f"1 with {around.name!r}, whose drafts are one chain")
    if model_runner.is_draft_worker and asked.enable_multi_layer_eagle:
        got = f"{around.name!r} with enable_multi_layer_eagle"
        raise UnsupportedError("speculative_draft_attention_backend", got, "another backend, such as 'flashinfer'")


def require_deterministic(model_runner: Any, prefill: str, around: Surroundings) -> None:
    """Refuse deterministic inference where this backend would prefill, which is then FlashInfer's.

    Raises
    ------
    UnsupportedError
    """
    if around.deterministic and prefill == around.name:
        argument = _argument(model_runner, "prefill_attention_backend")
        accepts = f"another backend, such as 'fa3' or 'triton': prefill by {around.name!r} is FlashInfer's"
        raise UnsupportedError(argument, f"{prefill!r} with enable_deterministic_inference", accepts)


def _argument(model_runner: Any, target: str) -> str:
    """The argument of the server by which this backend serves a runner; ``target`` is that of the served model."""
    return "speculative_draft_attention_backend" if model_runner.is_draft_worker else target


def _asked(model_runner: Any, around: Surroundings) -> tuple[dict[str, Any], dict[str, Any]]:
    """The traits of a runner's cache, and its numbers, as ``capabilities`` takes them."""
    config, stored = model_runner.model_config, model_runner.kv_cache_dtype
    own = str(stored).removeprefix("torch.")
    traits: dict[str, Any] = {
        "dtype": model_runner.dtype,
        "cache_dtype": "auto" if stored == model_runner.dtype else FP8.get(stored, own),
        "head_size": config.kv_lora_rank + config.qk_rope_head_dim,
        "rank": config.kv_lora_rank,
    }
    heads = config.num_attention_heads // around.tensor_parallel
    return traits, {"block_size": model_runner.page_size, "num_heads": heads}
