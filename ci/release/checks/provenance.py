"""Checks what a wheel says of its build, manifest.json and the SBOM, against the wheel."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.version import Version

from ci.release.wheelfile import Wheel
from ci.rows import Row

STATIC_PARTS = {
    "CUTLASS": re.compile("cutlass", re.I),
    "the static CUDA runtime": re.compile("cud(a.?run.?time|art)", re.I),
}


def document(wheel: Wheel, row: Row, name: str) -> dict[str, Any]:
    """Return a JSON file of the payload's folder; empty where there is none."""
    data = wheel.files.get(f"{row.folder}/{name}", b"{}")
    found: dict[str, Any] = json.loads(data)
    return found


def manifest(wheel: Wheel, row: Row) -> Iterator[str]:
    """manifest.json has the wheel's version, its registry's payload, ABI and variants, and its files as they are."""
    if f"{row.folder}/manifest.json" not in wheel.files:
        yield f"{row.folder}/manifest.json is missing"
        return
    said, registry = document(wheel, row, "manifest.json"), document(wheel, row, "registry.json")
    for field, right in (
        ("version", str(wheel.version)),
        ("payload", registry["payload"]),
        ("abi_hash", registry["abi_hash"]),
    ):
        if said[field] != right:
            yield f"manifest.json says {field} {said[field]}, it is {right}"
    if registry["payload"] != row.payload:
        yield f"registry.json is of payload {registry['payload']}, not {row.payload}"
    for name in ("registry.json", f"libmla_{row.payload}.so"):
        if name not in said["files"]:
            yield f"manifest.json does not list {name}"
    for name, facts in said["files"].items():
        data = wheel.files.get(f"{row.folder}/{name}")
        if data is None:
            yield f"manifest.json lists {name}, which the wheel lacks"
        elif facts != {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}:
            yield f"manifest.json has another size or hash for {name}"
    wanted = {variant["name"] for variant in registry["variants"]}
    for name in sorted(wanted ^ said["variants"].keys()):
        yield f"variant {name} is only in {'registry' if name in wanted else 'manifest'}.json"


def sbom(wheel: Wheel, row: Row) -> Iterator[str]:
    """Every SBOM is valid CycloneDX; the wheel's own names it and, for a payload, its static parts with licences."""
    folder = f"{wheel.info}/sboms/"
    own = f"{folder}{row.distribution}.cdx.json"
    for path in sorted(path for path in wheel.files if path.startswith(folder)):
        yield from (f"{path}: {fault}" for fault in cyclonedx_faults(wheel.files[path]))
    if own not in wheel.files:
        yield f"{own} is missing"
        return
    said = json.loads(wheel.files[own])
    about = said.get("metadata", {}).get("component", {})
    if about.get("name") != row.distribution or Version(about.get("version", "0")) != wheel.version:
        yield f"{own} describes {about.get('name')} {about.get('version')}"
    licences, stated = (
        [each.get("expression") for each in about.get("licenses", [])],
        wheel.metadata["License-Expression"],
    )
    if licences != [stated]:
        yield f"{own} says licence {' and '.join(map(str, licences)) or 'nothing'}, METADATA {stated}"
    for component in said.get("components", []):
        if not component.get("licenses"):
            yield f"{own} gives no licence for {component['name']}"
    names = [f"{component['name']} {component.get('purl', '')}" for component in said.get("components", [])]
    for part, pattern in STATIC_PARTS.items():
        if not row.core and not any(pattern.search(name) for name in names):
            yield f"{own} does not list {part}"


def cyclonedx_faults(data: bytes) -> Iterator[str]:
    """Say what is wrong with a CycloneDX document."""
    try:
        schema = SchemaVersion.from_version(json.loads(data)["specVersion"])
        fault = JsonStrictValidator(schema).validate_str(data.decode())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"this is no CycloneDX document ({error!r})"
        return
    if fault is not None:
        yield str(getattr(fault.data, "message", fault)).splitlines()[0][:200]
