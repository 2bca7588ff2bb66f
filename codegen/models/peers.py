"""The kernels of ``peers.toml``: what other packages serve of the attention that models ask for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from codegen.models import Models
from codegen.schema.lines import line_of


@dataclass(frozen=True, slots=True)
class Attention:
    """What the decode of a layer asks for: the question that our kernels and those of others answer.

    Attributes
    ----------
    sparse : bool
        Whether a query attends to selected tokens only.
    d_qk, d_v : int
        Columns of a query, and of its value.
    format, extra_format : str
        How the cache is stored, and the second cache, where that is another format; otherwise empty.
    """

    sparse: bool
    d_qk: int
    d_v: int
    format: str
    extra_format: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """One row: kernels of another package.

    Attributes
    ----------
    name : str
    arch : str
        What they run on.
    d_qk, d_v : int
        Columns of a query, and of its value.
    formats : tuple[str, ...]
        Formats of the cache that they read.
    source : str
        A name of ``Peers.sources``.
    sparse : bool
        Whether they attend to selected tokens.
    """

    name: str
    arch: str
    d_qk: int
    d_v: int
    formats: tuple[str, ...]
    source: str
    sparse: bool = False

    def serves(self, attention: Attention) -> bool:
        """Whether they compute it; of two caches they must read both formats."""
        asked = {attention.format, attention.extra_format} - {""}
        shape = (attention.sparse, attention.d_qk, attention.d_v)
        return (self.sparse, self.d_qk, self.d_v) == shape and asked <= set(self.formats)


@dataclass(frozen=True, slots=True)
class Source:
    """What was read, and on which day."""

    text: str
    read: str


@dataclass(frozen=True, slots=True)
class Peers:
    """The rows, where they were read, and the file as it is written."""

    rows: tuple[Peer, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    text: str = ""

    def where(self, *path: str | int) -> str:
        """The file and the line of a row or a table."""
        return f"peers.toml:{line_of(self.text, path)}"


def parse(text: str) -> Peers:
    """``peers.toml``, which has the form of the schema, as the model."""
    tables = tomllib.loads(text)
    rows = (Peer(**row | {"formats": tuple(row["formats"])}) for row in tables.get("peer", []))
    sources = {name: Source(**stated) for name, stated in tables.get("peer_source", {}).items()}
    return Peers(tuple(rows), sources, text)


def asked(models: Models) -> dict[Attention, list[str]]:
    """Each attention that a model asks for, in the order of the rows, with the names of these models."""
    found: dict[Attention, list[str]] = {}
    for model in models.rows:
        for name in model.formats:
            attention = Attention(bool(model.topk), model.d_qk, model.d_v, name, model.extra_format)
            found.setdefault(attention, []).append(model.name)
    return found


def problems(peers: Peers, models: Models, archs: Iterable[str]) -> list[str]:
    """One line for each thing that is wrong with a row or a source."""
    known, used = list(archs), {peer.source for peer in peers.rows}
    found = [
        f"{peers.where('peer_source', name)}: peer_source.{name}: no row names it"
        for name in peers.sources
        if name not in used
    ]
    for number, peer in enumerate(peers.rows):
        found += [
            f"{peers.where('peer', number)}: {peer.name}: {fault}" for fault in _faults(peer, peers, models, known)
        ]
    return found


def _faults(peer: Peer, peers: Peers, models: Models, archs: list[str]) -> Iterator[str]:
    if peer.arch not in archs:
        yield f"arch: got {peer.arch!r}; accepts {', '.join(archs)}"
    if peer.source not in peers.sources:
        yield f"source: got {peer.source!r}; accepts {', '.join(peers.sources)}"
    read = {name for attention in asked(models) if peer.serves(attention) for name in _formats(attention)}
    for name in peer.formats:
        if name not in read:
            yield f"format {name}: no model asks for it with these widths; leave it out"


def _formats(attention: Attention) -> tuple[str, str]:
    return attention.format, attention.extra_format
