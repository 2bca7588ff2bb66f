"""What ``benchmarks.shared_prefix`` measured, as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.markdown import markdown

_ABOUT = (
    "A decode step of one layer, from its queries to its values, {heads} heads and a bf16 cache. *One decode* attends "
    "absorbed to prefix and suffix of every request. *Cascade* is [the recipe](../guide/shared-prefix.md): torch's "
    "attention over the expanded prefix, our decode over the suffixes, `merge_states`. *Two decodes* attends absorbed "
    "to the prefix once for all requests, with nothing expanded. A ratio is the time of *one decode* over the other's: "
    "above 1, the other is faster."
)
_METHOD = (
    "Each time is of a CUDA graph of several problems, with memory of their own, over their number; the median of "
    "{repeats} replays after a rest. Plans and the expanded prefix are made before. All ways gave the same values: the "
    "norm of the difference from *one decode* is at most {difference:.1e} of the norm of the values."
)


def page(document: Mapping[str, Any], *, data: str) -> str:
    """Markdown of a measurement; ``data`` is where the page finds it as JSON.

    Raises
    ------
    ValueError
        The ways disagreed, or torch served no prefix: nothing of it is to be published.
    """
    rows, machine, payload = document["rows"], document["machine"], document["payload"]
    differences = [row[name] for row in rows for name in ("absorbed difference", "cascade difference") if name in row]
    if len(differences) != 2 * len(rows) or not all(each <= document["allowed difference"] for each in differences):
        raise ValueError("not all ways gave the same values")
    commit = f"commit `{payload['commit']}`" if payload["commit"] else "no commit"
    lines = [
        f"# A shared prefix: {machine['gpu']}",
        markdown([_times(row) for row in rows], right=tuple(_times(rows[0]))),
        _ABOUT.format(heads=rows[0]["heads"]),
        "## Where the time goes",
        markdown([_parts(row) for row in rows], right=tuple(_parts(rows[0]))),
        "The prefix of a cascade is torch's attention that is named; *MB* are the keys and values that it reads. The "
        "projections of the queries and values are in every way, and not in the times of prefix and suffix.",
        "## Arithmetic",
        markdown([_costs(row) for row in rows], right=tuple(_costs(rows[0]))),
        _METHOD.format(repeats=document["repeats"], difference=max(differences)),
        f"Measured on {machine['date']} by `{document['command']}`; all of it: [{data.rpartition('/')[2]}]({data}). "
        f"One {machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}; payload `{payload['name']}` "
        f"{payload['version']}, {commit}, library sha256 `{payload['library_sha256'][:16]}`.",
    ]
    return "\n\n".join(lines) + "\n"


def _cell(row: Mapping[str, Any]) -> dict[str, str]:
    return {"requests": str(row["batch"]), "shared": f"{row['prefix']:,}", "own": f"{row['suffix']:,}"}


def _times(row: Mapping[str, Any]) -> dict[str, str]:
    ratios = {name: f"{row['whole us'] / row[f'{way} us']:.2f}x" for name, way in _WAYS.items()}
    return {
        **_cell(row),
        "one decode, us": f"{row['whole us']:,.0f}",
        **{f"{name}, us": f"{row[f'{way} us']:,.0f}" for name, way in _WAYS.items()},
        **{f"{name}, ratio": ratio for name, ratio in ratios.items()},
    }


_WAYS = {"cascade": "cascade", "two decodes": "absorbed"}


def _parts(row: Mapping[str, Any]) -> dict[str, str]:
    parts = {
        "expanded prefix": "prefix us",
        "absorbed prefix": "absorbed prefix us",
        "suffixes": "suffix us",
        "projections": "projections us",
        "merge": "merge us",
    }
    return {
        **_cell(row),
        **{f"{title}, us": f"{row[name]:,.0f}" for title, name in parts.items()},
        "by": row["by"],
        "expanded prefix, MB": f"{2 * row['heads'] * row['prefix'] * 320 / 1e6:,.0f}",
    }


def _costs(row: Mapping[str, Any]) -> dict[str, str]:
    named = {"one decode": "whole", "cascade": "cascade"}
    costs = {
        f"{title}, {unit}": f"{row[f'{way} {unit}']:,.0f}" for unit in ("GFLOP", "MB") for title, way in named.items()
    }
    return {**_cell(row), **costs}
