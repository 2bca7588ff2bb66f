"""Says which kernels of a library a variant launches, and where one is missing or has lost its tensor cores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cuobjdump import Kernel

Variant = Mapping[str, Any]
"""A row of ``registry.json``."""

SHARED = {
    "batch_rows": ("decode", "sparse_decode"),
    "scheduler": ("decode",),
    "combine": ("decode",),
}
"""All variants of these ops launch the kernels of such a namespace."""
SERVES = {"sparse_decode": ("sparse_decode", "sparse_prefill")}
"""Variants of these ops launch the kernels of such an op, each those of its own traits."""
GATHER = "gather_selected"
"""The kernels of this namespace gather what a sparse decode selects of two caches, before its own kernel runs."""
REDUCTION = "sm100"
"""Kernels around CUTLASS's reduction lie in this folder; ``merge_states`` has others of the same traits."""

_DTYPES = ("q_dtype", "in_dtype", "kv_dtype", "out_dtype")
"""The traits that a kernel has as element types, in the order of its template arguments."""

OURS = re.compile(r"mla::(?P<folder>\w+)::(?P<place>\w+)::\w+(?:<(?P<arguments>.*)>)?\(")
PARAMS = re.compile(r"mla::\w+::(\w+)::Params\b")
CUTLASS_MLA = re.compile(
    r"Sm100FmhaMlaKernelTmaWarpspecialized<.*cute::tuple<cute::C<(\d+)>, cute::C<64> ?> ?>, "
    r"(cutlass::\w+), float, (cutlass::\w+), float, "
    r"cutlass::fmha::kernel::Sm100Mla(Individual|Persistent)TileScheduler, (true|false)>"
)
CUTLASS_TYPE = {"fp16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t", "e4m3": "cutlass::float_e4m3_t"}


