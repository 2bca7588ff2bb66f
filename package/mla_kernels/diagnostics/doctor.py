"""Examines an installation: what is installed, whether its files are those that were built, and whether it computes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mla_kernels import _launcher
from mla_kernels.devices import machine
from mla_kernels.devices.driver import driver
from mla_kernels.diagnostics import smoke_test
from mla_kernels.diagnostics.memory import lacks_memory
from mla_kernels.errors import InvalidArgumentError, PayloadError
from mla_kernels.payloads.discovery import Payload, Payloads, Source, folder_of, gather, sources
from mla_kernels.payloads.distributions import CORE, Installed, clash, foreign, installed, owner, reinstall
from mla_kernels.payloads.json_fields import BROKEN
from mla_kernels.payloads.manifest import NAME, REGISTRY, Manifest, library_name
from mla_kernels.payloads.registry import Registry
from mla_kernels.payloads.wheel_record import altered, recorded
from mla_kernels.version import __version__

State = Literal["ok", "note", "fault", "not run"]
Copies = Mapping[str, tuple[Installed, ...]]


@dataclass(frozen=True, slots=True)
class Check:
    """What was examined, the outcome, and what was found: where that is not ok, why, and what to do."""

    name: str
    state: State
    detail: str


def examine() -> tuple[Check, ...]:
    """Examine all that is installed; what lookups have loaded is left alone.

    A payload whose files are not those that were built is not loaded, because that can end the process.
    """
    found = installed()
    named = sources(found)
    own = [source for source in named if source.copy.name == owner(source.name)]
    ours = {source.copy.name for source in own}
    files = [_record(found[name][0], own) for name in found if name in ours] + [_manifest(source) for source in own]
    damaged = frozenset[Path]().union(*(paths for _, paths in files))
    unsound = [source for source in own if damaged.intersection(_files(source))]
    used = gather(source for source in named if source not in unsound)
    return (
        _core(found),
        *(_found_once(found, name) for name in found),
        *(check for check, _ in files),
        _driver(named, used),
        *_loaded(used, unsound),
        *(check for payload in used.found.values() for check in _launched(payload, used)),
    )


def _core(found: Copies) -> Check:
    """Whether the code in use is that of the distribution."""
    name = "core"
    if CORE not in found:
        return Check(name, "fault", f"no distribution {CORE} names a payload; reinstall it: {reinstall(CORE)}")
    root = found[CORE][0].root.resolve()
    launcher = Path(_launcher.__file__).resolve()
    if not launcher.is_relative_to(root):
        why = f"{launcher} is in use, but the distribution {CORE} lies in {root}"
        return Check(name, "fault", f"{why}; take the other copy off sys.path, or remove it")
    return Check(name, "ok", f"{CORE} {__version__}, launcher of ABI {_launcher.ABI_HASH} in {launcher.parent}")


def _found_once(found: Copies, name: str) -> Check:
    first, *hidden = found[name]
    if why := clash(found, name):
        return Check(f"distribution {name}", "note" if foreign(name) else "fault", why)
    also = "".join(f"; the same version in {copy.folder.parent} is not used" for copy in hidden)
    return Check(f"distribution {name}", "ok", f"version {first.version} in {first.folder.parent}{also}")


def _record(copy: Installed, named: Sequence[Source]) -> tuple[Check, frozenset[Path]]:
    """Compare a distribution's files with its ``RECORD``; those that differ come with the check."""
    name = f"files of {copy.name}"
    mend = f"reinstall it: {reinstall(copy.name)}"
    try:
        record = recorded(copy)
    except (csv.Error, ValueError, RuntimeError) as error:
        return Check(name, "fault", f"{copy.folder / 'RECORD'} cannot be read: {error}; {mend}"), frozenset()
    if not record:
        why = f"{copy.folder / 'RECORD'} is missing or states no sha256, so there is nothing to compare with; {mend}"
        return Check(name, "not run", why), frozenset()
    own = [path for source in named if source.copy is copy for path in _files(source)]
    differing = altered(record) | {path: f"{path} is not in RECORD" for path in own if path not in record}
    if differing:
        return Check(name, "fault", f"{'; '.join(differing.values())}; {mend}"), frozenset(differing)
    return Check(name, "ok", f"{len(record)} files have the sha256 that RECORD states"), frozenset()


