"""Reads the rows of ``ci/wheels.toml``: every wheel of the project."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "ci" / "wheels.toml"


@dataclass(frozen=True)
class Row:
    """A wheel: where its project lies, for what it is built, and what it must meet.

    ``tag`` is the Python and ABI part of its tag, ``identifiers`` are cibuildwheel's, ``limit_mb`` is in 10^6 bytes,
    ``smoke`` is a command that must succeed where the wheel was just installed, and ``added`` is a point of the matrix
    that is taken out and added again to measure what a row costs; without one, that is not measured.
    """

    distribution: str
    payload: str
    project: str
    tag: str
    identifiers: tuple[str, ...]
    shards: int
    limit_mb: float
    smoke: str
    added: str = ""

    @property
    def core(self) -> bool:
        """Whether this is the wheel that every payload requires."""
        return self.payload == "cpu"

    @property
    def package(self) -> str:
        """The top-level Python package, which is also how file names spell the distribution."""
        return self.distribution.replace("-", "_")

    @property
    def folder(self) -> str:
        """Where the payload's library, registry and manifest lie inside the wheel."""
        return f"{self.package}/payloads/{self.payload}" if self.core else self.package

    @property
    def library(self) -> str:
        """The payload's library inside the wheel."""
        return f"{self.folder}/libmla_{self.payload}.so"

    @property
    def machines(self) -> tuple[str, ...]:
        """The machine architectures that the identifiers name."""
        return tuple(identifier.partition("manylinux_")[2] for identifier in self.identifiers)


@cache
def rows() -> tuple[Row, ...]:
    """Return every row, in the table's order."""
    return tuple(Row(**{**row, "identifiers": tuple(row["identifiers"])}) for row in table()["wheel"])


def core() -> Row:
    """Return the row of the core wheel."""
    (row,) = (row for row in rows() if row.core)
    return row


def table() -> dict[str, Any]:
    """Return the parsed file."""
    return tomllib.loads(TABLE.read_text())
