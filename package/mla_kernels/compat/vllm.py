"""Two functions of vLLM's by this package's kernels; ``plugin`` and ``register`` are those of ``vllm_plugin``."""

from __future__ import annotations

import torch

from mla_kernels.api.ops import store_kv
from mla_kernels.compat._arguments import Names, require_torch, shape_of
from mla_kernels.compat._caches import bytes_of
from mla_kernels.compat._capabilities import CACHE_DTYPES
from mla_kernels.compat.flashmla_sparse.indices import triton_convert_req_index_to_global_index
from mla_kernels.compat.vllm_plugin import plugin, register
from mla_kernels.errors import DTypeError, InvalidArgumentError, UnsupportedError
from mla_kernels.scalars import flag, quoted

__all__ = [
    "concat_and_cache_mla",
    "plugin",
    "register",
    "triton_convert_req_index_to_global_index",
]

_NAMES = Names({"latent": "kv_c", "rope": "k_pe"})


def concat_and_cache_mla(  # noqa: PLR0917 (the signature is theirs)
    kv_c: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    skip_scale: bool = False,
) -> None:
    """Write new tokens into a cache; vLLM's function of this name, by ``store_kv``.

    Parameters
    ----------
    kv_c : [num_tokens, kv_lora_rank], fp16 bf16; fp32 on a CPU
        Rows beyond ``slot_mapping`` are padding, here and in ``k_pe``. The rank is 512, or 256 on a CPU.
    k_pe : [num_tokens, 64]
    kv_cache : [num_blocks, block_size, kv_lora_rank + 64], or 656 bytes
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
    if slot_mapping is None:
        raise DTypeError("slot_mapping", "NoneType", "a dense torch tensor")
    shape_of("kv_c", kv_c, "num_tokens", "kv_lora_rank")
    shape_of("k_pe", k_pe, "num_tokens", "qk_rope_head_dim")
    flag("skip_scale", skip_scale)
    if not isinstance(kv_cache_dtype, str):
        raise DTypeError("kv_cache_dtype", type(kv_cache_dtype).__name__, "a str")
    kv_cache_dtype = str.__str__(kv_cache_dtype)
    in_rows = kv_cache_dtype == "fp8_ds_mla"
    own_scale = None
    if in_rows:
        kv_cache = bytes_of("kv_cache", kv_cache).view(torch.uint8)
    elif CACHE_DTYPES.get(kv_cache_dtype) == "e4m3":
        own_scale, kv_cache = scale, bytes_of("kv_cache", kv_cache).view(torch.float8_e4m3fn)
    elif kv_cache_dtype != "auto" and kv_cache_dtype not in CACHE_DTYPES:
        accepts = f"auto, {', '.join(CACHE_DTYPES)} or fp8_ds_mla"
        raise UnsupportedError("kv_cache_dtype", quoted(kv_cache_dtype), accepts)
    slots = slot_mapping.flatten()
    tokens = slots.numel()
    try:
        store_kv(kv_c[:tokens], k_pe[:tokens], kv_cache, slots, scale=own_scale, power_of_two_scales=in_rows)
    except InvalidArgumentError as error:
        raise _NAMES.renamed(error) from None
