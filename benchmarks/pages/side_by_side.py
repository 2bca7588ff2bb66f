"""What ``benchmarks.side_by_side`` measured, as one table, and as the page of a suite."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from benchmarks.pages.comparison import OURS, OURS_FP8, PRODUCT, UPSTREAM, compared, has_upstream, of, others_of, ratios
from benchmarks.pages.grid import differing
from benchmarks.pages.markdown import markdown

NAMES = {
    "rested": "after a rest",
    "graph": "in a graph",
    "between": "between other kernels",
    "sustained": "sustained",
}
"""What a page calls each state."""
_GROUPS = {
    "kv": "KV: `{}`",
    "d_qk": "columns: {}",
    "heads": "heads: {}",
    "q_len": "query tokens: {}",
    "batch": "batch: {}",
    "topk": "top {:,}",
}
"""The fields by whose values a summary groups the cells."""
_TYPES = "_obf16_"
"""What stands in a variant's name before its schedule."""
_SHARED_OUTPUTS = (
    "- In a graph of several launches, a library that allocates its output wrote all of them to the same memory, which "
    "stayed in the L2 cache; ours wrote to an output for each launch. This favours the others: "
    "[Log](../kernels/sm90/log.md#outputs-that-stay-in-l2-and-stages-of-a-block-alone)."
)
"""What a page says that was measured before outputs were kept apart."""
_HOST_LAUNCHES = (
    "- The host's launch of a graph is partly in the times of graphs, of each library. Where two runs were compared, "
    "it was 5 to 12 us over the number of launches of the graph, and times after a rest were up to 30 us longer: "
    "[Log](../kernels/sm90/log.md#the-hosts-launch-of-a-graph)."
)
"""What a page says that was measured before the device waited for the host."""
_NO_HEADLINE = (
    f"**{UPSTREAM} was not in every run of this page.** What is fastest here is the fastest of the libraries that are "
    "listed, so the page has no summary."
)


def table(document: Mapping[str, Any]) -> str:
    """A table of all cells: our time, the fastest peer's, and the ratio in each state."""
    rows, has_between = [], bool(ratios(document["cells"], "between"))
    for cell in document["cells"]:
        graph = compared(cell, "graph")
        if graph is None:
            continue
        rows.append({
            "": cell["title"],
            "ours in a graph, us": f"{graph.ours:,.0f}",
            "fastest other in a graph, us": f"{graph.least:,.0f} ({graph.peer})",
            "in a graph": str(graph),
            **({"between other kernels": str(compared(cell, "between") or "-")} if has_between else {}),
            "after a rest": str(compared(cell, "rested") or "-"),
            "sustained": str(compared(cell, "sustained") or "-"),
            "energy": str(compared(cell, "sustained", "mj") or "-"),
        })  # fmt: skip
    return markdown(rows, right=("ours in a graph, us", *NAMES.values(), "energy"))


def sustains(document: Mapping[str, Any]) -> bool:
    """Whether the cells were measured under load too."""
    return any(of(cell, OURS, "sustained") for cell in document["cells"])


def _beside(cells: Sequence[Mapping[str, Any]]) -> str:
    """Whom the heading of a page compares ours with: one library by its name, more by their number."""
    others = [name for name in others_of(cells) if name != OURS_FP8 and PRODUCT not in name]
    if not others:
        return ""
    return f" beside {others[0] if len(others) == 1 else f'{len(others)} builds of other libraries'}"


def page(document: Mapping[str, Any], *, title: str, data: str, pictures: tuple[str, str] | None) -> str:
    """The page of a suite: the summary, the picture, every library in every cell, the machines and the method."""
    cells = document["cells"]
    heading = f"# {title}{_beside(cells)}: {document['runs'][0]['machine']['gpu']}"
    loaded = "; MHz, W and mJ are of the sustained state" if sustains(document) else ""
    apart = any(run.get("apart") for run in document["runs"])
    where = "on tensors of the same seeds, in a process of its own" if apart else "on the same tensors, in one process"
    lines = [
        heading,
        "",
        *_answer(document),
        f"Every library ran {where} and by one method. A ratio above 1 means that ours is faster than the fastest of "
        "the others.",
        "",
        *(_headline(document, pictures) if has_upstream(document) else [_NO_HEADLINE, ""]),
        "## How it was measured",
        "",
        *_method(document, apart),
        "",
        *runs(document),
        "",
        "## Every library in every cell",
        "",
        f"Times are microseconds a launch{loaded}. The data: [{data.rpartition('/')[2]}]({data}).",
        "",
    ]
    if sustains(document):
        lines += [line for cell in cells for line in _cell(document, cell)]
    else:
        lines += [line for state in single_launches(document) for line in _every(document, state)]
        lines += _pages(cells)
    return "\n".join(lines) + "\n"


