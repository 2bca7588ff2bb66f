"""The table of what is supported, and its copy in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen import readme, sync
from codegen.__main__ import main
from codegen.load import load
from codegen.render import by_payload, pages
from codegen.validate import checked

EMPTY = "# Title\n\n<!-- support: begin -->\n<!-- support: end -->\n\nThe end.\n"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A README without a table, beside an empty ``generated/``."""
    (tmp_path / "generated").mkdir()
    monkeypatch.setattr(sync, "GENERATED", tmp_path / "generated")
    path = tmp_path / "README.md"
    path.write_text(EMPTY)
    return path


def test_the_readme_gets_the_table_and_keeps_the_rest(copy: Path) -> None:
    assert readme.is_stale("| a |\n")
    readme.write("| a |\n")
    assert copy.read_text() == EMPTY.replace("begin -->\n", "begin -->\n| a |\n")
    assert not readme.is_stale("| a |\n")


def test_a_clone_without_a_readme_is_not_stale(copy: Path) -> None:
    copy.unlink()
    assert not readme.is_stale("| a |\n")


def test_check_names_a_stale_readme(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(readme, "is_stale", lambda table: True)
    assert main(["check"]) == 1
    assert "the table in README.md" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_limit_and_gpus_first() -> None:
    matrix = load()
    rows = pages.support(matrix, by_payload(matrix, checked(matrix)))["rows"]
    hopper = [row for row in rows if row[0].startswith("Hopper")]
    assert hopper == rows[: len(hopper)]
    of_hopper = [row[1:] for row in hopper]
    assert ("decode", "576/512", "any", "1 to 256", "any", ["`fp16`", "`bf16`"]) in of_hopper
    e4m3 = ("decode", "576/512", "8 and up, multiples of 8", "1 to 256", "any", ["`e4m3` with bf16 queries"])
    assert e4m3 in of_hopper
    assert rows[-1][0].startswith("CPU")
    assert {row[2] for row in rows if row[0].startswith("CPU")} == {"576/512", "512/512", "320/256"}
