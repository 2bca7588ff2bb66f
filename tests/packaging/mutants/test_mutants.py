"""Every mutant still applies, and the runner tells killed from surviving ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ci.mutants import campaign
from ci.mutants.mutant import Mutant, MutantError, mutants, problems
from ci.mutants.results import PAGE, Result, Results, page, table
from ci.mutants.workspace import Workspace

MUTANT = Mutant("m", "part.py", "+ 1", "+ 2", "It counts wrong.", ("test_part.py",), "python")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clone with one module and its test."""
    folder = tmp_path / "clone"
    (folder / "package" / "mla_kernels").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "mla-kernels"\nversion = "0.0.1"\n')
    (folder / "part.py").write_text("def next_of(n):\n    return n + 1\n\n\nWAIT = 0\n")
    (folder / "test_part.py").write_text(
        "import time\nimport part\n\ndef test_next():\n    time.sleep(part.WAIT)\n    assert part.next_of(1) == 2\n"
    )
    return folder


@pytest.fixture
def workspace(source: Path, tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "scratch", source, {})


def test_every_mutant_applies_and_names_tests_that_are_there():
    assert problems(mutants()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"before": "+ 3"}, "m: part.py has its text 0 times"),
        ({"before": "t"}, "m: part.py has its text 2 times"),
        ({"file": "gone.py"}, "m: gone.py has its text 0 times"),
        ({"after": "+ 1"}, "m: it changes nothing"),
        ({"tests": ()}, "m: it names no test"),
        ({"tests": ("test_part.py::test_gone",)}, "m: there is no test test_part.py::test_gone"),
    ],
)
def test_a_mutant_that_no_longer_fits_is_named(source, changed, said):
    assert problems([MUTANT], source) == []
    assert any(said in problem for problem in problems([replace(MUTANT, **changed)], source))


def test_two_mutants_of_one_name(source):
    assert problems([MUTANT, MUTANT], source) == ["m: 2 mutants have this name"]


def test_a_row_with_other_fields_is_refused(tmp_path):
    (tmp_path / "python.toml").write_text("[[mutant]]\nname = 'm'\nwhere = 'there'\n")
    with pytest.raises(MutantError, match=r"python\.toml: m: unknown fields: \['where'\], missing fields: \['after'"):
        mutants(tmp_path)


@pytest.mark.parametrize(
    ("changed", "outcome", "by"),
    [
        ({}, "killed", "test_part.py::test_next"),
        ({"after": "+ 1.0"}, "survived", ""),
        ({"after": "+"}, "killed", "test_part.py"),
        ({"before": "WAIT = 0", "after": "WAIT = 60", "seconds": 3}, "timed out", "the limit of 3 s"),
        ({"before": "+ 3"}, "not applied", ""),
    ],
)
def test_what_becomes_of_a_mutant(workspace, changed, outcome, by):
    result = campaign.judged(replace(MUTANT, **changed), workspace, {}, "s")
    assert (result.outcome, result.by, result.sources) == (outcome, by, "s")
    assert "+ 1" in (workspace.source / "part.py").read_text()


def test_a_run_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "results.json"
    Results(path).add("m", Result("killed", "t", 1.0, MUTANT.sha256, "s"))
    again = Results(path)
    assert again.open([MUTANT], "s") == []
    assert again.open([MUTANT], "other sources") == [MUTANT]
    changed = replace(MUTANT, after="+ 9")
    assert again.open([changed], "s") == [changed]


def test_the_table_names_survivors_with_their_reasons():
    survivor = replace(MUTANT, name="other", survives="Both are the same number.")
    results = {name: Result(outcome, by, 1.0, "", "") for name, outcome, by in
               (("m", "killed", "test_part.py::test_next"), ("other", "survived", ""))}  # fmt: skip
    text = table([MUTANT, survivor], results)
    assert "| python | 2 | 1 | 0 | 1 |" in text
    assert "| `other` | Both are the same number. |" in text
    assert "| `m` | It counts wrong. | `test_part.py::test_next` |" in text


def test_the_page_has_the_results_that_were_measured():
    """``python -m ci.mutants --page`` writes it."""
    results = Results().by_name
    listed = [mutant for mutant in mutants() if mutant.name in results]
    assert [mutant.name for mutant in listed if results[mutant.name].mutant != mutant.sha256] == []
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text, mutants(), results)


def test_there_are_mutants_of_every_area_and_few_survive():
    listed = mutants()
    assert {mutant.table for mutant in listed} >= {"ci", "cpu", "generator", "launcher", "python", "sm90", "sm100"}
    assert sum(not mutant.gpu for mutant in listed) >= 80
    results = Results().by_name
    outcomes = [results[mutant.name].outcome for mutant in listed if mutant.name in results]
    assert sum(outcome in campaign.KILLED for outcome in outcomes) >= 0.95 * len(outcomes)
    assert all(mutant.survives for mutant in listed
               if mutant.name in results and results[mutant.name].outcome not in campaign.KILLED)  # fmt: skip