def _answer(document: Mapping[str, Any]) -> list[str]:
    """What a reader wants to know first, where a page has a summary."""
    found = ratios(document["cells"], "graph")
    if not found or not has_upstream(document) or sustains(document):
        return []
    others = sorted({library for run in document["runs"] for library in run["libraries"]} - {OURS})
    fastest = others[0] if len(others) == 1 else "the fastest other library"
    slower = sum(ratio < 1 for ratio in found)
    losses = f"{slower} {'is' if slower == 1 else 'are'} slower, at worst {min(found):.3f} times as fast"
    least = losses if slower else f"none is slower: the least is {min(found):.3f} times"
    mean = f"{statistics.geometric_mean(found):.3f}"
    return [
        f"In a CUDA graph, ours has **{mean} times** the speed of {fastest}, the geometric mean of {len(found)} "
        f"shapes; {least}.",
        "",
    ]


def _headline(document: Mapping[str, Any], pictures: tuple[str, str] | None) -> list[str]:
    alt = "Time of the fastest other library over ours"
    shown = zip(pictures, ("light", "dark"), strict=True) if pictures else ()
    drawn = [f"![{alt}]({picture}#only-{theme})" for picture, theme in shown]
    if sustains(document):
        return [*drawn, "", table(document), ""]
    return [_summary(document["cells"]), "", *drawn, ""]


def _summary(cells: Sequence[Mapping[str, Any]]) -> str:
    """Geometric means of all cells and of groups, how many are below 1, and the worst."""
    groups = {"all cells": list(cells)}
    for name, words in _GROUPS.items():
        values = sorted({cell["problem"][name] for cell in cells if name in cell["problem"]})
        if len(values) > 1:
            groups |= {words.format(value): [c for c in cells if c["problem"].get(name) == value] for value in values}
    rows, has_between = [], bool(ratios(cells, "between"))
    for name, group in groups.items():
        found = {cell["title"]: each.ratio for cell in group if (each := compared(cell, "graph"))}
        between, rested = ratios(group, "between"), ratios(group, "rested")
        if not found:
            continue
        worst = min(found, key=found.__getitem__)
        rows.append({
            "fastest other over ours": name,
            "cells": len(found),
            "geomean in a graph": _mean(found.values()),
            **({"geomean between other kernels": _mean(between)} if has_between else {}),
            "geomean after a rest": _mean(rested),
            "below 1.00 in a graph": sum(ratio < 1 for ratio in found.values()),
            **({"below 1.00 between other kernels": sum(ratio < 1 for ratio in between)} if has_between else {}),
            "worst in a graph": f"{found[worst]:.2f}x ({worst.removeprefix('Dense decode, ')})",
        })  # fmt: skip
    left = {"fastest other over ours", "worst in a graph"}
    return markdown(rows, right=rows[0].keys() - left)


def _mean(found: Collection[float]) -> str:
    return f"{statistics.geometric_mean(found):.3f}x" if found else "-"


def single_launches(document: Mapping[str, Any]) -> list[str]:
    """The states of single launches that were measured, in the order of a page."""
    return [state for state in ("graph", "between", "rested") if state in document["method"]]


def states_of(document: Mapping[str, Any]) -> list[str]:
    """How each state was measured, a line each, and what an older method leaves to be said."""
    method = document["method"]
    lines = [f"- **{NAMES[state]}**: {text}" for state, text in method.items()]
    older = {"same output": _SHARED_OUTPUTS, "launched the graph": _HOST_LAUNCHES}
    return [*lines, *(text for said, text in older.items() if said not in method["graph"])]


def _method(document: Mapping[str, Any], apart: bool) -> list[str]:
    lines = states_of(document)
    if sustains(document):
        lines.append(
            "- **energy**: Joules of a sustained launch: those of the library that needs the fewest, over ours."
        )
    lines += [
        "- Each column compares with the library that is best in that column. A ratio is bold where ours is better by "
        "more than the difference of our own two turns.",
        "- Plans are made before, by every library: no time has planning in it. Pages have 64 tokens"
        + (" where nothing else is said." if "page_size" in differing(document["cells"]) else "."),
        f"- {'A sample of the' if apart else 'The'} output of every library is compared with ours first; a library "
        "whose output differs by more than 2 % of its norm is not timed.",
        "- Ours is measured first and last in each cell; the ratios take the mean of the two.",
    ]
    if products := document.get("products"):
        lines.append(
            f"- A library marked **(product)** was not in this run: its time is its ratio to {UPSTREAM} in another "
            f"run, times what {UPSTREAM} took in this one. The other run: {products['machine']}, {products['date']}; "
            f"{products['method']} It has only this time, in a graph."
        )
    return lines


