"""The models of ``models.toml``: the attention that the layers of each ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

DEGREES = (1, 2, 4, 8)
"""The degrees of tensor parallelism that pages and tests go through."""


@dataclass(frozen=True, slots=True)
class Model:
    """One row: the attention of a model's layers in the absorbed form.

    Attributes
    ----------
    name, organisation : str
    heads : int
        Query heads of the whole model.
    d_qk, d_v : int
        Columns of a query, and of its value.
    formats : tuple[str, ...]
        How engines store its cache.
    source : str
        Where the row was read.
    topk : int
        Tokens that a query attends to; 0 where it attends to all.
    sink : bool
        Whether the softmax has a learned logit without a value.
    also : tuple[str, ...]
        Other models with the same attention.
    """

    name: str
    organisation: str
    heads: int
    d_qk: int
    d_v: int
    formats: tuple[str, ...]
    source: str
    topk: int = 0
    sink: bool = False
    also: tuple[str, ...] = ()

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees of tensor parallelism that divide the heads."""
        return tuple(degree for degree in DEGREES if self.heads % degree == 0)


@dataclass(frozen=True, slots=True)
class Models:
    """The rows, and the cache formats that no kernel here reads, each with what it is."""

    rows: tuple[Model, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


def parse(file: Mapping[str, Any]) -> Models:
    """``models.toml`` as the model.

    Raises
    ------
    KeyError, TypeError
        A row lacks a field or has one that models do not know; the message names the row.
    """
    return Models(tuple(_model(number, row) for number, row in enumerate(file["model"], 1)), dict(file["unread"]))


def _model(number: int, row: Mapping[str, Any]) -> Model:
    try:
        listed = {name: tuple(row[name]) for name in ("formats", "also") if name in row}
        return Model(**{**row, **listed})
    except TypeError as error:
        raise TypeError(f"models.toml: model row {number} ({row.get('name', 'no name')}): {error}") from error


def problems(models: Models, formats: Iterable[str]) -> list[str]:
    """One line for each thing that is wrong with a row; ``formats`` are the names of ``formats.toml``."""
    known, unread = set(formats), set(models.unread)
    used = {name for model in models.rows for name in model.formats}
    found = [f"models.toml: [unread] {name}: no model stores its cache so" for name in sorted(unread - used)]
    found += [f"models.toml: {model.name}: {why}" for model in models.rows for why in _row(model, known | unread)]
    return found + list(_twins(models.rows))


def _row(model: Model, formats: set[str]) -> Iterator[str]:
    for each in fields(Model):
        value, wanted = getattr(model, each.name), str(each.type)
        if type(value).__name__ != wanted.partition("[")[0]:
            yield f"{each.name} = {value!r}; accepts {wanted}"
            return
    for name in ("heads", "d_qk", "d_v"):
        if getattr(model, name) < 1:
            yield f"{name} = {getattr(model, name)}; accepts integers from 1"
    if model.topk < 0:
        yield f"topk = {model.topk}; accepts integers from 0"
    if model.d_v > model.d_qk:
        yield f"d_v = {model.d_v}; accepts 1 to d_qk = {model.d_qk}"
    if not model.formats:
        yield "formats: accepts at least one"
    for name in model.formats:
        if name not in formats:
            yield f"format {name}; accepts {', '.join(sorted(formats))}, or a name that [unread] explains"
    if not model.source:
        yield "source: accepts where the row was read"


def _twins(rows: Iterable[Model]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for model in rows:
        for name in (model.name, *model.also):
            if name.lower() in seen:
                yield f"models.toml: {model.name}: {name} is a name of {seen[name.lower()]}"
            seen.setdefault(name.lower(), model.name)
