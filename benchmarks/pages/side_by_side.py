"""What ``benchmarks.side_by_side`` measured, as rows of ratios, as a table for the README, and as a page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.pages.markdown import markdown

OURS = "mla-kernels"
STATES = ("rested", "graph", "sustained")
_SAID = {"rested": "after a rest", "graph": "in a graph", "sustained": "sustained"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Our launch and the fastest other library's in one cell and one state.

    Attributes
    ----------
    us, peer_us : float
        Microseconds a launch; ours is the mean of the first and the last turn.
    peer : str
        The library that is fastest in this state.
    mj, peer_mj : float or None
        Millijoules a launch, in the sustained state.
    drift : float
        The difference of our two turns over their mean.
    """

    us: float
    peer: str
    peer_us: float
    mj: float | None
    peer_mj: float | None
    drift: float

    @property
    def ratio(self) -> float:
        """The peer's time over ours: above 1 ours is faster."""
        return self.peer_us / self.us


def compared(cell: Mapping[str, Any], state: str) -> Comparison:
    """Ours against the fastest of the others in one state of a cell."""
    turns = [turn for turn in cell["turns"] if state in turn]
    ours = [turn[state] for turn in turns if turn["library"] == OURS]
    others = {turn["library"]: turn[state] for turn in turns if turn["library"] != OURS}
    peer = min(others, key=lambda name: float(others[name]["us"]))
    us = [float(turn["us"]) for turn in ours]
    joules = [turn["mj"] for turn in ours if turn.get("mj")]
    return Comparison(
        us=statistics.mean(us),
        peer=peer,
        peer_us=float(others[peer]["us"]),
        mj=statistics.mean(joules) if joules else None,
        peer_mj=others[peer].get("mj"),
        drift=(max(us) - min(us)) / statistics.mean(us),
    )


def table(document: Mapping[str, Any]) -> str:
    """The README's table: our time, the fastest peer's, and the ratio in each state."""
    rows = []
    for cell in document["cells"]:
        rested, graph, sustained = (compared(cell, state) for state in STATES)
        energy = sustained.peer_mj / sustained.mj if sustained.mj and sustained.peer_mj else None
        rows.append({
            "": cell["title"],
            "ours, us": f"{graph.us:,.0f}",
            "fastest peer, us": f"{graph.peer_us:,.0f} ({graph.peer})",
            _SAID["graph"]: _ratio(graph.ratio),
            _SAID["rested"]: _ratio(rested.ratio),
            _SAID["sustained"]: _ratio(sustained.ratio),
            "energy": _ratio(energy),
        })  # fmt: skip
    return markdown(rows, right=("ours, us", *_SAID.values(), "energy"))


def page(document: Mapping[str, Any], *, data: str, pictures: tuple[str, str]) -> str:
    """The page of the measurement: the picture, every library in every cell, the machine and the method."""
    light, dark = pictures
    alt = "Time of the fastest other library over ours"
    lines = [
        f"# Side by side: {document['runs'][0]['machine']['gpu']}",
        "",
        "Every library ran on the same tensors, in one process and by one method. A ratio above 1 means that ours is "
        "faster than the fastest of the others.",
        "",
        f"![{alt}]({light}#only-light)",
        f"![{alt}]({dark}#only-dark)",
        "",
        table(document),
        "",
        "## How it was measured",
        "",
        *(f"- **{_SAID[state]}**: {document['method'][state]}" for state in STATES),
        "- **energy**: the fastest peer's joules a launch over ours, in the sustained state.",
        "- The output of every library is compared with ours first; a library whose output differs by more than 2 % of "
        "its norm is not timed.",
        "- Ours is measured first and last in each cell; the ratios take the mean of the two.",
        "",
        *_runs(document),
        "",
        "## Every library in every cell",
        "",
        f"Times are microseconds a launch; MHz and mJ are of the sustained state. "
        f"The data: [{data.rpartition('/')[2]}]({data}).",
        "",
        *(line for cell in document["cells"] for line in _cell(cell)),
    ]
    return "\n".join(lines) + "\n"


def _cell(cell: Mapping[str, Any]) -> list[str]:
    noted = any("note" in turn for turn in cell["turns"])
    rows = [
        {
            "library": turn["library"],
            **{_SAID[state]: _number(turn.get(state, {}).get("us")) for state in STATES},
            "MHz": _number(turn.get("sustained", {}).get("mhz"), 0),
            "mJ": _number(turn.get("sustained", {}).get("mj")),
            **({"note": turn.get("note", "")} if noted else {}),
        }
        for turn in cell["turns"]
    ]
    return [f"### {cell['title']}", "", markdown(rows, right=(*_SAID.values(), "MHz", "mJ")), ""]


def _runs(document: Mapping[str, Any]) -> list[str]:
    lines = []
    for run in document["runs"]:
        machine, payload, ceilings = run["machine"], run["payload"], run["ceilings"]
        lines += [
            f"Measured on {machine['date']} by `{run['command']}`:",
            "",
            f"- One {machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}, torch {machine['torch']}.",
            f"- Payload `{payload['name']}`, commit `{payload['commit']}`, library `{payload['library_sha256'][:16]}`.",
            f"- Ceilings of the same run: {ceilings['read TB/s']:.2f} TB/s read, "
            f"{ceilings['GEMM TFLOP/s']:.0f} TFLOP/s in a bf16 matrix product.",
            f"- Libraries: {', '.join(run['libraries'])}.",
        ]
    return lines


def ratios(document: Mapping[str, Any], state: str) -> Sequence[float]:
    """The ratio of each cell in a state."""
    return [compared(cell, state).ratio for cell in document["cells"]]


def _ratio(value: float | None) -> str:
    """In bold where ours is faster by as much as is shown."""
    if value is None:
        return "-"
    return f"**{value:.2f}x**" if round(value, 2) > 1 else f"{value:.2f}x"


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
