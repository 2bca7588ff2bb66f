"""A measurement on CUDA as a table, and as a page of the documentation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from mla_kernels.diagnostics.tables import Row

_TITLES = {
    "decode": "Dense decode",
    "sparse_decode": "Sparse decode",
    "sparse_prefill": "Sparse prefill",
    "caches": "Cache ops",
}
_SAME = ("q", "kv", "d_qk", "topk", "page_size", "lengths")
"""Columns that are left out where all cells have the same value."""
_COSTS = ("tokens", "FLOP", "bytes")
_FORMATS = {
    "us": ",.1f", "with plan us": ",.1f", "call us": ".1f", "TFLOP/s": ".0f", "TB/s": ".2f", "of ceiling": ".2f",
    "seq": ",", "rows": ",",
}  # fmt: skip


def summary(document: Mapping[str, Any]) -> list[Row]:
    """The rows of the table: what tells cells apart, the times, and the variant or why there is none."""
    rows = [_summary(row, document["method"]) for row in document["rows"]]
    return _without(rows, _same(rows, _SAME))


def page(document: Mapping[str, Any], *, data: str, picture: str | None) -> str:
    """Markdown of a measurement.

    Parameters
    ----------
    document : Mapping
        What ``run_cuda.measure`` returned, with the ``command`` that did.
    data, picture : str
        Where the page finds the measurement as JSON, and its roofline.
    """
    machine = document["machine"]
    rows = [_summary(row, document["method"]) for row in document["rows"]]
    same = _same(rows, (*_SAME, "variant"))
    lines = [
        f"# {_TITLES[document['op']]}: {machine['gpu']}",
        "",
        f"Measured on {machine['date']} by `{document['command']}`; all of it: [{data.rpartition('/')[2]}]({data}).",
        "",
        f"- Machine: {_machine(machine)}.",
        f"- {_payload(document)}",
        *([f"- In all cells: {', '.join(f'{name} `{value}`' for name, value in same.items())}."] if same else []),
        f"- {_ceilings(document['ceilings'])}",
        "",
        *([f"![roofline]({picture})", ""] if picture else []),
        *_table(_without(rows, same)),
        "",
        f"The columns, of {document['repeats']} replays:",
        "",
        *(f"- `{column}`: {meaning}" for column, meaning in document["method"].items()),
    ]
    return "\n".join(lines) + "\n"


def _summary(row: Row, columns: Iterable[str]) -> Row:
    """What stands before the costs tells cells apart; the ``columns`` are those that the method explains."""
    cell = takewhile(lambda name: name not in _COSTS, row)
    shown = {name: row[name] for name in (*cell, *(name for name in columns if name in row))}
    return shown | {"variant": row.get("note") or row["variant"]}


def _same(rows: Sequence[Row], names: Iterable[str]) -> dict[str, Any]:
    """Columns with one value in all rows, and the value."""
    shared = (name for name in names if name in rows[0])
    return {name: rows[0][name] for name in shared if all(row[name] == rows[0][name] for row in rows)}


def _without(rows: Sequence[Row], names: Container[str]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def _machine(machine: Mapping[str, Any]) -> str:
    clock = machine.get("sm_clock_mhz")
    facts = [f"one {machine['gpu']}", f"{machine['sms']} SMs"]
    facts += [f"driver {machine['driver']}"] if machine["driver"] else []
    facts += [f"CUDA {machine['cuda']}", f"torch {machine['torch']}"]
    return ", ".join([*facts, f"SM clock {clock} MHz"] if clock else facts)


def _ceilings(ceilings: Mapping[str, float]) -> str:
    said = {
        "read TB/s": "{:.2f} TB/s read, the fastest of torch's reductions",
        "GEMM TFLOP/s": "{:.1f} TFLOP/s, torch's bf16 matrix product",
        "copy TB/s": "{:.2f} TB/s read and written, the fastest of torch's copies",
    }
    return f"Ceilings of the same run: {', and '.join(said[name].format(rate) for name, rate in ceilings.items())}."


def _payload(document: Mapping[str, Any]) -> str:
    payload = document["payload"]
    commit = f"commit `{payload['commit']}`" if payload["commit"] else "no commit"
    library = f"library sha256 `{payload['library_sha256'][:16]}`"
    return f"Payload `{payload['name']}` {payload['version']}, {commit}, {library}."


def _table(rows: Sequence[Row]) -> list[str]:
    names = list(rows[0])
    cells = [[_text(name, row[name]) for name in names] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *cells)]


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    text = format(value, _FORMATS.get(name, ""))
    return f"`{text}`" if name == "variant" and "_" in text else text.replace("|", "/")
