"""The models of ``models.toml``: the attention that the layers of each ask for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from codegen.schema.lines import line_of

DEGREES = (1, 2, 4, 8, 16)
"""The degrees of tensor parallelism that pages and tests go through."""

EVERY = "every"
"""What ``unserved`` has in place of the name of an arch where it means all of them."""


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
    window : int
        Those of them that are the latest tokens; 0 where there is no sliding window.
    q_lens : tuple[int, ...]
        Query tokens of a decode step with the model's own draft heads, for each kind of heads: 1 + drafts. Empty where
        no source says it.
    sink : bool
        Whether the softmax has a learned logit without a value.
    extra_format : str
        How engines store its second cache, where that is another format than the first one's; otherwise empty.
    also : tuple[str, ...]
        Other models with the same attention.
    unserved : tuple[tuple[str, str], ...]
        Archs of which no kernel serves it at some degree, or ``EVERY``, and why.
    sources : tuple[tuple[str, str], ...]
        Fields that were read elsewhere, and where.
    """

    name: str
    organisation: str
    heads: int
    d_qk: int
    d_v: int
    formats: tuple[str, ...]
    source: str
    topk: int = 0
    window: int = 0
    q_lens: tuple[int, ...] = ()
    sink: bool = False
    extra_format: str = ""
    also: tuple[str, ...] = ()
    unserved: tuple[tuple[str, str], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def caches(self) -> tuple[str, ...]:
        """Every format in which one of its caches is stored."""
        return (*self.formats, self.extra_format) if self.extra_format else self.formats

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees of tensor parallelism that divide the heads."""
        return tuple(degree for degree in DEGREES if self.heads % degree == 0)


@dataclass(frozen=True, slots=True)
class Models:
    """The rows, the cache formats that no kernel here reads, each with what it is, and the file as it is written."""

    rows: tuple[Model, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def where(self, *path: str | int) -> str:
        """The file and the line of a row or a field."""
        return f"models.toml:{line_of(self.text, path)}"


def parse(text: str) -> Models:
    """``models.toml``, which has the form of the schema, as the model."""
    tables = tomllib.loads(text)
    return Models(tuple(map(_model, tables.get("model", []))), tables.get("unread", {}), text)


def _model(row: Mapping[str, Any]) -> Model:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Model(**fields | {name: tuple(row.get(name, {}).items()) for name in ("unserved", "sources")})


def problems(models: Models, formats: Iterable[str], archs: Iterable[str]) -> list[str]:
    """One line for each thing that is wrong with a row; ``formats`` are the names of ``formats.toml``."""
    known, used = {*formats, *models.unread}, {name for model in models.rows for name in model.caches}
    found = [
        f"{models.where('unread', name)}: {name}: no model stores its cache so"
        for name in sorted(set(models.unread) - used)
    ]
    found += [
        f"{models.where('model', number)}: {model.name}: format {name}; "
        f"accepts {', '.join(sorted(known))}, or a name that [unread] explains"
        for number, model in enumerate(models.rows)
        for name in model.caches
        if name not in known
    ]
    return [*found, *_windows(models), *_unserved(models, (*archs, EVERY)), *_sources(models), *_twins(models)]


def _windows(models: Models) -> Iterator[str]:
    for number, model in enumerate(models.rows):
        if model.window > model.topk:
            yield (
                f"{models.where('model', number)}: {model.name}: window {model.window} is more than topk {model.topk}, "
                "which counts the tokens of the window too"
            )


def _unserved(models: Models, known: tuple[str, ...]) -> Iterator[str]:
    for number, model in enumerate(models.rows):
        for name, _ in model.unserved:
            if name not in known:
                yield (
                    f"{models.where('model', number)}: {model.name}: unserved: got {name!r}; accepts {', '.join(known)}"
                )


def _sources(models: Models) -> Iterator[str]:
    stated = tomllib.loads(models.text).get("model", [])
    for number, (model, row) in enumerate(zip(models.rows, stated, strict=True)):
        fields = [name for name in row if name not in ("name", "organisation", "source", "sources")]
        for name, _ in model.sources:
            if name not in fields:
                yield (
                    f"{models.where('model', number)}: {model.name}: sources: got {name!r}; "
                    f"accepts fields of the row: {', '.join(fields)}"
                )


def _twins(models: Models) -> Iterator[str]:
    seen: dict[str, str] = {}
    for number, model in enumerate(models.rows):
        for name in (model.name, *model.also):
            if name.lower() in seen:
                yield f"{models.where('model', number)}: {model.name}: {name} is a name of {seen[name.lower()]}"
            seen.setdefault(name.lower(), model.name)