@dataclass(frozen=True)
class VariantKernels:
    """The variants of a registry and the kernels of a library, or of an object of it.

    A kernel of ours stands in the namespace of its op, or takes that op's ``Params`` as its first template argument;
    the other arguments are the traits that are baked in. CUTLASS's kernels are told by their types.
    """

    registry: Mapping[str, Any]
    kernels: Sequence[Kernel]

    @property
    def variants(self) -> Sequence[Variant]:
        """The rows of the registry."""
        rows: Sequence[Variant] = self.registry["variants"]
        return rows

    @cached_property
    def own(self) -> dict[str, list[Kernel]]:
        """By the variant's name, the kernels that were compiled for its traits."""
        return {
            variant["name"]: [kernel for kernel in self.kernels if self._is_own(variant, kernel.name)]
            for variant in self.variants
        }

    @cached_property
    def launched(self) -> dict[str, list[Kernel]]:
        """By the variant's name, all kernels that it launches: its own, and those that its op shares.

        CUTLASS's reduction counts where it was compiled together with the variant's own kernel.
        """
        found = {}
        for variant in self.variants:
            own = self.own[variant["name"]]
            cubins = {kernel.cubin_sha256 for kernel in own}
            out = CUTLASS_TYPE.get(variant["baked"].get("out_dtype", ""), "?")
            reduction = f"Sm100FmhaMlaReductionKernel<{out},"
            found[variant["name"]] = [
                kernel
                for kernel in self.kernels
                if kernel in own
                or (kernel.cubin_sha256 in cubins and reduction in kernel.name)
                or (own and variant["op"] in SHARED.get(_place(kernel.name), ()))
                or (own and self._gathers_for(variant, kernel.name))
            ]
        return found

    @property
    def shared(self) -> list[Kernel]:
        """The kernels that all variants of some ops launch."""
        return [kernel for kernel in self.kernels if _place(kernel.name) in SHARED]

    def unpaired(self) -> Iterator[str]:
        """Name variants without a kernel, and kernels without a variant.

        @pre The kernels are those of a whole library.
        """
        for name, kernels in self.launched.items():
            if not kernels:
                yield f"{name}: no kernel in the library"
        claimed = {kernel for kernels in self.launched.values() for kernel in kernels} | set(self.shared)
        for kernel in self.kernels:
            if kernel not in claimed:
                yield f"{kernel.name}: no variant launches it"

    def without_tensor_cores(self) -> Iterator[str]:
        """Name own kernels without a tensor-core instruction, of variants that must multiply on tensor cores."""
        for variant in self.variants:
            for kernel in self.own[variant["name"]] if variant["tensor_cores"] else ():
                if not kernel.tensor_core_instructions:
                    yield f"{variant['name']}: {kernel.name}: no tensor-core instruction"

    def _is_own(self, variant: Variant, name: str) -> bool:
        if found := CUTLASS_MLA.search(name):
            return _is_cutlass(variant, *found.groups())
        ours = OURS.search(name)
        if not ours or "cutlass::" in name.partition("(")[0]:
            return False
        arguments = ours["arguments"] or ""
        params = PARAMS.match(arguments)
        op = params[1] if params else ours["place"]
        baked = variant["baked"]
        if variant["op"] not in SERVES.get(op, (op,)):
            return False
        if op == "merge_states" and (ours["folder"] == REDUCTION) != (baked["schedule"] == "reduction"):
            return False
        return (
            self._enumerators("DType", arguments) == [baked[trait] for trait in _DTYPES if trait in baked]
            and self._enumerators("Load", arguments) in ([], [baked.get("load")])
            and self._enumerators("Schedule", arguments) in ([], [baked.get("schedule")])
            and self._enumerators("ExtraKv", arguments) in ([], [baked.get("extra_kv_dtype", "same")])
            and (self._enumerators("ComputeDType", arguments) or ["exact"]) == [baked.get("compute_dtype", "exact")]
            and _widths(arguments) in ([], [(baked.get("d_qk"), baked.get("d_v"))])
        )

    def _gathers_for(self, variant: Variant, name: str) -> bool:
        """Tell whether a kernel gathers what a variant selects: types of both caches and the rows, and their width."""
        found = OURS.search(name)
        if not found or found["place"] != GATHER or variant["op"] != "sparse_decode":
            return False
        baked = variant["baked"]
        extra = baked.get("extra_kv_dtype", "same")
        types = [baked["kv_dtype"], baked["kv_dtype"] if extra == "same" else extra, baked["out_dtype"]]
        widths = re.findall(r", (\d+), ", found["arguments"] or "")
        gathers = baked["load"] == "gather" and widths == [str(baked["d_qk"])]
        return gathers and self._enumerators("DType", found["arguments"]) == types

    def _enumerators(self, kind: str, arguments: str) -> list[str]:
        names = self.registry["enumerators"].get(kind, ())
        return [names[int(number)] for number in re.findall(rf"\(mla::{kind}\)(\d+)", arguments)]


def _widths(arguments: str) -> list[tuple[int, int]]:
    """``d_qk`` and ``d_v``, which follow the number of blocks of a cluster where a kernel knows them."""
    return [(int(d_qk), int(d_v)) for d_qk, d_v in re.findall(r", \d+, (\d+), (\d+)$", arguments)]


def _is_cutlass(variant: Variant, d_v: str, element: str, out: str, scheduler: str, is_async: str) -> bool:  # noqa: PLR0917
    """Tell whether a variant launches CUTLASS's MLA kernel of such types."""
    baked = variant["baked"]
    if variant["op"] not in ("decode", "sparse_decode") or baked["load"] not in ("tma", "cpasync", "gather"):
        return False
    return (int(d_v), element, out, scheduler.lower(), is_async == "true") == (
        baked.get("d_v"),
        CUTLASS_TYPE[baked["q_dtype"]],
        CUTLASS_TYPE[baked["out_dtype"]],
        baked["schedule"],
        baked["load"] == "cpasync",
    )


def _place(name: str) -> str:
    """Return the namespace of a kernel of ours; nothing for another."""
    found = OURS.search(name)
    return found["place"] if found and "cutlass::" not in name.partition("(")[0] else ""
