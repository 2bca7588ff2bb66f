"""Hashes the sources that a payload's library is built from; this needs no compiler.

Libraries of equal sources and compilers are equal. Comments and layout do not count, and neither do
headers that the payload does not include, the launcher, other payloads, or what a project tells people.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
COMMENT = {
    "c": re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL),
    "hash": re.compile(r"""(?:^|(?<=\s))#[^\n]*|("(?:\\.|[^"\\])*")"""),
}
"""Literals are matched too, because a comment may seem to begin in one; they are kept."""
HASH_SUFFIXES = (".cmake", ".toml", ".txt")
TABLE = re.compile(r"^(?=\[)", re.MULTILINE)
VERSION = re.compile(r"^version = .*", re.MULTILINE)


def sources_sha256(package: Path, generated: Path, payload: str) -> str:
    """Return the hash of what a payload is built from.

    Parameters
    ----------
    package, generated : Path
        The folders of these names in a clone or an unpacked source distribution.
    payload : str
        Such as ``sm90``.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_files(package, generated, payload).items()):
        digest.update(f"{name}\0{_bare(path)}\0".encode())
    return digest.hexdigest()


def _files(package: Path, generated: Path, payload: str) -> dict[str, Path]:
    """Return units, their headers and the build rules, by their path from the root."""
    csrc, own = package / "csrc", generated / payload
    registry = json.loads((own / "registry.json").read_text(encoding="utf-8"))
    on_gpu = registry["arch"]["device"] == "cuda"
    folders = [csrc / "common", csrc / payload, *([csrc / "cuda"] if on_gpu else [])]
    units = [path for folder in (*folders, own) for path in folder.rglob("*") if path.suffix in (".cpp", ".cu")]
    rules = [package / "CMakeLists.txt", *(package / "cmake").iterdir(), own / "sources.cmake", own / "pyproject.toml"]
    rules += [path for folder in folders for path in folder.rglob("CMakeLists.txt")]
    found = _with_headers([*units, generated / "abi_layout.cpp"], (csrc, generated / "include"))
    roots = {package: "package", generated: "generated"}
    return {
        f"{name}/{path.relative_to(root).as_posix()}": path
        for path in {*found, *(rule for rule in rules if rule.exists())}
        for root, name in roots.items()
        if path.is_relative_to(root)
    }


def _with_headers(units: Iterable[Path], folders: tuple[Path, ...]) -> Iterator[Path]:
    """Find units and all headers of ours that they include, one through another."""
    pending, seen = list(units), set[Path]()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            pending += [folder / name for folder in folders if (folder / name).exists()]


def _bare(path: Path) -> str:
    """Return a file's text without comments, with single spaces for its layout."""
    comment = COMMENT["hash" if path.suffix in HASH_SUFFIXES else "c"]
    text = path.read_text(encoding="utf-8")
    if path.name == "pyproject.toml":
        text = _that_builds(text)
    return " ".join(comment.sub(lambda found: found[1] or " ", text).split())


def _that_builds(project: str) -> str:
    """Keep of a project the tools that it requires, its settings of the build, and the version that is compiled in."""
    kept = [table for table in TABLE.split(project) if table.startswith(("[build-system]", "[tool.scikit-build]"))]
    return "".join([*kept, *VERSION.findall(project)])
