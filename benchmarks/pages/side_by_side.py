"""What ``benchmarks.side_by_side`` measured, as rows of ratios, as a table for the README, and as a page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.pages.markdown import markdown

OURS = "mla-kernels"
STATES = ("rested", "graph", "sustained")
_NAMES = {"rested": "after a rest", "graph": "in a graph", "sustained": "sustained"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A quantity of our launch, and of the other library that has the least of it, in one cell and one state.

    Attributes
    ----------
    ours, least : float
        Microseconds or millijoules a launch; ours is the mean of the first and the last turn.
    peer : str
        The other library that has the least.
    drift : float
        The difference of our two turns over their mean.
    """

    ours: float
    peer: str
    least: float
    drift: float

    @property
    def ratio(self) -> float:
        """The peer's quantity over ours: above 1 ours is better."""
        return self.least / self.ours

    def __str__(self) -> str:
        """Return the ratio, in bold where ours is better by more than the drift."""
        text = f"{self.ratio:.2f}x"
        return f"**{text}**" if self.ratio - 1 > self.drift and text != "1.00x" else text


def compared(cell: Mapping[str, Any], state: str, quantity: str = "us") -> Comparison | None:
    """Ours against the best of the others in one state of a cell; None where the quantity was not read."""
    turns = [(turn["library"], turn[state].get(quantity)) for turn in cell["turns"] if state in turn]
    ours = [float(value) for name, value in turns if name == OURS and value]
    others = {name: float(value) for name, value in turns if name != OURS and value}
    if not ours or not others:
        return None
    peer = min(others, key=others.__getitem__)
    mean = statistics.mean(ours)
    return Comparison(mean, peer, others[peer], (max(ours) - min(ours)) / mean)


def table(document: Mapping[str, Any]) -> str:
    """The README's table: our time, the fastest peer's, and the ratio in each state."""
    rows = []
    for cell in document["cells"]:
        graph = compared(cell, "graph")
        assert graph is not None
        rows.append({
            "": cell["title"],
            "ours in a graph, us": f"{graph.ours:,.0f}",
            "fastest other in a graph, us": f"{graph.least:,.0f} ({graph.peer})",
            "in a graph": str(graph),
            "after a rest": str(compared(cell, "rested") or "-"),
            "sustained": str(compared(cell, "sustained") or "-"),
            "energy": str(compared(cell, "sustained", "mj") or "-"),
        })  # fmt: skip
    return markdown(rows, right=("ours in a graph, us", *_NAMES.values(), "energy"))


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
        *(f"- **{_NAMES[state]}**: {document['method'][state]}" for state in STATES),
        "- **energy**: Joules of a sustained launch: those of the library that needs the fewest, over ours.",
        "- Each column compares with the library that is best in that column. A ratio is bold where ours is better by "
        "more than the difference of our own two turns.",
        "- Plans are made before, by every library: no time has planning in it. Pages have 64 tokens.",
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
            **{_NAMES[state]: _number(turn.get(state, {}).get("us")) for state in STATES},
            "MHz": _number(turn.get("sustained", {}).get("mhz"), 0),
            "mJ": _number(turn.get("sustained", {}).get("mj")),
            **({"note": turn.get("note", "")} if noted else {}),
        }
        for turn in cell["turns"]
    ]
    return [f"### {cell['title']}", "", markdown(rows, right=(*_NAMES.values(), "MHz", "mJ")), ""]


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
    found = [compared(cell, state) for cell in document["cells"]]
    return [each.ratio for each in found if each]


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
