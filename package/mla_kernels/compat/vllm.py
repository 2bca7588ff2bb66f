"""Functions of vLLM's by this package's kernels; ``plugin`` and ``register`` are those of ``vllm_plugin``."""

from __future__ import annotations

from typing import Any

import torch

from mla_kernels.api.ops import store_kv
from mla_kernels.compat._arguments import Names, require_torch, shape_of
from mla_kernels.compat._caches import KV_FORMATS, bytes_of, has_bytes
from mla_kernels.compat._capabilities import CACHE_DTYPES
from mla_kernels.compat.flashmla_sparse.indices import triton_convert_req_index_to_global_index
from mla_kernels.compat.vllm_plugin import plugin, register
from mla_kernels.errors import DTypeError, InvalidArgumentError, ShapeError, UnsupportedError
from mla_kernels.formats import HEAD_DIM, LATENT, ROPE, format_named
from mla_kernels.scalars import count, flag, quoted

__all__ = [
    "concat_and_cache_mla",
    "plugin",
    "quantize_and_insert_k_cache",
    "register",
    "triton_convert_req_index_to_global_index",
]

_NAMES = Names({"latent": "kv_c", "rope": "k_pe"})
_NAMES_OF_K_CACHE = Names({"latent": "k", "rope": "k", "kv_cache": "k_cache"})
_WITH_ROPE, _WITHOUT_ROPE = (format_named("fp8_ds_mla", d_qk).token_bytes for d_qk in (HEAD_DIM, LATENT))
_RECORDS = {form.token_bytes: form for form in (KV_FORMATS[name] for name in ("V4", "V41", "V41_FP4"))}
"""What vLLM calls the records of DeepSeek V4 and V4.1, by the bytes of a token."""


def concat_and_cache_mla(  # noqa: PLR0917 (the signature is theirs)
    kv_c: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    skip_scale: bool = False,
) -> None:
    """Write new tokens into a cache; the function of this name of ``vllm._custom_ops`` of vLLM 0.33, by ``store_kv``.

    Parameters
    ----------
    kv_c : [num_tokens, kv_lora_rank], fp16 bf16; fp32 on a CPU
        Rows beyond ``slot_mapping`` are padding, here and in ``k_pe``. The rank is 512, or 256 on a CPU.
    k_pe : [num_tokens, 64], or [num_tokens, 0] of a model without a rope part, such as GLM-5.3-Flash
    kv_cache : [num_blocks, block_size, kv_lora_rank + 64], or 656 bytes
        Without a rope part [..., kv_lora_rank], or 656 bytes of which the rope part becomes 0, as vLLM stores it,
        or 528 bytes without these, as FlashMLA reads it and vLLM does not.
    slot_mapping : int64 [num_actual_tokens]
        ``block * block_size + offset``; a negative slot is skipped.
    kv_cache_dtype : str
        ``auto``, ``bfloat16``, ``float16`` or ``float32``; ``fp8`` or ``fp8_e4m3``, e4m3 with one scale;
        ``fp8_ds_mla``, whose scales are powers of two, as vLLM 0.33 writes them.
    scale : float32 [1]
        What one unit of an e4m3 element stands for; not read for other caches.
    skip_scale : bool
        Has no effect: it says that the scale is 1.

    Raises
    ------
    InvalidArgumentError
    """
    require_torch(kv_c=kv_c, k_pe=k_pe, kv_cache=kv_cache, slot_mapping=slot_mapping)
    shape_of("kv_c", kv_c, "num_tokens", "kv_lora_rank")
    shape_of("k_pe", k_pe, "num_tokens", "qk_rope_head_dim")
    flag("skip_scale", skip_scale)
    if not isinstance(kv_cache_dtype, str):
        raise DTypeError("kv_cache_dtype", type(kv_cache_dtype).__name__, "a str")
    kv_cache_dtype = str.__str__(kv_cache_dtype)
    slots = _slots(slot_mapping)
    kv_c, k_pe = kv_c[: slots.numel()], k_pe[: slots.numel()]
    own: dict[str, Any] = {}
    if kv_cache_dtype == "fp8_ds_mla":
        k_pe, kv_cache = _rows_with_scales(kv_c, k_pe, kv_cache)
        own = {"kv_dtype": "fp8_ds_mla", "power_of_two_scales": True}
    elif CACHE_DTYPES.get(kv_cache_dtype) == "e4m3":
        kv_cache = bytes_of("kv_cache", kv_cache).view(torch.float8_e4m3fn)
        own = {"scale": scale}
    elif kv_cache_dtype != "auto" and kv_cache_dtype not in CACHE_DTYPES:
        accepts = f"auto, {', '.join(CACHE_DTYPES)} or fp8_ds_mla"
        raise UnsupportedError("kv_cache_dtype", quoted(kv_cache_dtype), accepts)
    elif has_bytes(kv_cache):
        accepts = f"the type of kv_c, because kv_cache_dtype is {kv_cache_dtype}"
        raise DTypeError("kv_cache", str(kv_cache.dtype).removeprefix("torch."), accepts)
    try:
        store_kv(kv_c, k_pe, kv_cache, slots, **own)
    except InvalidArgumentError as error:
        raise _NAMES.renamed(error) from None


