"""The page of cells that libraries compute in exact and in fp8 arithmetic, side by side, each with its error."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages.comparison import OURS, OURS_FP8, Comparison, of, others_of
from benchmarks.pages.grid import differing
from benchmarks.pages.markdown import markdown
from benchmarks.pages.side_by_side import NAMES, number, runs, single_launches, states_of

_ABOUT = (
    "{ours} Every library ran {where} and by one method. A ratio is the time of the fastest library that is not ours "
    "over that of our faster one: above 1, ours is faster. An error is the norm of the difference from attention in "
    "float64, over the norm of the latter's output."
)
_DECODE = (
    "- Q is bf16. Our fp8 arithmetic rounds it in the launch that is timed. FlashMLA's fp8 kernel takes Q in e4m3: "
    "it is converted before, and no time has this in it, which favours FlashMLA.",
)
_PREFILL = (
    "- Q and rows are bf16. SGLang's kernel takes both in e4m3, with a scale of each tensor, and multiplies P in e4m3: "
    "Q and rows are converted before, and no time has this in it, which favours SGLang.",
    "- FlashMLA and SGLang have queries of 16 heads padded to 64 before.",
)


def measured(document: Mapping[str, Any]) -> bool:
    """Whether outputs of the document were compared with attention in float64, as this page shows."""
    return any(cell.get("float64 requests") for cell in document["cells"])


def page(document: Mapping[str, Any], *, title: str, data: str) -> str:
    """Markdown of a measurement; ``data`` is where the page finds it as JSON."""
    apart = any(run["apart"] for run in document["runs"])
    where = "on tensors of the same seeds, in a process of its own" if apart else "on the same tensors, in one process"
    lines = [
        f"# {title}: {document['runs'][0]['machine']['gpu']}",
        "",
        _ABOUT.format(where=where, ours=_of_ours(document["cells"])),
        "",
        *(line for state in single_launches(document) for line in _table(document, state)),
        *_notes(document["cells"]),
        "## How it was measured",
        "",
        *_method(document, apart),
        "",
        *runs(document),
        "",
        f"The data: [{data.rpartition('/')[2]}]({data}).",
    ]
    return "\n".join(lines) + "\n"


def compared(cell: Mapping[str, Any], state: str) -> tuple[str, Comparison] | None:
    """Our faster library in one state of a cell, against the fastest that is not ours; None without such times.

    The drift is that of exact arithmetic, which is measured twice.
    """
    exact = of(cell, OURS, state)
    ours = {name: statistics.mean(times) for name in (OURS, OURS_FP8) if (times := of(cell, name, state))}
    others = {name: times[0] for name in _others([cell]) if (times := of(cell, name, state))}
    if not exact or not others:
        return None
    name, peer = min(ours, key=ours.__getitem__), min(others, key=others.__getitem__)
    drift = (max(exact) - min(exact)) / ours[OURS]
    return name, Comparison(ours[name], peer, others[peer], drift)


def _of_ours(cells: Sequence[Mapping[str, Any]]) -> str:
    rounded = f"; `{OURS_FP8}` rounds both to e4m3" if OURS_FP8 in _ours(cells) else ""
    return f"`{OURS}` keeps Q and P in 16 bits{rounded}."


def _ours(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ours in each arithmetic that took part."""
    took_part = {turn["library"] for cell in cells for turn in cell["turns"]}
    return [name for name in (OURS, OURS_FP8) if name in took_part]


def _others(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in others_of(cells) if name != OURS_FP8]


def _table(document: Mapping[str, Any], state: str) -> list[str]:
    """Microseconds of every library in one state, a cell in each row; beside the times in a graph stand the errors."""
    cells, several = document["cells"], len(document["runs"]) > 1
    names, libraries = differing(cells), [*_ours(cells), *_others(cells)]
    errors = [f"error of {name}" for name in libraries] if state == "graph" else []
    rows = []
    for cell in cells:
        faster, found = compared(cell, state) or ("-", "-")
        times = {name: of(cell, name, state) for name in libraries}
        rows.append({
            **({"run": cell["run"] + 1} if several else {}),
            **{name: cell["problem"].get(name, 0) for name in names},
            **{name: number(statistics.mean(us) if us else None) for name, us in times.items()},
            "our faster": faster,
            "over it": str(found),
            **{title: _error(cell, name) for title, name in zip(errors, libraries, strict=False)},
        })  # fmt: skip
    right = (*names, *libraries, "over it", *errors)
    return [f"## {NAMES[state].capitalize()}, microseconds a launch", "", markdown(rows, right=right), ""]


def _error(cell: Mapping[str, Any], library: str) -> str:
    turns = [turn for turn in cell["turns"] if turn["library"] == library]
    errors = [turn["error to float64"] for turn in turns if "error to float64" in turn]
    return f"{max(errors):.2%}" if errors else "-"


def _notes(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    turns = (turn for cell in cells for turn in cell["turns"] if "note" in turn)
    notes = dict.fromkeys(f"- {turn['library']}: {turn['note']}" for turn in turns)
    return ["Without a time in some cells:", "", *notes, ""] if notes else []


def _error_of(cells: Sequence[Mapping[str, Any]]) -> str:
    if cells[0]["op"] == "sparse_prefill":
        return (
            "query tokens. Attention in float64 reads Q and rows in bf16: what rounding them changed is in the error."
        )
    return (
        "requests, or of its only one. Attention in float64 reads the same bytes of the cache, and Q in bf16: what "
        "rounding the cache changed is not in the error."
    )


def _method(document: Mapping[str, Any], apart: bool) -> list[str]:
    cells = document["cells"]
    requests, allowed = (max(cell[name] for cell in cells) for name in ("float64 requests", "allowed error"))
    return [
        *states_of(document),
        "- Plans are made before, by every library: no time has planning in it. Pages have 64 tokens.",
        *(_PREFILL if cells[0]["op"] == "sparse_prefill" else _DECODE),
        "- Keys and values are random, of deviation 1, and have no mean but where a column says so. "
        "[Why a mean matters](../kernels/sm90/fp8.md#sums-in-two-levels).",
        f"- **error**: of the first problem's first {requests} {_error_of(cells)}",
        f"- {'A sample of the' if apart else 'The'} output of every library is compared with that of `{OURS}` first; a "
        f"library whose output differs by more than {allowed:.0%} of its norm is not timed.",
        f"- `{OURS}` is measured first and last in each cell; its time is the mean of the two. A ratio is bold where "
        "ours is better by more than their difference.",
    ]
