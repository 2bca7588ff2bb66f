"""What is measured: our kernels, and other libraries under the names by which they are imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from mla_kernels.api.lookup import find
from mla_kernels.devices.machine import current_arch
from mla_kernels.diagnostics.bench.decode import calls_of
from mla_kernels.diagnostics.bench.tensors import Tensors
from mla_kernels.errors import ValueRangeError

from benchmarks.ops import sparse_cuda
from benchmarks.ops.sparse_tensors import SparseDecodeTensors, SparsePrefillTensors
from benchmarks.pages import comparison
from benchmarks.peers import adapters
from benchmarks.side_by_side.cells import Cell

OURS = comparison.OURS
TENSORS: Mapping[str, Callable[..., Any]] = {
    "decode": Tensors,
    "sparse_decode": SparseDecodeTensors,
    "sparse_prefill": SparsePrefillTensors,
}
_CALLS: Mapping[str, Callable[..., Any]] = {
    "decode": calls_of,
    "sparse_decode": sparse_cuda.decode_calls,
    "sparse_prefill": sparse_cuda.prefill_calls,
}
_PEERS = {
    "decode": adapters.PEERS,
    "fp8_decode": adapters.FP8_DECODE_PEERS,
    "sparse_decode": adapters.SPARSE_DECODE_PEERS,
    "sparse_prefill": adapters.SPARSE_PREFILL_PEERS,
}
_PROJECTS = {peer.name: peer.module for peers in _PEERS.values() for peer in peers}
Launch = Callable[[int], torch.Tensor]
"""Launches a problem and returns its output."""


@dataclass(frozen=True, slots=True)
class Library:
    """A project, and the module under which one build of it is imported; ours is a library for each arithmetic.

    Attributes
    ----------
    project, module : str
    compute_dtype : str, optional
        What our kernels are asked to multiply in; None is exact arithmetic, and another library's own.
    """

    project: str
    module: str
    compute_dtype: str | None = None

    def prepare(self, cell: Cell, tensors: Any) -> Launch:
        """What launches the problems of a cell.

        Raises
        ------
        Exception
            Whatever the library raises.
        """
        if self.ours:
            kernel = find(self._config(cell))
            if not self.baseline:  # what the baseline computed stays in its own output
                tensors = copy(tensors)
                tensors.out = torch.empty_like(tensors.out)
            problems = _CALLS[cell.op](kernel, tensors)
            return partial(_ours, kernel, problems, tensors)
        (peer,) = (peer for peer in _peers(cell) if peer.name == self.project)
        return peer.prepare(import_module(self.module), tensors)

    def has(self, cell: Cell) -> bool:
        """Whether the library is measured in a cell."""
        if self.ours:
            return self.baseline or cell.fp8
        return any(peer.name == self.project for peer in _peers(cell))

    def variant(self, cell: Cell) -> str:
        """The variant of ours that serves a cell.

        Raises
        ------
        VariantNotFoundError
        """
        return find(self._config(cell)).variant.name

    def _config(self, cell: Cell) -> dict[str, object]:
        arithmetic = {"compute_dtype": self.compute_dtype} if self.compute_dtype else {}
        return {**cell.problem.config(current_arch()), **arithmetic}

    @property
    def ours(self) -> bool:
        """Whether it is our kernels that this runs."""
        return self.project == OURS

    @property
    def baseline(self) -> bool:
        """Whether this is the library that the others are compared with: ours in exact arithmetic."""
        return self.ours and self.compute_dtype is None

    @property
    def label(self) -> str:
        """The project and, of others' libraries, the version that the distribution or the module states.

        A version such as ``vllm 0.26.0`` names who built it: that build is not the project's own.
        """
        if self.ours:
            return OURS if self.baseline else comparison.OURS_FP8
        peer = next(peer for peers in _PEERS.values() for peer in peers if peer.name == self.project)
        try:
            module = import_module(self.module)
        except Exception:  # an import fails in as many ways as there are libraries; its turn says how
            return f"{self.project} ({self.module})"
        version = adapters.version_of(peer, module) if self.module == peer.module else adapters.stated_version(module)
        distributor, _, release = version.partition(" ")
        return f"{self.project} as vLLM {release} ships it" if distributor == "vllm" else f"{self.project} {version}"


_OURS = (Library(OURS, "mla_kernels"), Library(OURS, "mla_kernels", "e4m3"))


def _peers(cell: Cell) -> Sequence[adapters.Peer]:
    """The peers of a cell; over an e4m3 cache, those that read one."""
    return _PEERS["fp8_decode" if cell.fp8 else cell.op]


def libraries(named: list[str] | None) -> list[Library]:
    """Ours in each arithmetic, and those that are named as ``PROJECT=MODULE``, or else every peer that is installed.

    Raises
    ------
    ValueRangeError
        A project is unknown, or the module of one that is named is not there.
    """
    if named is None:
        installed = {peer.name: peer.module for peers in _PEERS.values() for peer in peers if peer.installed}
        return [*_OURS, *(Library(*pair) for pair in installed.items())]
    chosen = [*_OURS]
    for text in named:
        project, _, module = text.partition("=")
        if project not in _PROJECTS:
            raise ValueRangeError("peer", repr(text), f"PROJECT or PROJECT=MODULE, with {', '.join(_PROJECTS)}")
        library = Library(project, module or _PROJECTS[project])
        if find_spec(library.module.partition(".")[0]) is None:
            raise ValueRangeError("peer", repr(text), "a module that can be imported")
        chosen.append(library)
    return chosen


def _ours(kernel: Any, problems: Any, tensors: Any, i: int) -> torch.Tensor:
    positional, named = problems[i]
    kernel(*positional, **named)
    return tensors.out[i]  # type: ignore[no-any-return]