def quantize_and_insert_k_cache(  # noqa: PLR0917 (the signature is theirs)
    k: torch.Tensor,
    k_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    block_size: int = 64,
    is_ue8m0: bool = True,
    use_fnuz: bool = False,
    bytes_per_token: int = 584,
) -> None:
    """Write new tokens of DeepSeek V4 or V4.1 into a cache, by ``store_kv``.

    It is the function of this name of ``vllm.models.deepseek_v41.common.ops`` of vLLM 0.33; that of ``deepseek_v4``
    has no ``bytes_per_token``. Normalise and rotate ``k`` before.

    Parameters
    ----------
    k : [num_tokens, 512], fp16 bf16; fp32 on a CPU
        The last 64 columns are the rope part. Rows beyond ``slot_mapping`` are padding.
    k_cache : uint8 [num_blocks, block_bytes], or [num_blocks, block_size, bytes_per_token]
        Blocks may be padded. The stride of those of V4 is a multiple of 576 bytes.
    slot_mapping : int64 [num_actual_tokens]
        ``block * block_size + offset``; a negative slot is skipped.
    block_size : int
        Tokens of a block.
    is_ue8m0 : bool
        Must be True: scales are powers of two.
    use_fnuz : bool
        Must be False: elements are e4m3 of OCP, not those of AMD's MI300.
    bytes_per_token : int
        584 for V4, ``fp8_ds_v4``; 528 for V4.1, ``fp8_ds_v41``, each scale behind the elements of its token; 288 for
        the second cache of V4.1, ``fp4_ds_v41``, which vLLM writes by ``rope_quant_insert`` only.

    Raises
    ------
    InvalidArgumentError

    Notes
    -----
    The least scale of V4 and V4.1 is 2^-13, as in FlashMLA, and 2^-22 in vLLM, so that groups whose greatest magnitude
    is at most 448 * 2^-14 have other bytes; so have groups with an infinity, whose scale is NaN in vLLM. vLLM 0.32 has
    the scales of V4.1 behind all the rows of a block; no kernel here reads these blocks.
    """
    require_torch(k=k, k_cache=k_cache, slot_mapping=slot_mapping)
    shape_of("k", k, "num_tokens", LATENT)
    if not flag("is_ue8m0", is_ue8m0):
        raise UnsupportedError("is_ue8m0", "False", "True, because the scales of these formats are powers of two")
    if flag("use_fnuz", use_fnuz):
        raise UnsupportedError("use_fnuz", "True", "False, because no GPU of the kernels has elements of FNUZ")
    form = _RECORDS.get(count("bytes_per_token", bytes_per_token))
    if form is None:
        accepts = " or ".join(f"{row} ({known.name})" for row, known in _RECORDS.items())
        raise UnsupportedError("bytes_per_token", quoted(bytes_per_token), accepts)
    records = _records(k_cache, count("block_size", block_size, 1), form.token_bytes)
    slots = _slots(slot_mapping)
    latent, rope = k[: slots.numel()].tensor_split([form.latent], 1)
    try:
        store_kv(latent, rope, records, slots, kv_dtype=form.name)
    except InvalidArgumentError as error:
        raise _NAMES_OF_K_CACHE.renamed(error) from None


def _slots(slot_mapping: torch.Tensor | None) -> torch.Tensor:
    """The slots of the tokens that are no padding.

    Raises
    ------
    DTypeError
    """
    if slot_mapping is None:
        raise DTypeError("slot_mapping", "NoneType", "a dense torch tensor")
    return slot_mapping.flatten()


def _rows_with_scales(
    kv_c: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rope part and the cache of ``fp8_ds_mla`` as ``store_kv`` takes them; an absent rope part is 0 in 656 bytes.

    Raises
    ------
    DTypeError, ShapeError
    """
    cache = bytes_of("kv_cache", kv_cache).view(torch.uint8)
    *_, row = shape_of("kv_cache", cache, "num_blocks", "block_size", "row")
    if row not in (_WITH_ROPE, _WITHOUT_ROPE):
        accepts = f"rows of {_WITH_ROPE} bytes, or of {_WITHOUT_ROPE} without a rope part"
        other = "; quantize_and_insert_k_cache writes the others" if row in _RECORDS else ""
        raise ShapeError("kv_cache", f"rows of {row} bytes", accepts + other)
    if row == _WITH_ROPE and k_pe.shape[1] == 0:
        k_pe = kv_c.new_zeros(len(k_pe), ROPE)
    return k_pe, cache


def _records(k_cache: torch.Tensor, block_size: int, token_bytes: int) -> torch.Tensor:
    """A view uint8 [num_blocks, block_size, token_bytes] of blocks of bytes.

    Raises
    ------
    DTypeError, ShapeError
    """
    cache = bytes_of("k_cache", k_cache).view(torch.uint8)
    if cache.ndim == 3:
        shape_of("k_cache", cache, "num_blocks", block_size, token_bytes)
        return cache
    num_blocks, block_bytes = shape_of("k_cache", cache, "num_blocks", "block_bytes")
    used = block_size * token_bytes
    if block_bytes < used:
        accepts = f"[num_blocks, {used} or more], because a block has {block_size} tokens of {token_bytes} bytes"
        raise ShapeError("k_cache", f"shape {list(cache.shape)}", accepts)
    return cache[:, :used].view(num_blocks, block_size, token_bytes)
