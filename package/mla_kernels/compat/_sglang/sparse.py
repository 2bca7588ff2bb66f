"""DeepSeek Sparse Attention in SGLang, in place of the FlashMLA kernels that its DSA backend calls.

The backend stays SGLang's: it selects tokens, plans, and writes the cache. Two of its methods and its constructor are
changed, which ``sglang_plugin`` does where a variable asks for it. SGLang pads queries to the 64 or 128 heads that
FlashMLA takes; these functions take 1 to 128.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

import mla_kernels as mla
from mla_kernels.compat import _capabilities as capabilities
from mla_kernels.compat._sglang.names import INSTEAD, VARIABLE
from mla_kernels.compat._sglang.serving import FP8, SGLANG, arch_of
from mla_kernels.errors import UnsupportedError, ValueRangeError
from mla_kernels.kernels.base import Kernel

_OP = "sparse_decode"
_KERNELS = "_mla_kernels"
"""The attribute by which a backend of SGLang has our kernels, by the bytes of an element of the cache."""

_logger = logging.getLogger(__name__)


def require_served(listed: Sequence[str], backend: Any, model_runner: Any) -> None:
    """Refuse, when the engine starts, what no kernel serves; load the kernels for what is served.

    Where the engine calls none of what is listed, a warning says so.

    Parameters
    ----------
    listed : Sequence[str]
        What the variable lists.
    backend : DeepseekSparseAttnBackend
    model_runner : ModelRunner

    Raises
    ------
    ValueRangeError
        The variable lists what cannot be replaced.
    UnsupportedError
        No kernel serves the model or its cache; the message says what would be served.
    DeviceError
        No installed payload serves the GPU.
    """
    for name in listed:
        if name not in INSTEAD:
            raise ValueRangeError(VARIABLE, repr(name), f"{', '.join(INSTEAD)}, with commas between them")
    called = [backend.dsa_prefill_impl, backend.dsa_decode_impl]
    if not any(name in called or "flashmla_auto" in called for name in listed):
        told = "%s=%s replaces nothing: this engine prefills by %s and decodes by %s"
        _logger.warning(told, VARIABLE, ",".join(listed), *called)
        return
    if model_runner.kv_cache_dtype in FP8 and not backend.dsa_kv_cache_store_fp8:
        accepts = "'fp8_e4m3' with kernels of FlashMLA for prefill and decode, or 'bf16'"
        raise UnsupportedError("kv_cache_dtype", f"'fp8_e4m3' without scales, for {' and '.join(called)}", accepts)
    arch, dtype = arch_of(torch.device(model_runner.device), model_runner.gpu_id, _OP), model_runner.dtype
    kernels = {}
    # Prompts are attended to in rows of 16 bits beside a cache of bytes, too.
    for cache in ("auto", "fp8_e4m3") if backend.dsa_kv_cache_store_fp8 else ("auto",):
        asked: dict[str, Any] = {"dtype": dtype, "cache_dtype": cache, "rank": backend.kv_lora_rank}
        asked["head_size"] = backend.kv_lora_rank + backend.qk_rope_head_dim
        error = capabilities.refusal(arch, op=_OP, **asked, block_size=1, num_heads=backend.num_q_heads, words=SGLANG)
        if error is not None:
            raise error
        traits = capabilities.config_of(arch, **asked, op=_OP, words=SGLANG)
        limits = {"page_size": 1, "num_heads": backend.num_q_heads}
        kernel = mla.lookup(op=_OP, arch=arch, **traits, **limits)  # type: ignore[arg-type]
        kernel.prepare(model_runner.gpu_id)
        kernels[2 if cache == "auto" else 1] = kernel
    setattr(backend, _KERNELS, kernels)


def flashmla_sparse(  # noqa: PLR0917 (the signature is theirs)
    backend: Any,
    q_all: torch.Tensor,
    kv_cache: torch.Tensor,
    v_head_dim: int,
    page_table_1: torch.Tensor,
    sm_scale: float,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend to selected rows, of 16 bits or, in decode over an fp8 cache, of 656 bytes.

    Parameters
    ----------
    backend : DeepseekSparseAttnBackend
    q_all : [tokens, heads, 576]
    kv_cache : [slots, 1, 576], or of bytes [slots, 1, 656]
    v_head_dim : int
        512.
    page_table_1 : int32 [tokens, topk]
        Slots; a negative one is absent.
    sm_scale : float
    topk_length : int32 [tokens], optional
        Only so many of a token's slots count. Of another length, it is not read, as SGLang has it.
    attn_sink : float32 [heads], optional

    Returns
    -------
    tensor
        ``[tokens, heads, 512]``.
    """
    return _attend(backend, q_all, kv_cache, page_table_1, softmax_scale=sm_scale, counts=topk_length, sink=attn_sink)


def flashmla_kv(  # noqa: PLR0917 (the signature is theirs)
    backend: Any,
    q_all: torch.Tensor,
    kv_cache: torch.Tensor,
    v_head_dim: int,
    sm_scale: float,
    layer: Any,
    metadata: Any,
    page_table_1: torch.Tensor,
) -> torch.Tensor:
    """Attend to selected rows of the cache, which may be of 656 bytes.

    Rows of 16 bits are read as they are. SGLang's own method makes rows of bytes of the whole cache first. Of a token's
    slots, those that count come first, which SGLang's ``_forward_flashmla_sparse`` relies on, too.

    Parameters
    ----------
    backend : DeepseekSparseAttnBackend
    q_all : [tokens, heads, 576]
    kv_cache : [slots, 1, 576], or of bytes [slots, 1, 656]
    v_head_dim : int
        512.
    sm_scale : float
    layer : RadixAttention
    metadata : DSAMetadata
    page_table_1 : int32 [tokens, topk]
        Slots; a negative one is absent.

    Returns
    -------
    tensor
        ``[tokens, 1, heads, 512]``.
    """
    q = q_all.view(-1, layer.tp_q_head_num, layer.head_dim)
    counts = metadata.dsa_cache_seqlens_int32
    return _attend(backend, q, kv_cache, page_table_1, softmax_scale=sm_scale, counts=counts)[:, None]


def _attend(
    backend: Any,
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    softmax_scale: float,
    counts: torch.Tensor | None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """All tokens are one row of a batch, and each slot is a page: an index means the same whatever pages there are."""
    rows = kv_cache if kv_cache.element_size() > 1 else kv_cache.view(torch.uint8)
    if counts is not None and len(counts) != len(q):  # SGLang reads all slots then, too
        counts = None
    kernel: Kernel = getattr(backend, _KERNELS)[rows.element_size()]
    out: torch.Tensor
    out, *_ = kernel(
        q[None],
        rows,
        slots[None],
        topk_length=None if counts is None else counts[None],
        attn_sink=sink,
        softmax_scale=softmax_scale,
        lse=False,
    )
    return out[0]
