"""Rows as a table of Markdown, and the block of a page that a command writes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from codegen.pages import block


def markdown(rows: Sequence[dict[str, Any]], *, right: Container[str] = ()) -> str:
    """Rows as a table under the keys of the first; the columns that ``right`` names are aligned on that side."""
    rules = ["---:" if name in right else "---" for name in rows[0]]
    lines = [list(rows[0]), rules, *([cell(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def with_block(page: str, name: str, text: str) -> str:
    """The page with another text in its block of a name, of which it has one."""
    (found,) = block(name).finditer(page)
    return page[: found.start()] + text + page[found.end() :]


def cell(value: object) -> str:
    """Floats with three significant digits."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)
