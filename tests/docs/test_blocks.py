"""What the test of the pages must notice, shown on pages of its own."""

from __future__ import annotations

import textwrap

import pytest

from tests.docs.blocks import Page, blocks


@pytest.fixture
def run(tmp_path):
    """Run every block of a page with the given text."""

    def run(text: str) -> None:
        path = tmp_path / "page.md"
        path.write_text(text)
        found = blocks(path)
        page = Page(found)
        for block in found:
            page.run(block)

    return run


def fenced(code: str, output: str | None = None) -> str:
    shown = "" if output is None else f'\n```text title="Output"\n{output}\n```\n'
    return f"Words.\n\n```python\n{code}\n```\n{shown}\nMore words.\n\n"


def test_a_page_that_holds(run):
    run(fenced("x = 2") + fenced("print(x)", "2") + fenced("print([x] * 9)", "[2, ..., 2]"))


def test_an_error_that_the_page_shows(run):
    run(fenced("print(1)\n[][0]", "1\nIndexError: list index out of range"))


def test_a_block_within_a_list(run):
    text = "```python\nif True:\n    print(3)\n```\n\n" + '```text title="Output"\n3\n```\n'
    run("1. First\n\n" + textwrap.indent(text, "    "))


def test_a_block_that_raises(run):
    with pytest.raises(AssertionError, match=r'(?s)page\.md:3:.*page\.md", line 4.*NameError'):
        run(fenced("missing"))


def test_another_output(run):
    with pytest.raises(AssertionError, match=r"(?s)page\.md:3:.*Expected:\s+5\s+Got:\s+4"):
        run(fenced("print(2 + 2)", "5"))


def test_an_output_that_the_page_does_not_show(run):
    with pytest.raises(AssertionError, match=r"page\.md:3:"):
        run(fenced("print(2 + 2)"))


def test_an_output_that_is_not_printed(run):
    with pytest.raises(AssertionError, match=r"(?s)Expected:\s+4\s+Got nothing"):
        run(fenced("2 + 2", "4"))


def test_another_error(run):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(fenced("1 / 0", "IndexError: list index out of range"))


def test_a_block_after_one_that_failed(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(fenced("missing") + fenced("x = 1"))
    first, second = blocks(path)
    page = Page([first, second])
    for block, message in ((first, "NameError"), (second, "page.md:3 failed")):
        with pytest.raises(AssertionError, match=message):
            page.run(block)


def test_namespaces_are_a_page_each(run):
    run(fenced("x = 1"))
    with pytest.raises(AssertionError, match="NameError"):
        run(fenced("x"))


@pytest.mark.parametrize("text", ["```python\nx = 1\n", '```text title="Output"\n1\n```\n'])
def test_what_is_not_well_formed(run, text):
    with pytest.raises(ValueError, match=r"page\.md:1"):
        run(text)
