"""Finds the installed payloads by entry point, at the first lookup, and says why those it cannot use were rejected.

No package is imported, and a library is mapped only after its distribution, version, ABI and hash were found right.
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mla_kernels import _launcher
from mla_kernels.errors import STATUS, PayloadError
from mla_kernels.payloads.distributions import CORE, OF_CORE, Installed, clash, installed, owner, plain, reinstall
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.json_fields import BROKEN
from mla_kernels.payloads.manifest import REGISTRY, Manifest, library_name
from mla_kernels.payloads.registry import Arch, Limits, Registry, Value
from mla_kernels.version import __version__

_ROOT = Path(__file__).parents[2]
"""The folder that ``mla_kernels`` is in."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where an entry point says that a payload is.

    Attributes
    ----------
    name : str
        Of the payload.
    module : str
        The package whose folder holds its library, its registry and its manifest.
    copy : Installed
        The distribution that it came with.
    fault : str or None
        Why that distribution cannot be used.
    """

    name: str
    module: str
    copy: Installed
    fault: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """A payload in use: the distribution that brought it, its registry, its manifest, and its loaded library.

    Another process that unpickles one gets the payload of that name which is installed there.
    """

    name: str
    distribution: str
    version: str
    folder: Path
    registry: Registry
    manifest: Manifest
    library: _launcher.Payload

    def kernel(self, variant: str, traits: Mapping[str, Value], *, limits: Limits) -> _launcher.Kernel:
        """The launcher's kernel of one variant, which takes the extents that ``limits`` states."""
        return self.library.kernel(variant, traits, limits, self.registry.device)

    def __reduce__(self) -> tuple[Callable[[str], Payload], tuple[str]]:
        return in_use, (self.name,)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A payload that is installed but not used, the distribution that brought it, and why."""

    name: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return f"payload {self.name} was rejected: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """Everything installed: payloads in use by name, the core's first; those rejected; an index of variants by op."""

    found: dict[str, Payload]
    rejected: tuple[Rejected, ...]
    indices: dict[str, Index]

    @property
    def archs(self) -> tuple[Arch, ...]:
        """Every arch of the matrix, in its order; what a payload says of its own arch counts."""
        registries = [payload.registry for payload in self.found.values()]
        listed = {arch.name: arch for registry in reversed(registries) for arch in registry.archs}
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
    return gather(sources(installed()))


def in_use(name: str) -> Payload:
    """The payload of that name.

    Raises
    ------
    PayloadError
        It is not installed, or was rejected.
    """
    if name not in payloads().found:
        reasons = [str(each) for each in payloads().rejected if each.name == name]
        raise PayloadError("; ".join(reasons) or f"payload {name} is not installed in this process's environment")
    return payloads().found[name]


def sources(found: Mapping[str, tuple[Installed, ...]]) -> tuple[Source, ...]:
    """Every payload that an entry point names, the core's first, then by name; nothing of it is opened."""
    core = clash(found, CORE)
    named: list[Source] = []
    for name, (copy, *_) in found.items():
        try:
            entries = copy.entries
        except configparser.Error as error:
            why = f"{copy.folder / 'entry_points.txt'} cannot be read: {error!a}; reinstall {name}, or remove it"
            named.append(Source(name, "", copy, why))
            continue
        fault = core or clash(found, name)
        named += (Source(payload, module, copy, _taken(payload, name) or fault) for payload, module in entries.items())
    return tuple(sorted(named, key=lambda source: (source.copy.name != CORE, source.name)))


def _taken(payload: str, distribution: str) -> str | None:
    if distribution == owner(payload):
        return None
    return (
        f"distribution {distribution} may not bring it, because only {owner(payload)} may bring a payload of this "
        f"name; remove it: pip uninstall {distribution}"
    )


def gather(named: Iterable[Source]) -> Payloads:
    """Load payloads, and keep the reason of each that cannot be used."""
    _launcher.set_errors(STATUS)
    found: dict[str, Payload] = {}
    rejected: list[Rejected] = []
    for source in named:
        try:
            payload = load(source)
            _require_own_arch(payload.registry, [each.registry for each in found.values()])
            found[source.name] = payload
        except Exception as error:  # whatever the files of one payload hold, the others stay in use
            reason = str(error) if isinstance(error, PayloadError) else f"it cannot be read: {error!r}"
            rejected.append(Rejected(source.name, source.copy.name, reason))
    return Payloads(found, tuple(rejected), _indices(found))


