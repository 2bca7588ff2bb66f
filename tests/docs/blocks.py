"""The code blocks of Markdown pages, and what runs them.

On every page of the documentation, in README.md, CONTRIBUTING.md and SECURITY.md

* ``python`` blocks run in the order of the page, in one namespace a page;
* ``sh`` blocks hold commands, one per line or joined by ``&&``;
* a ``text`` block with the title "Output" stands directly below the block that prints it, and every python block that
  prints has one. Of a block that raises it is the end of the traceback. ``...`` stands for any text;
* a python block with a title of ``test_pages.NEEDS`` runs only where that need is met, and one that calls another
  library, "Before (NAME)", never: only its imports are checked;
* a block with a path as its title, on a page that ``test_guide`` follows, is a file, or in a ``diff`` a change to one;
* no other language is used.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>.*)$")
TITLE = re.compile(r'title="([^"]*)"')
OUTPUT = "Output"


@dataclass(frozen=True)
class Block:
    """A fenced block, and the output that the page shows below it."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    output: str | None = None

    @property
    def id(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are not output, in order.

    Raises
    ------
    ValueError
        A fence is not closed, or an output stands below no block.
    """
    found: list[Block] = []
    end = None
    lines = page.read_text(encoding="utf-8").splitlines()
    for block, last in _fenced(page, lines):
        if block.title != OUTPUT:
            found.append(block)
        elif end is None or any(line.strip() for line in lines[end : block.line - 1]):
            raise ValueError(f"{block.id}: an output that is not directly below a block")
        else:
            found[-1] = Block(**{**vars(found[-1]), "output": block.text})
        end = last
    return found


def _fenced(page: Path, lines: list[str]) -> list[tuple[Block, int]]:
    """Each fenced block and the number of its last line."""
    found, opened = [], None
    for number, line in enumerate(lines, 1):
        match = FENCE.match(line)
        if opened is None and match:
            opened = number, match
        elif opened is not None and match and match["fence"] == opened[1]["fence"] and not match["info"].strip():
            start, first = opened
            info = first["info"].strip()
            title = TITLE.search(info)
            text = textwrap.dedent("\n".join(lines[start : number - 1]))
            found.append((Block(page, start, info.split(" ")[0], title[1] if title else "", text), number))
            opened = None
    if opened is not None:
        raise ValueError(f"{page.name}:{opened[0]}: a fence that is not closed")
    return found


class Page:
    """Runs the python blocks of one page; a block is run after those before it, and once."""

    def __init__(self, found: list[Block]) -> None:
        self._left = [block for block in found if block.language == "python"]
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._broken: Block | None = None

    def run(self, wanted: Block) -> None:
        """Run the page up to and including a block.

        Raises
        ------
        AssertionError
            The block raised, printed something else than the page shows, or stands after one that did.
        """
        assert self._broken is None, f"{self._broken.id} failed, and is needed here"
        while wanted in self._left:
            block = self._left.pop(0)
            self._broken = block
            check(block, execute(block, self._namespace))
            self._broken = None

    def skip(self, block: Block) -> None:
        """Leave a block out."""
        self._left.remove(block)


def execute(block: Block, namespace: dict[str, Any]) -> str:
    """What a block printed, and below it the error that the page shows.

    Raises
    ------
    AssertionError
        The block raised an error that the page does not show.
    """
    printed = io.StringIO()
    source = "\n" * block.line + block.text  # so that a traceback names the line of the page
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, block.page, "exec", dont_inherit=True), namespace)
    except Exception as error:
        if block.output is None:
            raise AssertionError(f"{block.id}:\n{traceback.format_exc()}") from error
        printed.write("".join(traceback.format_exception_only(error)))
    return printed.getvalue()


def check(block: Block, got: str) -> None:
    """Hold what was printed to the output that the page shows.

    Raises
    ------
    AssertionError
        They differ, or the page shows none.
    """
    want = "" if block.output is None else block.output
    want, got = ("".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines()) for text in (want, got))
    checker, example = doctest.OutputChecker(), doctest.Example(block.text, want)
    if not checker.check_output(want, got, doctest.ELLIPSIS):
        raise AssertionError(f"{block.id}:\n{checker.output_difference(example, got, doctest.ELLIPSIS)}")
