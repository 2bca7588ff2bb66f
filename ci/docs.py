"""Hooks of ``mkdocs``: they expand patterns in the navigation, tidy docstrings, and refuse what another host serves."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

from ci import comparison
from ci.rows import ROOT

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_config(config: Any) -> Any:
    """Expand the patterns of the navigation, and link to the repository that the project names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.repo_url, config.repo_name = project["urls"]["Repository"], project["name"]
    config.nav = _expanded(config.nav, Path(config.docs_dir), frozenset(_named(config.nav)))
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave the width of the page to the tables of figures, and put the comparison where its mark is."""
    if page.file.src_uri.startswith("benchmarks/"):
        page.meta["hide"] = ["toc"]
    return markdown.replace(comparison.MARK, comparison.rendered()) if comparison.MARK in markdown else markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Tidy types and parameters, and mark the wide diagrams of the kernels.

    Names within a type lose their quotes, and a parameter that has nothing more to say its dash.
    """
    if page.file.src_uri.startswith("kernels/"):
        html = re.sub(r'<p>(?=<img [^>]*src="[^"]*\.svg")', '<p class="diagram">', html)
    html = re.sub(r"``([^`<]+)``", r"\1", html)
    return re.sub(r"\s\N{EN DASH}(\s*<div class=\"doc-md-description\">\s*</div>)", r"\1", html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads a script, a style or a picture from another host: the site works without a network.

    Raises
    ------
    PluginError
        Names the page and the element.
    """
    if loaded := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {loaded[0]}")
    return output


def _named(nav: list[Any]) -> Iterator[str]:
    """Every page that the navigation names itself."""
    for entry in nav:
        for below in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _named(below) if isinstance(below, list) else [below]


def _expanded(nav: list[Any], folder: Path, named: Container[str]) -> list[Any]:
    """Replace each ``"folder/*.md"`` of the navigation by the pages that it names nowhere, in order."""
    result: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            pages = [page for page in sorted(folder.glob(entry)) if not page.stem.startswith("local")]
            result += [name for page in pages if (name := page.relative_to(folder).as_posix()) not in named]
        elif isinstance(entry, dict):
            result += [
                {title: _expanded(below, folder, named) if isinstance(below, list) else below}
                for title, below in entry.items()
            ]
        else:
            result.append(entry)
    return result
