"""The fuzzer knows every op, finds planted faults, replays a case by its seed, and goes on where it was killed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args

import pytest
from mla_kernels import _launcher
from mla_kernels._types import OpName

from tests.fuzz import command, planted
from tests.fuzz.changes import wild
from tests.fuzz.changes.mutations import mutated
from tests.fuzz.draw import PROBLEMS, drawn
from tests.fuzz.memory import Space
from tests.fuzz.problems.case import RETURNED, Maker
from tests.fuzz.supervisor import Progress, Settings, Supervisor
from tests.fuzz.worker import BLOCK, Finding, Worker, shared

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_every_op_is_fuzzed() -> None:
    assert set(PROBLEMS) == set(RETURNED) == set(wild.KINDS) == set(get_args(OpName)) == set(_launcher.OPS)


def test_every_variant_and_kind_is_drawn() -> None:
    noise, variants = shared("cpu")
    space = Space()
    cases = [drawn(seed, noise, variants, space) for seed in range(3000) if space.reset() is None]
    assert {case.variant.name for case in cases} == {row.name for rows in variants.values() for row in rows}


@pytest.mark.parametrize("op", PROBLEMS)
def test_every_argument_is_made_wrong(op: str) -> None:
    noise, variants = shared("cpu")
    space = Space()
    wrong = set()
    for seed in range(500):
        space.reset()
        make = Maker(seed, noise, "cpu")
        case = mutated(make, PROBLEMS[op](make, make.random.choice(variants[op])), space)
        wrong.add(case.label.partition(" ")[0])
    assert set(_launcher.OPS[op]) <= wrong


def test_the_model_of_right_answers_knows_nothing_of_the_package() -> None:
    for name in ("model.py", "elements.py", "formats.py"):
        tree = ast.parse((HERE / name).read_text())
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        assert not [module for module in modules if module.startswith(("mla_kernels", "torch", "tests.support"))]


def settings(fault: planted.Call | None = None, patience: float = 60.0) -> Settings:
    make = Worker if fault is None else lambda *_: planted.Planted(fault)
    return Settings("cpu", "cpu", 2, ("baseline",), patience, make=make)


def run(fault: planted.Call | None, folder: Path, seeds: range, patience: float = 60.0) -> list[Finding]:
    progress = Progress({})
    Supervisor(settings(fault, patience), progress, folder / "fuzz.progress").run(seeds, lambda finding: None)
    return progress.findings


FAULTS = {
    planted.beyond: ("memory beside an output is overwritten", "crash: SIGSEGV"),
    planted.before: ("memory beside an output is overwritten", "crash: SIGSEGV"),
    planted.wrong: ("wrong answer",),
    planted.touching: ("an input is changed",),
    planted.early: ("written before a refusal",),
    planted.untyped: ("untyped error",),
    planted.misnamed: ("another argument is named",),
    planted.lenient: ("an illegal call is accepted",),
    planted.refusing: ("a legal call is refused",),
    planted.dying: ("crash: SIGABRT",),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: planted.Call, tmp_path: Path) -> None:
    found = run(fault, tmp_path, range(150))
    assert set(FAULTS[fault]) <= {finding.fault for finding in found if finding.op == "gather_kv"}


def test_a_hang_is_found_and_the_rest_is_run(tmp_path: Path) -> None:
    noise, variants = shared("cpu")
    space = Space()
    first = next(
        seed for seed in range(200)
        if space.reset() is None
        and (case := drawn(seed, noise, variants, space)).op == "gather_kv"
        and (case.how, case.kind) == ("op", "right")
    )  # fmt: skip
    (finding,) = run(planted.hanging, tmp_path, range(first, first + 2), patience=2.0)
    assert (finding.seed, finding.fault) == (first, "hang")


def test_a_seed_draws_one_case() -> None:
    noise, variants = shared("cpu")
    space = Space()
    for seed in range(100):
        space.reset()
        one = drawn(seed, noise, variants, space)
        space.reset()
        other = drawn(seed, noise, variants, space)
        assert (one.variant, one.kind, one.label, one.how) == (other.variant, other.kind, other.label, other.how)
        assert repr(one.arrays()) == repr(other.arrays())


def test_a_killed_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fuzz.json"
    arguments = ["--jobs", "2", "--first", str(2 * BLOCK - 20), "--cases", "40", "--out", str(out)]
    command.main(arguments)
    whole = json.loads(out.read_text())
    path = out.with_suffix(".progress")
    progress = json.loads(path.read_text())
    assert progress["blocks"] == [1, 2]
    assert whole["cases"] == sum(whole["ops"].values()) == sum(whole["ends"].values()) == 40
    progress["blocks"] = [1]
    path.write_text(json.dumps(progress))
    command.main(arguments)
    assert "goes on: 1 blocks" in capsys.readouterr().out
    assert json.loads(path.read_text())["blocks"] == [1, 2]


def test_a_case_is_replayed_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLA_KERNELS_CPU_ISA", "MLA_KERNELS_CPU_THREADS"):
        monkeypatch.setenv(name, "")
    assert command.main(["--replay", "11"]) == 0
    assert "as it should be" in capsys.readouterr().out


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "evidence" / "fuzz").glob("*.json")), ids=lambda path: path.stem
)
def test_the_page_says_what_the_evidence_shows(path: Path) -> None:
    shown = json.loads(path.read_text())
    assert shown["cases"] == shown["seeds"][1] - shown["seeds"][0]
    assert set(shown["ops"]) == set(PROBLEMS)
    assert shown["findings"] == len(shown["sorts"]) == 0
    row = f"| {shown['cases']:,} | `{shown['commit'][:7]}` | `{shown['library_sha256'][:12]}` |"
    assert row in (ROOT / "docs" / "fuzzing.md").read_text(encoding="utf-8")
