"""What is measured: our kernels, and other libraries under the names by which they are imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from benchmarks.peers import adapters
from benchmarks.side_by_side.cells import Cell

OURS = "mla-kernels"
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
    "sparse_decode": adapters.SPARSE_DECODE_PEERS,
    "sparse_prefill": adapters.SPARSE_PREFILL_PEERS,
}
_PROJECTS = {peer.name: peer.module for peers in _PEERS.values() for peer in peers}
Launch = Callable[[int], torch.Tensor]
"""Launches a problem and returns its output."""


@dataclass(frozen=True, slots=True)
class Library:
    """A project, and the module under which one build of it is imported."""

    project: str
    module: str

    def prepare(self, cell: Cell, tensors: Any) -> Launch:
        """What launches the problems of a cell.

        Raises
        ------
        Exception
            Whatever the library raises.
        """
        if self.ours:
            kernel = find(cell.problem.config(current_arch()))
            problems = _CALLS[cell.op](kernel, tensors)
            return partial(_ours, kernel, problems, tensors)
        (peer,) = (peer for peer in _PEERS[cell.op] if peer.name == self.project)
        return peer.prepare(import_module(self.module), tensors)

    def has(self, op: str) -> bool:
        """Whether the library is measured in an op."""
        return self.ours or any(peer.name == self.project for peer in _PEERS[op])

    def variant(self, cell: Cell) -> str:
        """The variant of ours that serves a cell.

        Raises
        ------
        VariantNotFoundError
        """
        return find(cell.problem.config(current_arch())).variant.name

    @property
    def ours(self) -> bool:
        """Whether this is the library that the others are compared with."""
        return self.project == OURS

    @property
    def label(self) -> str:
        """The project and, of others' libraries, the version that the distribution or the module states.

        A version such as ``vllm 0.26.0`` names who built it: that build is not the project's own.
        """
        if self.ours:
            return OURS
        peer = next(peer for peers in _PEERS.values() for peer in peers if peer.name == self.project)
        try:
            module = import_module(self.module)
        except ImportError:
            return f"{self.project} ({self.module})"
        version = adapters.version_of(peer, module) if self.module == peer.module else module.__version__
        distributor, _, release = version.partition(" ")
        return f"{self.project} as vLLM {release} ships it" if distributor == "vllm" else f"{self.project} {version}"


def libraries(named: list[str] | None) -> list[Library]:
    """Ours, and those that are named as ``PROJECT=MODULE``, or else every peer that is installed.

    Raises
    ------
    ValueRangeError
        A project is unknown, or the module of one that is named is not there.
    """
    if named is None:
        installed = {peer.name: peer.module for peers in _PEERS.values() for peer in peers if peer.installed}
        return [Library(OURS, "mla_kernels"), *(Library(*pair) for pair in installed.items())]
    chosen = [Library(OURS, "mla_kernels")]
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
