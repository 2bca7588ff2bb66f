"""The rows of the committed registries: what there is to test, and where it can run."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from mla_kernels.formats import WIDTHS, CacheFormat, format_named

GENERATED = Path(__file__).resolve().parents[2] / "generated"


@dataclass(frozen=True)
class Row:
    """One variant."""

    name: str
    op: str
    arch: str
    device: str
    traits: tuple[tuple[str, str], ...]
    accepts: tuple[tuple[str, Any], ...] = field(default=(), hash=False)

    def serves(self, **config: int | str) -> bool:
        """Whether the variant accepts all of these at run time."""
        accepted = dict(self.accepts)
        return all(_within(value, accepted[name]) for name, value in config.items())

    def most(self, name: str) -> int:
        """Return the end of the range that the variant accepts, 2^31 - 1 where the range has none."""
        return int(dict(self.accepts)[name].get("max", 2**31 - 1))

    def heads(self, wanted: int) -> int:
        """Return a number of heads that the variant takes: the one that is wanted, or the most."""
        return wanted if self.serves(num_heads=wanted) else self.most("num_heads")

    @property
    def form(self) -> CacheFormat:
        """The format of the cache that the variant reads or writes."""
        traits = dict(self.traits)
        return format_named(traits["kv_dtype"], int(traits["d_qk"]), int(traits["d_v"]))

    @property
    def extra_form(self) -> CacheFormat:
        """The format of the second cache that the variant reads."""
        traits, form = dict(self.traits), self.form
        name = traits.get("extra_kv_dtype", "same")
        return form if name == "same" else format_named(name, form.d_qk, form.d_v)

    @property
    def rounds_to_e4m3(self) -> bool:
        """Whether the variant multiplies in e4m3, to which it rounds Q and P."""
        return dict(self.traits).get("compute_dtype") == "e4m3"

    @property
    def has_usual_widths(self) -> bool:
        """Whether a row of its cache has the columns of DeepSeek V3."""
        traits = dict(self.traits)
        return all(traits.get(name, width) == width for name, width in WIDTHS.items())

    def __getattr__(self, trait: str) -> str:
        for name, value in self.traits:
            if name == trait:
                return value
        raise AttributeError(trait)


def _within(value: int | str, accepted: Any) -> bool:
    if isinstance(accepted, list):
        return value in accepted
    number = int(value)
    in_range = accepted["min"] <= number <= accepted.get("max", number)
    return in_range and number % accepted.get("multiple_of", 1) == 0


@dataclass(frozen=True)
class Arch:
    """What the variants of one registry run on."""

    name: str
    device: str
    capabilities: tuple[str, ...]

    def absence(self) -> str | None:
        """Return why nothing of this arch can run here, or None."""
        if self.device == "cpu":
            return None
        if not torch.cuda.is_available():
            return f"{self.name}: no CUDA device"
        major, minor = torch.cuda.get_device_capability()
        if f"{major}.{minor}" not in self.capabilities:
            return f"{self.name}: the device has capability {major}.{minor}"
        return None


@functools.cache
def _registries() -> tuple[tuple[Arch, tuple[Row, ...]], ...]:
    found = []
    for path in sorted(GENERATED.glob("*/registry.json")):
        registry = json.loads(path.read_text())
        about = registry["arch"]
        arch = Arch(about["name"], about["device"], tuple(map(str, about["capabilities"])))
        variants = tuple(
            Row(
                v["name"],
                v["op"],
                arch.name,
                arch.device,
                traits=tuple(sorted(v["baked"].items())),
                accepts=tuple(sorted(v["accepts"].items())),
            )
            for v in registry["variants"]
        )
        found.append((arch, variants))
    if not found:
        raise FileNotFoundError(f"no registry.json below {GENERATED}; run nox -s generate")
    return tuple(found)


def archs() -> tuple[Arch, ...]:
    """Return every arch that has a registry, whether or not its hardware is here."""
    return tuple(arch for arch, _ in _registries())


def arch(name: str) -> Arch:
    """Return the arch called ``name``."""
    return next(arch for arch in archs() if arch.name == name)


def rows(op: str) -> tuple[Row, ...]:
    """Return every variant of ``op``."""
    return tuple(row for _, variants in _registries() for row in variants if row.op == op)


@functools.cache
def row(name: str) -> Row:
    """Return the variant called ``name``."""
    return next(row for _, variants in _registries() for row in variants if row.name == name)
