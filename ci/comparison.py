"""Renders ``docs/data/peers.toml``, what libraries of MLA kernels have, as the table of ``docs/comparison.md``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ci.rows import ROOT

TABLE = ROOT / "docs" / "data" / "peers.toml"
MARK = "<!-- comparison -->"

Cell = Mapping[str, Any]


def load() -> dict[str, Any]:
    """Read the table.

    Raises
    ------
    ValueError
        A feature lacks a library, or a value its source; or a source is named nowhere.
    """
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    named: set[str] = set()
    for feature in table["feature"]:
        if lacking := {"title", "ours", *table["libraries"]} ^ set(feature):
            raise ValueError(f"{TABLE.name}: {feature['title']!r} lacks or has without need: {sorted(lacking)}")
        named |= {feature[library]["source"] for library in table["libraries"]}
    if wrong := named ^ set(table["sources"]):
        raise ValueError(f"{TABLE.name}: sources that are unknown, or that no value names: {sorted(wrong)}")
    return table


def rendered() -> str:
    """Return the table in Markdown, and the sources below it."""
    table = load()
    numbers = {source: number for number, source in enumerate(table["sources"], 1)}
    header = ["feature", "mla-kernels", *table["libraries"].values()]
    lines = ['<div class="comparison" markdown>', "", _row(header), _row(["---"] * len(header))]
    for feature in table["feature"]:
        others = (feature[library] for library in table["libraries"])
        values = [f"{value['value']}&nbsp;{_reference(numbers[value['source']])}" for value in others]
        lines.append(_row([feature["title"], ours(feature["ours"]), *values]))
    lines += ["", "</div>", "", "## Sources", ""]
    for source, number in numbers.items():
        stated = table["sources"][source]
        lines.append(f'{number}. <span id="source-{number}"></span>{stated["text"]}; read on {stated["date"]}')
    return "\n".join(lines)


def ours(cell: Cell) -> str:
    """Return what the cell states, or what the registries say: the values of ``show``, or yes or no."""
    if "value" in cell:
        return str(cell["value"])
    found = [variant for registry in _registries() for variant in _matching(registry, cell)]
    if "show" not in cell:
        return "yes" if found else "no"
    domains = [{**variant["baked"], **variant["accepts"]}[cell["show"]] for variant in found]
    return ", ".join(dict.fromkeys(_said(_widest(domains)))) or "none"


def _registries() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "generated").glob("*/registry.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def _matching(registry: Cell, cell: Cell) -> Iterator[Cell]:
    capabilities = cell.get("capabilities")
    if capabilities and not set(capabilities) & set(registry["arch"]["capabilities"]):
        return
    for variant in registry["variants"]:
        baked = cell.get("baked", {})
        if variant["op"] != cell["op"] or variant["arch"] != cell.get("arch", variant["arch"]):
            continue
        if {name: variant["baked"].get(name) for name in baked} == baked:
            yield variant


def _widest(domains: list[Any]) -> list[Any]:
    """Of ranges the one that begins lowest and has the smallest step; all names."""
    ranges = [domain for domain in domains if isinstance(domain, dict)]
    if not ranges:
        return domains
    return [min(ranges, key=lambda each: (each.get("multiple_of", 1), each["min"], -each.get("max", 1 << 62)))]


def _said(domains: list[Any]) -> Iterator[str]:
    for domain in domains:
        if not isinstance(domain, dict):
            yield str(domain)
        elif "max" in domain:
            yield f"{domain['min']} to {domain['max']}"
        else:
            step = domain.get("multiple_of", 1)
            yield "any" if step == 1 else f"multiples of {step}"


def _reference(number: int) -> str:
    return f"<sup>[{number}](#source-{number})</sup>"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
