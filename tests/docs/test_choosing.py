"""Every ratio on the page of choices is on a measured page that its row, or its paragraph, links to."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_pages import DOCS

PAGE = DOCS / "guide" / "choosing.md"
RATIO = re.compile(r"\b\d\.\d\dx")
LINKED = re.compile(r"\]\(\.\./(benchmarks/\w+\.md)\)")
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("|")]
PARAGRAPHS = [text for text in TEXT.split("\n\n") if not text.startswith(("|", "#"))]


def unfounded(text: str) -> list[str]:
    """The ratios of a text that no page has which it links to; pages have two decimals or three."""
    pages = [(DOCS / name).read_text(encoding="utf-8") for name in LINKED.findall(text)]
    measured = {f"{float(figure):.2f}x" for page in pages for figure in re.findall(r"\b(\d\.\d+)x", page)}
    return [ratio for ratio in RATIO.findall(text) if ratio not in measured]


@pytest.mark.parametrize("text", [text for text in (*ROWS, *PARAGRAPHS) if RATIO.search(text)])
def test_ratios_are_measured(text):
    assert unfounded(text) == []


def test_a_ratio_that_nobody_measured_is_found():
    row = "| decode | ours | 9.87x, [some](../benchmarks/h200_dense.md) |"
    assert unfounded(row) == ["9.87x"]
    assert unfounded("| decode | ours | 1.07x |") == ["1.07x"]


def test_there_are_losses_on_the_page():
    assert len([ratio for ratio in RATIO.findall(TEXT) if ratio < "1"]) > 5
