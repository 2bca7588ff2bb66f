"""Peers' figures: those of another run, read from a file, beside those of the same run; and which is best."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mla_kernels.diagnostics.tables import Row
from mla_kernels.errors import ValueRangeError
from mla_kernels.payloads.json_fields import BROKEN, typed

TABLE = "table figure"
SAME_RUN = "same run"


def load(path: str) -> dict[str, Any]:
    """Read a file of figures: its provenance, the fields that its cells share, and each cell with its times.

    Raises
    ------
    ValueRangeError
        The file cannot be read, or has another form.
    """
    try:
        document = typed(json.loads(Path(path).read_text(encoding="utf-8")), dict)
        for field in ("machine", "method"):
            typed(document[field], str)
        typed(document["versions"], dict)
        for cell in document["cells"]:
            for us in typed(cell["us"], dict).values():
                typed(us, float)
        typed(document["common"], dict)
    except BROKEN as error:
        accepts = "a JSON file of machine, method, versions, common and cells, as docs/benchmarks/data/peers_h200.json"
        raise ValueRangeError("peers", f"{path} ({error!r})", accepts) from error
    return document


def joined(document: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """A measurement with the figures of a file, except those of peers that the same run measured."""
    about = {field: figures[field] for field in ("machine", "method", "versions")}
    rows = [{**row, "peers": [*_own(row), *_figures(row, figures)]} for row in document["rows"]]
    return {**document, "table figures": about, "rows": rows}


def best(row: Mapping[str, Any]) -> Row | None:
    """The fastest peer of a row; None where no peer has a time."""
    timed: Iterable[Row] = [peer for peer in row["peers"] if peer["us"] is not None]
    return min(timed, key=lambda peer: float(peer["us"]), default=None)


def ratio(row: Mapping[str, Any]) -> float | None:
    """The fastest peer's time over ours."""
    fastest = best(row)
    return None if fastest is None or row["us"] is None else float(fastest["us"] / row["us"])


def label(peer: Mapping[str, Any]) -> str:
    """A peer's name, and where its figure is from unless it is of the same run."""
    return str(peer["name"]) if peer["source"] == SAME_RUN else f"{peer['name']}, {peer['source']}"


def _own(row: Mapping[str, Any]) -> list[Row]:
    return [peer for peer in row["peers"] if peer["source"] == SAME_RUN]


def _figures(row: Mapping[str, Any], figures: Mapping[str, Any]) -> list[Row]:
    measured = {_project(peer["name"]) for peer in _own(row) if peer["us"] is not None}
    return [
        {"name": name, "version": figures["versions"].get(name), "us": us, "source": TABLE}
        for cell in figures["cells"]
        if all(row.get(field) == value for field, value in {**figures["common"], **cell}.items() if field != "us")
        for name, us in cell["us"].items()
        if _project(name) not in measured
    ]


def _project(name: str) -> str:
    """A peer's name without the kernel or the distribution in brackets: ``FlashInfer`` of ``FlashInfer (FA3)``."""
    return name.partition(" (")[0]
