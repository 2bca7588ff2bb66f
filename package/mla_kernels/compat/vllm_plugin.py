"""What vLLM calls in each of its processes: names for this package's attention backends. It does not import torch.

=====================  ========================================  ==================================================
name                   is                                        chosen by
=====================  ========================================  ==================================================
``MLA_KERNELS``        dense MLA on GPUs                         ``--attention-backend MLA_KERNELS``
``MLA_KERNELS_SPARSE`` DeepSeek Sparse Attention on GPUs         ``--attention-backend MLA_KERNELS_SPARSE``
``CUSTOM``             the same, unless another package has it   ``--attention-backend CUSTOM``
a name of vLLM's own   the backend of ``INSTEAD``                ``MLA_KERNELS_VLLM_OVERRIDE=CPU_MLA,AMX_MLA``
=====================  ========================================  ==================================================

Registering changes no choice of vLLM's: it never chooses a name that it does not know, and no name of its own is taken
unless ``MLA_KERNELS_VLLM_OVERRIDE`` lists it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from mla_kernels.errors import UnsupportedError, ValueRangeError

__all__ = ["INSTEAD", "NAMES", "TESTED", "VARIABLE", "backend_named", "plugin", "register"]

TESTED = ("0.32", "0.33")
"""The releases of vLLM that the backends are written for."""

VARIABLE = "MLA_KERNELS_VLLM_OVERRIDE"
"""The environment variable that lists backends of vLLM to replace, with commas between them."""

_DENSE = "mla_kernels.compat._vllm.dense.DenseBackend"
_SPARSE = "mla_kernels.compat._vllm_backend.FlashMLASparseBackend"

NAMES: Mapping[str, str] = {"MLA_KERNELS": _DENSE, "MLA_KERNELS_SPARSE": _SPARSE, "CUSTOM": _SPARSE}
"""The names that the plugin adds, and the path of the class that each is."""

INSTEAD: Mapping[str, str] = {
    "CPU_MLA": "mla_kernels.compat._vllm.cpu.CpuBackend",
    "AMX_MLA": "mla_kernels.compat._vllm.amx.AmxBackend",
    "CUTLASS_MLA": _DENSE,
    "FLASHINFER_MLA": _DENSE,
    "FLASHMLA": _DENSE,
    "FLASH_ATTN_MLA": _DENSE,
    "TRITON_MLA": _DENSE,
    "FLASHMLA_SPARSE": _SPARSE,
    "FLASH_ATTN_MLA_SPARSE": _SPARSE,
}
"""The backends of vLLM that can be replaced on request, and the path of the class that replaces each."""

_logger = logging.getLogger(__name__)


def plugin() -> None:
    """Register ``NAMES``, and replace the backends of vLLM that ``VARIABLE`` lists; it may be called again.

    A release of vLLM outside ``TESTED`` gets a warning, and nothing is registered.

    Raises
    ------
    ValueRangeError
        ``VARIABLE`` lists a name that cannot be replaced.
    UnsupportedError
        ``VARIABLE`` asks for something, but the release of vLLM is outside ``TESTED``.
    """
    asked = [name for each in os.environ.get(VARIABLE, "").split(",") if (name := each.strip().upper())]
    for name in asked:
        if name not in INSTEAD:
            raise ValueRangeError(VARIABLE, repr(name), ", ".join(INSTEAD))
    if (refusal := untested()) is not None:
        if asked:
            raise refusal
        _logger.warning("mla-kernels registers no attention backend. %s", refusal)
        return
    for name in NAMES:
        if name != "CUSTOM" or not backend_named(name).is_overridden():
            register(name)
    for name in asked:
        register(name)


def register(backend: str = "CUSTOM") -> None:
    """Give one name of vLLM's attention backends to this package, in this process.

    Parameters
    ----------
    backend : str
        A key of ``NAMES``, or of ``INSTEAD``, whose backend of vLLM's is then replaced.

    Raises
    ------
    ImportError
        vLLM is not installed, or has no such registry.
    ValueRangeError
        No backend of this package goes by the name.
    """
    from vllm.v1.attention.backends.registry import register_backend

    path = (NAMES | INSTEAD).get(backend)  # type: ignore[operator]
    if path is None:
        raise ValueRangeError("backend", repr(backend), ", ".join((*NAMES, *INSTEAD)))
    register_backend(backend_named(backend), path)


def backend_named(name: str) -> Any:
    """The member of vLLM's ``AttentionBackendEnum``; one of ``NAMES`` is added where it is missing.

    Parameters
    ----------
    name : str

    Returns
    -------
    AttentionBackendEnum
    """
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    if name in NAMES and name not in AttentionBackendEnum.__members__:
        member = AttentionBackendEnum.register(name, NAMES[name])
        # Another process that is handed a configuration unpickles it before it calls any plugin: there the name
        # would be unknown.
        member.__reduce_ex__ = lambda protocol: (backend_named, (name,))
    return AttentionBackendEnum[name]


def untested() -> UnsupportedError | None:
    """Why the installed release of vLLM gets no backend, or None where it is one of ``TESTED``."""
    from vllm import __version__

    found = re.match(r"\d+\.\d+", __version__)
    if found and found[0] in TESTED:
        return None
    releases = " and ".join(f"{each}.x" for each in TESTED)
    return UnsupportedError("vllm", str(__version__), f"{releases}, which the backends of mla-kernels were tested with")
