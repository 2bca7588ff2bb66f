"""What vLLM asks of a backend for GPUs before it chooses one, dense or sparse; this imports nothing of vLLM."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from mla_kernels.compat import _capabilities as capabilities

__all__ = ["Combination", "SparseCombination"]


class Combination:
    """The answers of the installed GPU payloads for one op."""

    _op: ClassVar[str] = "decode"
    """The op that the backend launches; vLLM has no such name."""

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        """Whether an installed payload has the op on such a GPU."""
        return capabilities.arch_of_capability(capability.major, capability.minor, cls._op) is not None

    @classmethod
    def supports_combination(  # noqa: PLR0917 (the signature is theirs)
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: str | None,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        device_capability: Any,
    ) -> str | None:
        """Why no kernel serves the combination, with what would be served; None where one does."""
        capability = device_capability.major, device_capability.minor
        asked: dict[str, Any] = {"head_size": head_size, "dtype": dtype, "cache_dtype": kv_cache_dtype}
        return capabilities.combination(capability, block_size, op=cls._op, **asked)


class SparseCombination(Combination):
    """The answers for sparse decode."""

    _op = "sparse_decode"
