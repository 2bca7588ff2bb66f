"""Reads a payload's ``manifest.json``: what its build made, down to the size and hash of its two files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_kernels.errors import PayloadError
from mla_kernels.payloads.json_fields import BROKEN, typed

NAME = "manifest.json"
REGISTRY = "registry.json"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class File:
    """The size and hash of a file as it was built."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """What one payload's ``manifest.json`` says.

    Attributes
    ----------
    payload, version, abi_hash : str
    commit : str or None
        Of the sources; None where they lay in no repository.
    dirty : bool
        Whether the sources differed from the commit.
    files : Mapping[str, File]
        The library and the registry by name.
    variants : frozenset[str]
    """

    payload: str
    version: str
    abi_hash: str
    commit: str | None
    dirty: bool
    files: Mapping[str, File]
    variants: frozenset[str]

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest in the folder of a payload.

        Raises
        ------
        PayloadError
            There is none, it is no JSON, or it lacks a field.
        """
        path = folder / NAME
        try:
            return cls.parse(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise PayloadError(f"{path} is missing") from error
        except BROKEN as error:
            raise PayloadError(f"{path} cannot be read: {error!r}") from error

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Manifest:
        """Build a manifest from parsed JSON; ``ValueError``, ``KeyError`` or ``TypeError`` for one of another form."""
        payload, commit = typed(document["payload"], str), document["commit"]
        return cls(
            payload=payload,
            version=typed(document["version"], str),
            abi_hash=typed(document["abi_hash"], str),
            commit=None if commit is None else typed(commit, str),
            dirty=typed(document["dirty"], bool),
            files={name: _file(document["files"][name]) for name in (library_name(payload), REGISTRY)},
            variants=frozenset(typed(document["variants"], dict)),
        )

    @property
    def revision(self) -> str | None:
        """The commit in short, and ``+dirty`` where the sources differed from it."""
        return self.commit and f"{self.commit[:12]}{'+dirty' * self.dirty}"

    def require_files(self, folder: Path) -> None:
        """Require that both files are those that were built, before one is parsed and the other mapped.

        Raises
        ------
        PayloadError
            A file is missing, or has another size or hash.
        """
        for name, stated in self.files.items():
            if why := _difference(folder / name, stated):
                raise PayloadError(why)

    def altered(self, folder: Path) -> dict[Path, str]:
        """The files whose content is not what was built, each with the reason; every byte is read."""
        found = ((folder / name, _difference(folder / name, stated)) for name, stated in self.files.items())
        return {path: why for path, why in found if why}


def library_name(payload: str) -> str:
    """The file name of a payload's library."""
    return f"libmla_{payload}.so"


def sha256(path: Path) -> str:
    """The hash of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _difference(path: Path, stated: File) -> str | None:
    try:
        size = path.stat().st_size
        found = sha256(path) if size == stated.bytes else ""
    except OSError as error:
        return f"{path} cannot be read: {error!r}; {NAME} states {stated.bytes} bytes"
    if not found:
        why = "truncated" if size < stated.bytes else "of another build"
        return f"{path} has {size} bytes, {NAME} states {stated.bytes}: it is {why}"
    if found != stated.sha256:
        return f"{path} has sha256 {found[:12]}, {NAME} states {stated.sha256[:12]}: it is damaged or of another build"
    return None


def _file(stated: Mapping[str, Any]) -> File:
    return File(typed(stated["bytes"], int), typed(stated["sha256"], str))
