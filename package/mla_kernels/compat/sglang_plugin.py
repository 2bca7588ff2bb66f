"""What SGLang calls in each of its processes: it adds the attention backend ``mla_kernels``, and does not import torch.

Registering changes no choice of SGLang's. It runs the backend where ``--attention-backend mla_kernels`` or
``--decode-attention-backend mla_kernels`` asks for it, and nowhere else. ``MLA_KERNELS_SGLANG_OVERRIDE`` lists kernels
of SGLang's backend for sparse attention that ours replace.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mla_kernels.compat._sglang.names import INSTEAD, NAME, VARIABLE
from mla_kernels.errors import UnsupportedError

__all__ = [
    "INSTEAD", "NAME", "TESTED", "VARIABLE", "add_draft_backend", "create", "plugin", "preferred_page_size", "untested",
]  # fmt: skip

TESTED = ("0.5.23",)
"""The releases of SGLang that the backend is written for; the interface of backends changes between them."""

_PAGE_SIZE = "sglang.srt.arg_groups.overrides._page_size_default"
_SPARSE = "sglang.srt.layers.attention.dsa_backend.DeepseekSparseAttnBackend"
_DRAFTS = "sglang.srt.speculative.draft_utils.DraftBackendFactory._create_backend"

_joined: list[Any] = []
"""Configs of this process's models whose queries SGLang has to join, because it scales them where it joins them."""

_logger = logging.getLogger(__name__)


def plugin() -> None:
    """Register the backend; it may be called again.

    A release of SGLang outside ``TESTED`` gets a warning, and nothing is registered: its command line then refuses
    the name.

    SGLang's list for drafts is left alone, because it is for drafts without a latent. The lists for deterministic
    inference hold for decode and prefill; where prefill would be FlashInfer's, the backend itself refuses to start.
    """
    if (refusal := untested()) is not None:
        _logger.warning("mla-kernels registers no attention backend, and replaces no kernel. %s", refusal)
        return
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if NAME in choices.ATTENTION_BACKEND_CHOICES:
        return
    register_attention_backend(NAME)(create)
    HookRegistry.register(_PAGE_SIZE, preferred_page_size, HookType.AFTER)
    HookRegistry.register(_DRAFTS, add_draft_backend, HookType.BEFORE)
    if listed := [each for name in os.environ.get(VARIABLE, "").split(",") if (each := name.strip())]:
        for name in listed:
            if name in INSTEAD:
                HookRegistry.register(f"{_SPARSE}.{INSTEAD[name]}", _sparse(name), HookType.REPLACE)
        # What is listed and cannot be replaced is refused there: SGLang goes on where a plug-in raises an error.
        HookRegistry.register(f"{_SPARSE}.__init__", partial(_start_sparse, listed), HookType.AFTER)
    # Prefill is FlashInfer's, whose kernels read a prefix in chunks.
    choices.add_chunked_prefix_cache_attention_backend(NAME)
    choices.add_deterministic_attention_backend_choices([NAME])
    choices.add_radix_supported_deterministic_attention_backend_choices([NAME])
    choices.add_attention_backend_choices([NAME])


def create(model_runner: Any) -> Any:
    """Make the backend of one model runner; SGLang calls it when it starts.

    Parameters
    ----------
    model_runner : ModelRunner

    Returns
    -------
    MlaKernelsBackend

    Raises
    ------
    InvalidArgumentError
        No kernel serves the model, its cache or the GPU; the message says what would be served.
    """
    from mla_kernels.compat._sglang.backend import MlaKernelsBackend

    _introduce(model_runner)
    return MlaKernelsBackend(model_runner)


def add_draft_backend(
    factory: Any,
    backend_name: str,
    backend_map: dict[str, Callable[[], tuple[str, Any]]],
    error_template: str,
    stamps_children: bool = False,
) -> None:
    """Add our backend to those that SGLang makes for a draft model; SGLang calls it before it chooses one by its name.

    Parameters
    ----------
    factory : DraftBackendFactory
    backend_name, error_template : str
    backend_map : dict[str, Callable]
        What makes a backend, by its name; it is added to in place.
    stamps_children : bool
        Whether the backend has one of its own for each step, as it has where it decodes.
    """
    backend_map[NAME] = partial(_steps_of_drafts if stamps_children else _extension_of_drafts, factory)


