"""Who imports whom in a package, read from its syntax: ``python -m tests.structure.imports [FOLDER]`` reports it.

An edge is an import of one module by another wherever in the file it stands. An import for type checkers only counts
too: a reader has to follow it all the same.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "package" / "mla_kernels"

Graph = Mapping[str, frozenset[str]]


def graph(package: Path) -> Graph:
    """The modules of a package by dotted name, each with those of the package that it imports."""
    files = {_name(path, package): path for pattern in ("*.py", "*.pyi") for path in sorted(package.rglob(pattern))}
    return {name: frozenset(_imported(path, files)) - {name} for name, path in files.items()}


def cycles(edges: Graph) -> list[tuple[str, ...]]:
    """One cycle of imports, first module repeated at its end; none where there is no cycle."""
    try:
        TopologicalSorter({name: sorted(known) for name, known in edges.items()}).prepare()
    except CycleError as error:
        return [tuple(reversed(error.args[1]))]
    return []


def longest_chain(edges: Graph) -> int:
    """Modules in the longest chain of imports; the modules of a cycle count as they are first met."""
    heights: dict[str, int] = {}

    def height(name: str, below: frozenset[str]) -> int:
        if name not in heights:
            onward = (height(each, below | {name}) for each in sorted(edges[name] - below))
            heights[name] = 1 + max(onward, default=0)
        return heights[name]

    return max(height(name, frozenset()) for name in edges)


def report(package: Path) -> str:
    """Modules, longest chain of imports and edges of a package in one line."""
    edges = graph(package)
    top = sum(name.count(".") == 1 for name in edges)
    found = "; ".join(" -> ".join(cycle) for cycle in cycles(edges)) or "none"
    return (
        f"{len(edges)} modules ({top} on the top level), longest chain {longest_chain(edges)}, "
        f"{sum(map(len, edges.values()))} edges, cycles: {found}"
    )


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if sys.argv[1:] else PACKAGE))
