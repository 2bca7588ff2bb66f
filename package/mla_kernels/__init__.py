"""Multi-head Latent Attention kernels, compiled ahead of time: look a variant up, plan, launch.

Importing this package imports neither torch nor numpy and touches no device. What it offers is loaded when first
used, and payloads are found at the first lookup. The launcher is loaded at once, because it may refuse the interpreter.
"""

import os as _os
from importlib import import_module
from typing import TYPE_CHECKING

from mla_kernels import errors as errors
from mla_kernels.errors import InvalidArgumentError as InvalidArgumentError
from mla_kernels.errors import MlaError as MlaError
from mla_kernels.errors import PayloadError as PayloadError
from mla_kernels.errors import VariantNotFoundError as VariantNotFoundError

import_module("mla_kernels._launcher")

if TYPE_CHECKING:
    from mla_kernels import devices as devices
    from mla_kernels import formats as formats
    from mla_kernels import models as models
    from mla_kernels import reference as reference
    from mla_kernels.api.lookup import lookup as lookup
    from mla_kernels.api.ops import decode as decode
    from mla_kernels.api.ops import gather_kv as gather_kv
    from mla_kernels.api.ops import merge_states as merge_states
    from mla_kernels.api.ops import sparse_decode as sparse_decode
    from mla_kernels.api.ops import sparse_prefill as sparse_prefill
    from mla_kernels.api.ops import store_kv as store_kv
    from mla_kernels.api.ops import to_global_indices as to_global_indices
    from mla_kernels.kernels.base import Kernel as Kernel
    from mla_kernels.kernels.base import Plan as Plan
    from mla_kernels.kernels.invariance import batch_invariant as batch_invariant
    from mla_kernels.payloads.registry import Variant as Variant
    from mla_kernels.resolve.explanation import explain as explain
    from mla_kernels.resolve.search import variants as variants
    from mla_kernels.version import __version__ as __version__

_HOMES = {
    "api.lookup": ("lookup",),
    "api.ops": (
        "decode",
        "gather_kv",
        "merge_states",
        "sparse_decode",
        "sparse_prefill",
        "store_kv",
        "to_global_indices",
    ),
    "kernels.base": ("Kernel", "Plan"),
    "kernels.invariance": ("batch_invariant",),
    "payloads.registry": ("Variant",),
    "resolve.explanation": ("explain",),
    "resolve.search": ("variants",),
    "version": ("__version__",),
}
_SUBMODULES = ("devices", "formats", "models", "reference")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "InvalidArgumentError",
    "Kernel",
    "MlaError",
    "PayloadError",
    "Plan",
    "Variant",
    "VariantNotFoundError",
    "batch_invariant",
    "decode",
    "errors",
    "explain",
    "gather_kv",
    "lookup",
    "merge_states",
    "sparse_decode",
    "sparse_prefill",
    "store_kv",
    "to_global_indices",
    "variants",
]


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"mla_kernels.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"mla_kernels.{_HOME_OF[name]}"), name))


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__")), "__version__"])


if _os.environ.get("MLA_KERNELS_RECORD"):  # the only look at it: launches pass through nothing where it is not set
    import_module("mla_kernels.diagnostics.recording.capture").from_environment()
