"""Checks what a wheel holds and says of itself: tag, record, files, licences, requirements and size."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from ci.release.wheelfile import Wheel
from ci.rows import Row, core, rows

SOURCES = re.compile(r"\.(c|cc|cpp|cu|cuh|h|hpp|j2|cmake|o|a|toml)$|/CMakeLists\.txt$")
FOREIGN_ABI = re.compile(r"\.(cpython-\w+|cp\d+|pypy\w+)[-\w]*\.(so|pyd)$|\.(pyd|dll|dylib)$")
EXTENSION_MODULE = re.compile(r"\.abi3\.so$")
UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")


def tag(wheel: Wheel, row: Row) -> Iterator[str]:
    """WHEEL's tags are the file name's, and these are the row's."""
    said = frozenset().union(*(parse_tag(value) for value in wheel.wheel.get_all("Tag", [])))
    if said != wheel.tags:
        names = ", ".join(sorted(map(str, said))) or "none"
        yield f"WHEEL is tagged {names}, the file name {', '.join(sorted(map(str, wheel.tags)))}"
    if wheel.wheel["Root-Is-Purelib"] != "false":
        yield "WHEEL says Root-Is-Purelib, but the wheel holds libraries"
    for own in sorted(wheel.tags, key=str):
        if f"{own.interpreter}-{own.abi}" != row.tag:
            yield f"tag {own} is not {row.tag}-*"
        if not own.platform.startswith("manylinux") or not own.platform.endswith(row.machines):
            yield f"platform {own.platform} is not manylinux on {' or '.join(row.machines)}"


def record(wheel: Wheel, _: Row) -> Iterator[str]:
    """RECORD lists every file with its size and SHA-256."""
    if f"{wheel.info}/RECORD" not in wheel.files:
        yield "RECORD is missing"
        return
    lines = wheel.files[f"{wheel.info}/RECORD"].decode().splitlines()
    listed = {path: (digest, size) for path, digest, size in csv.reader(lines)}
    unrecorded = {f"{wheel.info}/{name}" for name in UNRECORDED}
    for path, data in wheel.files.items():
        if path in unrecorded:
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if path not in listed:
            yield f"RECORD lacks {path}"
        elif listed[path] != (f"sha256={digest}", str(len(data))):
            yield f"RECORD has another hash or size for {path}"
    for path in sorted(listed.keys() - wheel.files.keys()):
        yield f"RECORD lists {path}, which the wheel lacks"
    for path in wheel.repeated:
        yield f"the archive holds {path} twice"


def files(wheel: Wheel, row: Row) -> Iterator[str]:
    """The wheel holds the package and its metadata, but no byte code, sources or modules of another ABI."""
    for path in sorted(wheel.files):
        if path.split("/")[0] not in {row.package, wheel.info} or ".." in path.split("/"):
            yield f"{path} lies outside {row.package}"
        elif path.endswith((".pyc", ".pyo")) or "__pycache__" in path:
            yield f"{path} is byte code"
        elif FOREIGN_ABI.search(path):
            yield f"{path} is a module for one Python only, in a wheel tagged {row.tag}"
        elif EXTENSION_MODULE.search(path) and not row.core:
            yield f"{path} is a Python extension, in a wheel tagged {row.tag}"
        elif SOURCES.search(path) and not path.startswith(f"{wheel.info}/"):
            yield f"{path} is source or build output"
    wanted = [row.library, f"{row.folder}/registry.json", *([f"{row.package}/py.typed"] if row.core else [])]
    for path in wanted:
        if path not in wheel.files:
            yield f"{path} is missing"


def licences(wheel: Wheel, _: Row) -> Iterator[str]:
    """The wheel has a licence expression, and every licence file that METADATA names, and no other (PEP 639)."""
    if not wheel.metadata["License-Expression"]:
        yield "METADATA has no License-Expression"
    named = {f"{wheel.info}/licenses/{name}" for name in wheel.values("License-File")}
    there = {path for path in wheel.files if path.startswith(f"{wheel.info}/licenses/")}
    if not named:
        yield "METADATA names no License-File"
    for path in sorted(named ^ there):
        yield f"{path} is {'named in METADATA but missing' if path in named else 'there but not named in METADATA'}"
    for path in sorted(named & there):
        if not wheel.files[path].strip():
            yield f"{path} is empty"


def requirements(wheel: Wheel, row: Row) -> Iterator[str]:
    """A payload requires exactly the core of its version; the core offers an extra for every payload of its version."""
    required = [Requirement(text) for text in wheel.values("Requires-Dist")]
    exactly = SpecifierSet(f"=={wheel.version}")

    def has(distribution: str, extra: str) -> bool:
        return any(
            canonicalize_name(one.name) == distribution
            and one.specifier == exactly
            and (one.marker.evaluate({"extra": extra}) if one.marker else not extra)
            for one in required
        )

    if not wheel.metadata["Requires-Python"]:
        yield "METADATA has no Requires-Python"
    if not row.core:
        if not has(core().distribution, ""):
            yield f"METADATA does not require {core().distribution}=={wheel.version}"
        return
    for one in rows():
        if not one.core and not has(one.distribution, one.payload):
            yield f"METADATA has no extra {one.payload} that requires {one.distribution}=={wheel.version}"


def size(wheel: Wheel, row: Row) -> Iterator[str]:
    """The wheel is no larger than its row allows."""
    found = wheel.path.stat().st_size / 1e6
    if found > row.limit_mb:
        yield f"it has {found:.2f} MB, more than the {row.limit_mb} MB of ci/wheels.toml"
