"""Why a config is served by one variant, or by none; the text of ``explain`` and of ``VariantNotFoundError``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mla_kernels.errors import DTypeError
from mla_kernels.payloads.discovery import Rejected, payloads
from mla_kernels.payloads.index import KEPT_OPEN
from mla_kernels.payloads.registry import Value, Variant
from mla_kernels.resolve.addition import addition, pairs
from mla_kernels.resolve.config import completed, with_defaults
from mla_kernels.resolve.obstacle import install, obstacle, runner

MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant that was not chosen, and the one reason."""

    variant: Variant
    reason: str

    def __str__(self) -> str:
        return f"{self.variant.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of a lookup.

    Attributes
    ----------
    op : str
    config : Mapping[str, str | int]
        What was asked for, defaults filled in.
    chosen : Variant or None
    reason : str
        Why it was chosen, or how near the search came.
    candidates : tuple[Candidate, ...]
        The nearest other variants, nearest first.
    command : str or None
        What would add a variant for the config, where the matrix allows one.
    refusal : str or None
        Why the matrix allows none, or why no payload serves the arch.
    obstacle : str or None
        Why this machine cannot run the arch: its driver, its devices, or a payload that is not in use.
    rejected : tuple[Rejected, ...]
        Payloads that are installed but not in use.
    """

    op: str
    config: Mapping[str, Value]
    chosen: Variant | None
    reason: str
    candidates: tuple[Candidate, ...]
    command: str | None
    refusal: str | None
    obstacle: str | None
    rejected: tuple[Rejected, ...]

    def __str__(self) -> str:
        lines = [self.reason, *(f"  {candidate}" for candidate in self.candidates)]
        if self.command:
            lines.append(f"to add it: {self.command}")
        if self.refusal:
            lines.append(f"it cannot be added: {self.refusal}" if self.candidates else self.refusal)
        if self.obstacle:
            lines.append(f"{'but ' * bool(self.chosen)}it cannot run here: {self.obstacle}")
        others = (each for each in self.rejected if each.reason not in (self.obstacle or ""))
        return "\n".join([*lines, *map(str, others)])

    def as_dict(self) -> dict[str, Any]:
        """The explanation in plain types, for JSON."""
        return {
            "op": self.op,
            "config": dict(self.config),
            "chosen": self.chosen.as_dict() if self.chosen else None,
            "reason": self.reason,
            "candidates": [{"name": each.variant.name, "reason": each.reason} for each in self.candidates],
            "command": self.command,
            "refusal": self.refusal,
            "obstacle": self.obstacle,
            "rejected": [{"payload": each.name, "reason": each.reason} for each in self.rejected],
        }


def explain(config: Mapping[str, object] | None = None, /, **fields: object) -> Explanation:
    """Say which variant serves a config and why, or why none does.

    Parameters
    ----------
    config : Mapping, optional
        The fields of ``lookup`` by name; they may be given as keywords instead.

    Returns
    -------
    Explanation
        Prints as text; ``chosen`` is the variant or ``None``.

    Raises
    ------
    ValueRangeError
        A field or value is not one that any variant could have.

    Examples
    --------
    >>> import mla_kernels as mla
    >>> print(mla.explain(op="decode", arch="cpu", q_dtype="bf16"))
    op=decode arch=cpu q_dtype=bf16 kv_dtype=bf16 out_dtype=bf16
    is served by cpu_decode_qbf16_kvbf16_obf16_direct_split: priority 0, the only match
    """
    if config is not None and not isinstance(config, Mapping):
        raise DTypeError("config", type(config).__name__, "a mapping from fields to values")
    wanted = completed({**(config or {}), **fields})
    return explained(str(wanted.pop("op")), wanted)


def explained(op: str, config: Mapping[str, Value]) -> Explanation:
    """Search the variants of ``op`` and say what was found."""
    installed = payloads()
    index = installed.indices[op]
    searched = with_defaults(config, index.fields)
    matching = index.matching(searched)
    asked = pairs({"op": op, **config})
    arch = str(config["arch"])
    stop = obstacle(arch)
    if matching:
        chosen, *others = matching
        reason = f"{asked}\nis served by {chosen.name}: priority {chosen.priority}, {_among(len(matching))}"
        candidates = tuple(Candidate(other, _also(other, chosen, config)) for other in others[:MOST_CANDIDATES])
        return Explanation(op, config, chosen, reason, candidates, None, None, stop, installed.rejected)
    registry = installed.registry_of(arch)
    if registry is None:
        reason = f"no variant serves {asked}"
        refusal = None if runner(arch) else _no_payload(arch)
        return Explanation(op, config, None, reason, (), None, refusal, stop, installed.rejected)
    every = index.nearest(searched, len(index.variants))
    own = [miss for miss in every if miss[0].arch == arch]
    nearest = (own or every)[:MOST_CANDIDATES]
    candidates = tuple(Candidate(variant, _miss(variant, field, searched[field])) for variant, field in nearest)
    reason = f"no variant serves {asked}" + ("; nearest:" if candidates else "")
    command, refusal = addition(op, searched, [variant for variant, _ in nearest], registry)
    return Explanation(op, config, None, reason, candidates, command or None, refusal or None, stop, installed.rejected)


def _no_payload(name: str) -> str | None:
    """Why no payload serves an arch; None where its payload is installed but was rejected, which is said of it."""
    installed = payloads()
    arch = installed.arch(name)
    if any(each.name in (name, arch and arch.payload) for each in installed.rejected):
        return None
    archs = ", ".join(payload.registry.arch for payload in installed.found.values())
    hint = f"; {install(arch)}" if arch else ""
    return f"no payload for arch {name} is installed; installed: {archs or 'none'}{hint}"


def _among(count: int) -> str:
    return "the only match" if count == 1 else f"the first of {count} matches"


def _also(other: Variant, chosen: Variant, config: Mapping[str, Value]) -> str:
    """That a variant matches too, and what to name for it to be preferred where its priority is higher."""
    limits = [
        f"{field} of {other.domain(field)}"
        for field in KEPT_OPEN
        if field not in config and other.domain(field) != chosen.domain(field)
    ]
    named = f", preferred if you name a {' and a '.join(limits)}" if other.priority > chosen.priority and limits else ""
    return f"matches too, priority {other.priority}{named}"


def _miss(variant: Variant, field: str, value: Value) -> str:
    domain = variant.domain(field)
    return f"{field} is {value}; accepts {domain}" if domain else f"it has no {field}"
