"""Finds the installed payloads by entry point, at the first lookup, and says why those it cannot use were rejected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from mla_kernels import _launcher
from mla_kernels.errors import STATUS, PayloadError
from mla_kernels.index import Index
from mla_kernels.registry import Arch, Registry
from mla_kernels.version import __version__

GROUP = "mla_kernels.payloads"


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """A payload in use: its registry and its loaded library."""

    name: str
    version: str
    folder: Path
    registry: Registry
    library: _launcher.Payload


@dataclass(frozen=True, slots=True)
class Rejected:
    """A payload that is installed but not used, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"payload {self.name} was rejected: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """Everything installed: payloads in use by name, those rejected, and an index of the variants of each op."""

    found: dict[str, Payload]
    rejected: tuple[Rejected, ...]
    indices: dict[str, Index]

    @property
    def archs(self) -> tuple[Arch, ...]:
        """Every arch of the matrix, in its order; what a payload says of its own arch counts."""
        registries = [payload.registry for payload in self.found.values()]
        listed = {arch.name: arch for registry in registries for arch in registry.archs}
        own = {arch.name: arch for registry in registries for arch in registry.archs if arch.name == registry.arch}
        return tuple((listed | own).values())

    def arch(self, name: str) -> Arch | None:
        """The arch of that name, whether or not its payload is in use."""
        return next((arch for arch in self.archs if arch.name == name), None)

    def registry_of(self, arch: str) -> Registry | None:
        """The registry of the payload built for ``arch``."""
        registries = (payload.registry for payload in self.found.values())
        return next((registry for registry in registries if registry.arch == arch), None)


@cache
def payloads() -> Payloads:
    """Load every installed payload once; later calls answer from memory."""
    _launcher.set_errors(STATUS)
    found: dict[str, Payload] = {}
    rejected: list[Rejected] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            payload = load(entry)
            if payload.name in found:
                raise PayloadError(f"{found[payload.name].folder} is in use under the same name")
            found[payload.name] = payload
        except PayloadError as error:
            rejected.append(Rejected(entry.name, str(error)))
    return Payloads(found, tuple(rejected), _indices(found))


def load(entry: EntryPoint) -> Payload:
    """Load one payload: the module that the entry point names is the folder of its library and registry.

    Raises
    ------
    PayloadError
        The folder lacks a file, the library does not load, its ABI or its version differs from the core's, or the
        registry names other variants than the library.
    """
    name = entry.name
    folder = _folder(entry.value)
    if entry.dist is not None:
        _require_core_version(f"distribution {entry.dist.name}", entry.dist.version)
    try:
        registry = Registry.load(folder / "registry.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PayloadError(f"{folder / 'registry.json'} cannot be read: {error!r}") from error
    if registry.payload != name:
        raise PayloadError(f"{folder / 'registry.json'} describes payload {registry.payload}, not {name}")
    library = _launcher.Payload(str(folder / f"libmla_{name}.so"))
    _require_core_version(f"libmla_{name}.so", library.version)
    _require_same_variants(registry, library)
    return Payload(name, library.version, folder, registry, library)


def _folder(module: str) -> Path:
    try:
        spec = find_spec(module)
    except ImportError as error:
        raise PayloadError(f"module {module} cannot be found: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        raise PayloadError(f"module {module} is not an installed package")
    return Path(next(iter(spec.submodule_search_locations)))


def _require_core_version(what: str, version: str) -> None:
    if version != __version__:
        raise PayloadError(
            f"{what} is version {version}, mla-kernels is {__version__}; install the same version of both"
        )


def _require_same_variants(registry: Registry, library: _launcher.Payload) -> None:
    listed, exported = {variant.name for variant in registry.variants}, set(library.names)
    if listed != exported:
        only = ", ".join(sorted(listed ^ exported))
        raise PayloadError(f"registry.json and libmla_{registry.payload}.so do not hold the same variants: {only}")


def _indices(found: dict[str, Payload]) -> dict[str, Index]:
    return {
        op: Index(variant for payload in found.values() for variant in payload.registry.variants if variant.op == op)
        for op in _launcher.OPS
    }
