"""A hash of the sources that a payload's library is built from, to be had without a compiler.

Libraries of equal sources, compilers and build folders are equal. Comments and layout do not count, and neither do
headers that the payload does not include, the launcher, or other payloads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
COMMENT = {
    "c": re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL),
    "hash": re.compile(r"""(?:^|(?<=\s))#[^\n]*|("(?:\\.|[^"\\])*")"""),
}
"""Comments, and literals that may look as if one began in them, which are kept."""
HASH_SUFFIXES = (".cmake", ".toml", ".txt")


def sources_sha256(package: Path, generated: Path, payload: str) -> str:
    """The hash of what a payload is built from.

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
    """The files by their path from the root: units and their headers, and what tells how to build them."""
    csrc, own = package / "csrc", generated / payload
    on_gpu = (own / "pyproject.toml").exists()
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
    """Units and all headers of ours that they include, one through another."""
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
    """A file's text without comments, its layout levelled."""
    comment = COMMENT["hash" if path.suffix in HASH_SUFFIXES else "c"]
    return " ".join(comment.sub(lambda found: found[1] or " ", path.read_text(encoding="utf-8")).split())