def _steps_of_drafts(factory: Any) -> tuple[str, Any]:
    """Our backend for the steps that draft one more token each."""
    from mla_kernels.compat._sglang.drafts import MultiStepDraftBackend

    _introduce(factory.draft_model_runner)
    return NAME, MultiStepDraftBackend(factory.draft_model_runner, factory.topk, factory.speculative_num_steps)


def _extension_of_drafts(factory: Any) -> tuple[str, Any]:
    """Our backend that extends the cache of a draft model by verified tokens; it prefills that model, too.

    SGLang captures an extension in a CUDA graph for classes that it lists, of which FlashMLA's is one.
    """
    from sglang.srt.layers.attention.flashmla_backend import FlashMLABackend

    from mla_kernels.compat._sglang.backend import MlaKernelsBackend

    FlashMLABackend.register(MlaKernelsBackend)
    _introduce(factory.draft_model_runner)
    return NAME, MlaKernelsBackend(factory.draft_model_runner, prefill=NAME)


def _introduce(model_runner: Any) -> None:
    """Tell SGLang's DeepSeek models of our backend, which they know by its name.

    They prefill as with FlashMLA; a name that this table lacks is served as Triton's backend. And they hand over
    queries and new latents as two tensors each, where they lie. They would join them in two copies a layer for a name
    that the second list lacks.
    """
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
    from sglang.srt.models.deepseek_common.utils import FORWARD_ABSORB_CORE_ATTENTION_BACKENDS as APART

    AttentionBackendRegistry.register(NAME, AttentionBackendRegistry.get_handler("flashmla"))
    config = model_runner.model_config.hf_text_config  # of a model that sees pictures, too
    if getattr(config, "llama_4_scaling", None) is not None:
        _joined.append(config)
    if NAME in APART:
        APART.remove(NAME)
    if not _joined:
        APART.append(NAME)


def _sparse(name: str) -> Callable[..., Any]:
    """A method of SGLang's DSA backend by our kernel; what it is handed may not be known before."""

    def attend(*args: Any, **kwargs: Any) -> Any:
        from mla_kernels.compat._sglang import sparse

        return getattr(sparse, name)(*args, **kwargs)

    return attend


def _start_sparse(listed: list[str], made: None, backend: Any, model_runner: Any, *_: Any, **__: Any) -> None:
    """Refuse what no kernel serves; SGLang calls it after it has made its DSA backend."""
    from mla_kernels.compat._sglang.sparse import require_served

    require_served(listed, backend, model_runner)


def preferred_page_size(resolved: Mapping[str, Any], view: Any) -> dict[str, Any] | None:
    """The page size where the user names none; SGLang calls it after its own choice.

    Parameters
    ----------
    resolved : Mapping[str, Any]
        What SGLang chose; empty where the user named a page size.
    view : ResolvedView
        The arguments of the server.

    Returns
    -------
    dict[str, Any] or None
        None leaves SGLang's choice as it is.
    """
    if "page_size" not in resolved or NAME not in {view.attention_backend, view.decode_attention_backend}:
        return None
    from mla_kernels.compat import _capabilities as capabilities

    size = capabilities.preferred_block_size(capabilities.gpu_archs(), int(resolved["page_size"]))
    return {**resolved, "page_size": size}


def untested() -> UnsupportedError | None:
    """Why the installed release of SGLang gets no backend, or None where it is one of ``TESTED``."""
    from sglang.version import __version__

    found = re.match(r"\d+\.\d+\.\d+(?=$|\.post|\+)", __version__)
    if found and found[0] in TESTED:
        return None
    releases = " and ".join(TESTED)
    return UnsupportedError("sglang", str(__version__), f"{releases}, which the backend of mla-kernels was tested with")
