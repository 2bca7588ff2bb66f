"""Compares installed files with the hashes that their distribution's ``RECORD`` states."""

from __future__ import annotations

import csv
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from mla_kernels.payloads.distributions import Installed
from mla_kernels.payloads.manifest import sha256

SHA256 = "sha256="


def recorded(copy: Installed) -> dict[Path, str]:
    """The sha256 of each file of a distribution in ``RECORD``'s own encoding; empty without a ``RECORD``.

    Raises
    ------
    csv.Error
        It is no table.
    """
    rows = csv.reader(copy.text("RECORD").splitlines())
    hashed = (row for row in rows if len(row) > 1 and row[1].startswith(SHA256))
    return {(copy.root / name).resolve(): stated.removeprefix(SHA256) for name, stated, *_ in hashed}


def altered(record: Mapping[Path, str]) -> dict[Path, str]:
    """The files that are not what was installed, each with the reason."""
    found = ((path, _difference(path, stated)) for path, stated in record.items())
    return {path: why for path, why in found if why}


def _difference(path: Path, stated: str) -> str | None:
    try:
        found = urlsafe_b64encode(bytes.fromhex(sha256(path))).decode().rstrip("=")
    except OSError as error:
        return f"{path} cannot be read: {error!r}"
    return None if found == stated.rstrip("=") else f"{path} differs from RECORD"
