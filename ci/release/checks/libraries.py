"""Checks what the shared libraries of a wheel bind to."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from ci.release.wheelfile import Wheel
from ci.rows import Row

NEVER_NEEDED = re.compile(r"lib(torch|c10|cu|nv|python)")
MACHINE = {"x64": "x86_64", "AArch64": "aarch64"}


@cache
def policies() -> dict[str, dict[str, dict[str, set[str]]]]:
    """Return auditwheel's policies: by platform, then by machine, the versions that each prefix may have."""
    text = (resources.files("auditwheel") / "policy" / "manylinux-policy.json").read_text()
    return {
        name: {
            machine: {prefix: set(versions) for prefix, versions in allowed.items()}
            for machine, allowed in policy["symbol_versions"].items()
        }
        for policy in json.loads(text)
        for name in (policy["name"], *policy["aliases"])
    }


def versions(data: bytes) -> dict[str, set[str]]:
    """Return the symbol versions that a library needs, by prefix: ``{"GLIBC": {"2.17", ...}}``."""
    found: dict[str, set[str]] = {}
    for section in ELFFile(io.BytesIO(data)).iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, wanted in section.iter_versions():
                for one in wanted:
                    prefix, _, version = one.name.partition("_")
                    found.setdefault(prefix, set()).add(version)
    return found


def glibc(wheel: Wheel, _: Row) -> Iterator[str]:
    """No library needs a newer GLIBC, GLIBCXX or other versioned symbol than every platform of the tag has."""
    for path, data in wheel.libraries.items():
        machine = MACHINE.get(ELFFile(io.BytesIO(data)).get_machine_arch(), "another machine")
        for platform in wheel.platforms:
            name = platform.removesuffix(f"_{machine}")
            allowed = policies().get(name, {}).get(machine)
            if name == platform or allowed is None:
                yield f"{path} is for {machine}, for which {platform} is no platform of manylinux"
                continue
            for prefix, needed in sorted(versions(data).items()):
                for version in sorted(needed - allowed.get(prefix, needed)):
                    yield f"{path} needs {prefix}_{version}, which {platform} does not have"


def needed(wheel: Wheel, _: Row) -> Iterator[str]:
    """No library needs torch, CUDA, its driver or Python."""
    for path, data in wheel.libraries.items():
        for section in ELFFile(io.BytesIO(data)).iter_sections():
            if isinstance(section, DynamicSection):
                for entry in section.iter_tags("DT_NEEDED"):
                    name: str = vars(entry)["needed"]
                    if NEVER_NEEDED.match(name):
                        yield f"{path} needs {name}"