def _every(document: Mapping[str, Any], state: str) -> list[str]:
    """A table of all libraries in one state, a cell in each row."""
    cells, names = document["cells"], differing(document["cells"])
    others = [name for name in others_of(cells) if any(of(cell, name, state) for cell in cells)]
    variants = {cell["title"]: _variant(cell).rpartition(_TYPES) for cell in cells}
    before = dict.fromkeys(f"`{prefix}{_TYPES}`" for prefix, found, _ in variants.values() if found)
    rows = []
    for cell in cells:
        found, ours = compared(cell, state), of(cell, OURS, state)
        mean = statistics.mean(ours) if ours else None
        rows.append({
            **({"run": cell["run"] + 1} if len(document["runs"]) > 1 else {}),
            **{name: cell["problem"].get(name, "-") for name in names},
            OURS: number(mean),
            **{name: number(next(iter(of(cell, name, state)), None)) for name in others},
            "fastest other": found.peer if found else "-",
            "over ours": str(found or "-"),
            "of ceiling": _of_ceiling(document, cell, mean),
            "our variant": variants[cell["title"]][-1],
        })  # fmt: skip
    notes = dict.fromkeys(
        f"- {turn['library']}: {turn['note']}" for cell in cells for turn in cell["turns"] if "note" in turn
    )
    right = (*names, OURS, *others, "over ours")
    return [
        f"### {NAMES[state].capitalize()}",
        "",
        "`of ceiling` is the larger of bytes over the read rate and FLOP over the matrix product's rate, over our "
        f"time; it names the larger. Names of variants follow {' or '.join(before)}.",
        "",
        markdown(rows, right=right),
        "",
        *(["Without a time in some cells:", "", *notes, ""] if notes else []),
    ]


def _variant(cell: Mapping[str, Any]) -> str:
    return str(next((turn["variant"] for turn in cell["turns"] if "variant" in turn), "-"))


def _of_ceiling(document: Mapping[str, Any], cell: Mapping[str, Any], us: float | None) -> str:
    if us is None:
        return "-"
    ceilings = document["runs"][cell["run"]]["ceilings"]
    read = cell["bytes"] / ceilings["read TB/s"] / 1e6 / us
    product = cell["FLOP"] / ceilings["GEMM TFLOP/s"] / 1e6 / us
    return f"{read:.2f} read" if read > product else f"{product:.2f} product"


def _pages(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Our time with other pages over that with pages of 64, where a suite has both."""
    by_rest: dict[tuple[Any, ...], dict[int, float]] = {}
    for cell in cells:
        rest = tuple(value for name, value in cell["problem"].items() if name != "page_size")
        if (ours := of(cell, OURS, "graph")) and "page_size" in cell["problem"]:
            by_rest.setdefault(rest, {})[cell["problem"]["page_size"]] = statistics.mean(ours)
    names = [name for name in (cells[0]["problem"] if cells else ()) if name != "page_size"]
    shown = [name for name in names if name in differing(cells)]
    rows = [
        {
            **{name: value for name, value in zip(names, rest, strict=True) if name in shown},
            **{f"page {size}": f"{us:,.1f} ({us / times[64]:.2f})" for size, us in sorted(times.items())},
        }
        for rest, times in by_rest.items()
        if len(times) > 1 and 64 in times
    ]
    about = "Our microseconds in a graph, and in brackets over those with pages of 64 tokens."
    return ["### Page sizes", "", about, "", markdown(rows, right=shown), ""] if rows else []


def _cell(document: Mapping[str, Any], cell: Mapping[str, Any]) -> list[str]:
    of_run = f" (run {cell['run'] + 1})" if len(document["runs"]) > 1 else ""
    noted = any("note" in turn for turn in cell["turns"])
    states = [state for state in NAMES if state in document["method"]]
    rows = [
        {
            "library": turn["library"],
            **{NAMES[state]: number(turn.get(state, {}).get("us")) for state in states},
            "MHz": number(turn.get("sustained", {}).get("mhz"), 0),
            "W": number(turn.get("sustained", {}).get("watts"), 0),
            "mJ": number(turn.get("sustained", {}).get("mj")),
            **({"note": turn.get("note", "")} if noted else {}),
        }
        for turn in cell["turns"]
    ]
    return [f"### {cell['title']}{of_run}", "", markdown(rows, right=(*NAMES.values(), "MHz", "W", "mJ")), ""]


def runs(document: Mapping[str, Any]) -> list[str]:
    """The command, the machine, the payload and the libraries of each run."""
    lines = []
    for number, run in enumerate(document["runs"]):
        machine, payload, ceilings = run["machine"], run["payload"], run["ceilings"]
        count = sum(cell["run"] == number for cell in document["cells"])
        several = len(document["runs"]) > 1
        lines += [
            f"{f'Run {number + 1}, {count} of the cells, measured' if several else 'Measured'} on {machine['date']} by "
            f"`{run['command']}`:",
            "",
            f"- One {machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}, torch {machine['torch']}.",
            f"- Payload `{payload['name']}`, commit `{payload['commit']}`, library `{payload['library_sha256'][:16]}`.",
            f"- Ceilings of the same run: {ceilings['read TB/s']:.2f} TB/s read, "
            f"{ceilings['GEMM TFLOP/s']:.0f} TFLOP/s in a bf16 matrix product.",
            f"- Libraries: {', '.join(run['libraries'])}.",
            "",
        ]
    return lines[:-1]


def number(value: float | None, digits: int = 1) -> str:
    """A figure with so many digits after its point; a dash for none."""
    return "-" if value is None else f"{value:,.{digits}f}"
