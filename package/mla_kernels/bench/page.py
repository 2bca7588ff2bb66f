"""A measurement on CUDA as a table, and as a page of the documentation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from mla_kernels.bench.peer_figures import SAME_RUN, best, label, ratio
from mla_kernels.bench.report import Row

_SAME = ("q", "kv", "page_size", "lengths")
"""Columns that are left out where all cells have the same value."""
_FORMATS = {
    "us": ",.1f", "with plan us": ",.1f", "call us": ".1f", "TFLOP/s": ".0f", "TB/s": ".2f", "of ceiling": ".2f",
    "best peer us": ",.1f", "x peer": ".2f", "seq": ",",
}  # fmt: skip


def summary(document: Mapping[str, Any]) -> list[Row]:
    """The rows of the table: what tells cells apart, the times, the best peer, and the variant or why there is none."""
    rows = [_summary(row) for row in document["rows"]]
    return _without(rows, _same(rows, _SAME))


def page(document: Mapping[str, Any], *, data: str, picture: str | None) -> str:
    """Markdown of a measurement.

    Parameters
    ----------
    document : Mapping
        What ``decode_cuda.measure`` returned, with the ``command`` that did, and table figures where there are some.
    data, picture : str
        Where the page finds the measurement as JSON, and its roofline.
    """
    machine, ceilings = document["machine"], document["ceilings"]
    rows = [_summary(row) for row in document["rows"]]
    same = _same(rows, (*_SAME, "variant"))
    lines = [
        f"# Dense decode: {machine['gpu']}",
        "",
        f"Measured on {machine['date']} by `{document['command']}`; all of it: [{data.rpartition('/')[2]}]({data}).",
        "",
        f"- Machine: {_machine(machine)}.",
        f"- {_payload(document)}",
        f"- In all cells: {', '.join(f'{name} `{value}`' for name, value in same.items())}.",
        f"- Ceilings of the same run: {ceilings['read TB/s']:.2f} TB/s read, the fastest of torch's reductions, and "
        f"{ceilings['GEMM TFLOP/s']:.1f} TFLOP/s, torch's bf16 matrix product.",
        *(f"- {line}" for line in _peers(document)),
        "",
        *([f"![roofline]({picture})", ""] if picture else []),
        *_table(_without(rows, same)),
        "",
        f"The columns, of {document['repeats']} replays:",
        "",
        *(f"- `{column}`: {meaning}" for column, meaning in document["method"].items()),
    ]
    return "\n".join(lines) + "\n"


def _summary(row: Row) -> Row:
    peer = best(row)
    cell = ("q", "kv", "heads", "q_len", "batch", "seq", "page_size", "lengths")
    times = ("us", "with plan us", "call us", "TFLOP/s", "TB/s", "of ceiling")
    return {
        **{name: row[name] for name in (*cell, *times)},
        "best peer us": peer and peer["us"],
        "best peer": peer and label(peer),
        "x peer": ratio(row),
        "variant": row.get("note") or row["variant"],
    }


def _same(rows: Sequence[Row], names: Iterable[str]) -> dict[str, Any]:
    """Columns with one value in all rows, and the value."""
    return {name: rows[0][name] for name in names if all(row[name] == rows[0][name] for row in rows)}


def _without(rows: Sequence[Row], names: Container[str]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def _machine(machine: Mapping[str, Any]) -> str:
    clock = machine.get("sm_clock_mhz")
    facts = [f"one {machine['gpu']}", f"{machine['sms']} SMs"]
    facts += [f"driver {machine['driver']}"] if machine["driver"] else []
    facts += [f"CUDA {machine['cuda']}", f"torch {machine['torch']}"]
    return ", ".join([*facts, f"SM clock {clock} MHz"] if clock else facts)


def _payload(document: Mapping[str, Any]) -> str:
    payload = document["payload"]
    commit = f"commit `{payload['commit']}`" if payload["commit"] else "no commit"
    library = f"library sha256 `{payload['library_sha256'][:16]}`"
    return f"Payload `{payload['name']}` {payload['version']}, {commit}, {library}."


def _peers(document: Mapping[str, Any]) -> list[str]:
    own = [peer for row in document["rows"] for peer in row["peers"] if peer["source"] == SAME_RUN]
    measured = dict.fromkeys(f"{peer['name']} {peer['version']}" for peer in own if peer["us"] is not None)
    notes = dict.fromkeys(f"{peer['name']}: {peer['note']}" for peer in own if peer["us"] is None)
    lines = [f"Peers of the same run: {', '.join(measured) or 'none'}."]
    lines += [f"Peer without a time in some cells: {note}" for note in notes]
    if document["not installed"]:
        lines.append(f"Peers not installed: {', '.join(document['not installed'])}.")
    if about := document.get("table figures"):
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        lines.append(f"Table figures are **not of this run**: {about['machine']}; {about['method']}; {versions}.")
    return lines


def _table(rows: Sequence[Row]) -> list[str]:
    names = list(rows[0])
    cells = [[_text(name, row[name]) for name in names] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *cells)]


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    text = format(value, _FORMATS.get(name, ""))
    return f"`{text}`" if name == "variant" and "_" in text else text.replace("|", "/")