def load(source: Source) -> Payload:
    """Load one payload.

    Raises
    ------
    PayloadError
        Its distribution cannot be used, its folder lacks a file or holds one that is not what its manifest states, its
        library does not load, its ABI or its version differs from the core's, or the registry names other variants
        than the library.
    """
    if source.fault:
        raise PayloadError(source.fault)
    name, distribution = source.name, source.copy.name
    _require_core_version(f"distribution {distribution}", source.copy.version, distribution)
    try:
        folder = folder_of(source)
        manifest = _manifest(folder, name)
        registry = _registry(folder, name)
    except PayloadError as error:
        raise PayloadError(f"{error}; reinstall it: {reinstall(distribution)}") from error
    if manifest.abi_hash != _launcher.ABI_HASH:
        raise PayloadError(
            f"{folder} was built with ABI {manifest.abi_hash}, mla-kernels {__version__} with ABI "
            f"{_launcher.ABI_HASH}; install both from one source: {reinstall(CORE, distribution)}"
        )
    library = _launcher.Payload(str(folder / library_name(name)))
    _require_core_version(library_name(name), library.version, distribution)
    _require_same_variants(registry, library)
    return Payload(name, distribution, library.version, folder, registry, manifest, library)


def folder_of(source: Source) -> Path:
    """The folder of a payload, below the folder that its distribution is in; that of the core, beside the code in use.

    Raises
    ------
    PayloadError
        The entry point names no package that is there.
    """
    root = _ROOT if source.copy.name == CORE else source.copy.root
    parts = source.module.split(".")
    folder = root.joinpath(*parts)
    if not all(map(str.isidentifier, parts)) or not folder.is_dir():
        raise PayloadError(f"package {plain(source.module)} of distribution {source.copy.name} is not in {root}")
    return folder


def _manifest(folder: Path, name: str) -> Manifest:
    manifest = Manifest.load(folder)
    if manifest.payload != name:
        raise PayloadError(f"{folder / 'manifest.json'} describes payload {manifest.payload}, not {name}")
    if manifest.version != __version__:
        raise PayloadError(
            f"{folder / 'manifest.json'} is of version {manifest.version}, its distribution of {__version__}"
        )
    manifest.require_files(folder)
    return manifest


def _registry(folder: Path, name: str) -> Registry:
    path = folder / REGISTRY
    try:
        registry = Registry.load(path)
    except BROKEN as error:
        raise PayloadError(f"{path} cannot be read: {error!r}") from error
    if registry.payload != name:
        raise PayloadError(f"{path} describes payload {registry.payload}, not {name}")
    if others := {variant.arch for variant in registry.variants} - {registry.arch}:
        raise PayloadError(f"{path} of arch {registry.arch} has variants of {', '.join(sorted(others))}")
    return registry


def _require_own_arch(registry: Registry, used: Sequence[Registry]) -> None:
    """Require that no payload in use serves the arch of another one, and that the core gives it to no other."""
    served = {each.arch: each.payload for each in used}
    known = {arch.name: arch.payload for each in used if each.payload == OF_CORE for arch in each.archs}
    holder = (known | served).get(registry.arch, registry.payload)
    if holder != registry.payload:
        raise PayloadError(f"its registry claims arch {registry.arch}, which payload {holder} serves")


def _require_core_version(what: str, version: str, distribution: str) -> None:
    if version != __version__:
        raise PayloadError(
            f"{what} is version {version}, mla-kernels is {__version__}; install the same version of both: "
            f"{reinstall(CORE, distribution)}"
        )


def _require_same_variants(registry: Registry, library: _launcher.Payload) -> None:
    listed, exported = {variant.name for variant in registry.variants}, set(library.names)
    if listed != exported:
        only = ", ".join(sorted(listed ^ exported))
        raise PayloadError(f"registry.json and {library_name(registry.payload)} do not hold the same variants: {only}")


def _indices(found: dict[str, Payload]) -> dict[str, Index]:
    return {
        op: Index(variant for payload in found.values() for variant in payload.registry.variants if variant.op == op)
        for op in _launcher.OPS
    }