def _manifest(source: Source) -> tuple[Check, frozenset[Path]]:
    """Compare a payload's files with its manifest; those that differ come with the check."""
    name = f"manifest of {source.name}"
    mend = f"reinstall it: {reinstall(source.copy.name)}"
    try:
        folder = folder_of(source)
        manifest = Manifest.load(folder)
    except PayloadError as error:
        return Check(name, "fault", f"{error}; {mend}"), frozenset()
    differing = manifest.altered(folder)
    if differing:
        damaged = frozenset(path.resolve() for path in differing)
        return Check(name, "fault", f"{'; '.join(differing.values())}; {mend}"), damaged
    try:
        variants = {variant.name for variant in Registry.load(folder / REGISTRY).variants}
    except BROKEN as error:
        return Check(name, "fault", f"{folder / REGISTRY} cannot be read: {error!r}; {mend}"), frozenset()
    if unlike := variants ^ manifest.variants:
        which = f"{NAME} and {REGISTRY} do not hold the same variants: {', '.join(sorted(unlike))}"
        return Check(name, "fault", f"{which}; {mend}"), frozenset()
    said = f"{len(variants)} variants of commit {manifest.revision or 'unknown'}; library and registry have its sha256"
    return Check(name, "ok", said), frozenset()


def _files(source: Source) -> tuple[Path, ...]:
    """The files that a payload consists of; none where its folder cannot be found."""
    try:
        folder = folder_of(source).resolve()
    except PayloadError:
        return ()
    return tuple(folder / name for name in (library_name(source.name), REGISTRY, NAME))


def _driver(named: Sequence[Source], used: Payloads) -> Check:
    """What the CUDA driver says; that it cannot run a GPU payload is a fault where the machine has a GPU."""
    asked = driver()
    if asked.state == "ready":
        gpus = ", ".join(str(each) for each in machine.gpus(used.archs))
        return Check("CUDA driver", "ok", f"it serves CUDA {asked.version}; {gpus}")
    host = {payload.name for payload in used.found.values() if payload.registry.device == machine.HOST}
    idle = sorted({source.name for source in named} - host - {machine.HOST})
    if asked.state in ("outdated", "failed") and idle:
        return Check("CUDA driver", "fault", f"{asked.reason}; {', '.join(idle)} cannot run until that is mended")
    return Check("CUDA driver", "not run", asked.reason)


def _loaded(used: Payloads, unsound: Sequence[Source]) -> Iterator[Check]:
    for payload in used.found.values():
        use = f"in use for arch {payload.registry.arch}, of distribution {payload.distribution}, from {payload.folder}"
        yield Check(f"payload {payload.name}", "ok", use)
    for rejected in used.rejected:
        whose = "" if rejected.distribution == owner(rejected.name) else f" of {rejected.distribution}"
        # What a stranger calls by its own name, its broken metadata too, keeps no payload of ours from its use.
        harmless = foreign(rejected.distribution) and rejected.name == rejected.distribution
        state: State = "note" if harmless else "fault"
        yield Check(f"payload {rejected.name}{whose}", state, f"rejected: {rejected.reason}")
    for source in unsound:
        yield Check(f"payload {source.name}", "not run", "not loaded, because its files differ from what was built")


def _launched(payload: Payload, used: Payloads) -> Iterator[Check]:
    """Launch on each device here that runs the payload."""
    name = f"launch of {payload.name}"
    arch = used.arch(payload.registry.arch)
    if arch is None or arch.device == machine.HOST:
        yield _launch(name, payload, None)
    elif why := machine.obstacle(arch, used.archs):
        yield Check(name, "not run", why)
    else:
        able = [gpu for gpu in machine.gpus([arch]) if gpu.arch]
        for gpu in able:
            yield _launch(f"{name} on cuda:{gpu.ordinal}" if len(able) > 1 else name, payload, gpu.ordinal)


def _launch(name: str, payload: Payload, ordinal: int | None) -> Check:
    """Launch one token on a device; whatever the launch raises is a fault."""
    try:
        return Check(name, "ok", smoke_test.launch(payload, ordinal))
    except smoke_test.NotRunError as error:
        return Check(name, "not run", str(error))
    except Exception as error:
        return Check(name, "fault", _fault(error))


def _fault(error: Exception) -> str:
    """What a launch raised, and what to do; an argument that was refused says that itself."""
    why = str(error) if isinstance(error, smoke_test.WrongResultError) else f"{type(error).__name__}: {error}"
    if isinstance(error, InvalidArgumentError):
        return why
    if lacks_memory(error):
        return f"{type(error).__name__}: {': '.join(map(str, error.args))}; free memory of the device, and try again"
    return f"{why}; its files are those that were built: please report it"
