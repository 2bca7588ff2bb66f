"""The fuzzer knows every op, finds planted faults, replays a case by its seed, and goes on where it was killed."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from mla_kernels import _launcher
from mla_kernels._types import OpName

from tests.fuzz import command, planted
from tests.fuzz.changes import wild
from tests.fuzz.changes.mutations import mutated
from tests.fuzz.draw import PROBLEMS, drawn
from tests.fuzz.memory import Array, Space
from tests.fuzz.problems.case import RETURNED, Case, Maker, whole
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


def ragged_decodes(first: int, count: int) -> Iterator[tuple[Maker, Case]]:
    """So many legal decodes of ragged queries."""
    noise, variants = shared("cpu")
    made = (Maker(seed, noise, "cpu") for seed in itertools.count(first))
    cases = ((make, PROBLEMS["decode"](make, make.random.choice(variants["decode"]))) for make in made)
    return itertools.islice((pair for pair in cases if "cu_seqlens_q" in pair[1].arguments), count)


def test_ragged_queries_of_every_form_are_drawn() -> None:
    seen = set().union(*(forms(case) for _, case in ragged_decodes(0, 400)))
    assert {"no request", "no token", "an empty request", "equal requests", "a higher max_q_len"} <= seen
    assert {"tokens before", "tokens after", "lse by tokens", "batch_invariant", "check"} <= seen


def test_every_kind_of_case_has_ragged_queries() -> None:
    noise, variants = shared("cpu")
    space = Space()
    cases = [drawn(seed, noise, variants, space) for seed in range(4000) if space.reset() is None]
    ragged = [case for case in cases if "cu_seqlens_q" in case.arguments]
    assert {"right", "long", "mutated", "wild", "alias", "plan", "asked", "threads"} <= {case.kind for case in ragged}
    assert {"op", "planned"} <= {case.how for case in ragged if case.kind == "right"}


def test_ragged_queries_are_made_wrong() -> None:
    space = Space()
    wrong = {wild.wild(make, case).label for make, case in ragged_decodes(0, 200)}
    wrong |= {mutated(make, case, space).label for make, case in ragged_decodes(10_000, 4000) if space.reset() is None}
    assert {"cu_seqlens_q out of range", "max_q_len below the tokens of a request"} <= wrong
    assert {"max_q_len 0 with cu_seqlens_q", "cu_seqlens_q is None", "cu_seqlens_q of another extent"} <= wrong
    assert "cu_seqlens_q with a dimension more" in wrong
    assert wrong & {f"cu_seqlens_q of {dtype}" for dtype in ("int8", "int16", "uint8", "float32", "float64")}


def decodes_with_lengths_of_tokens(first: int, count: int) -> Iterator[tuple[Maker, Case]]:
    """So many legal decodes that say how many keys each query token sees."""
    noise, variants = shared("cpu")
    made = (Maker(seed, noise, "cpu") for seed in itertools.count(first))
    cases = ((make, PROBLEMS["decode"](make, make.random.choice(variants["decode"]))) for make in made)
    return itertools.islice((pair for pair in cases if "token_seq_lens" in pair[1].arguments), count)


def test_lengths_of_tokens_are_drawn_and_made_wrong() -> None:
    space = Space()
    given_ones = [case.arguments for _, case in decodes_with_lengths_of_tokens(0, 300)]
    assert {"cu_seqlens_q" in given for given in given_ones} == {"block_table" in given for given in given_ones}
    assert {given.get("causal") for given in given_ones} == {None, True, False}
    assert any(given["token_seq_lens"].strides[1] > 1 for given in given_ones)
    wrong = {wild.wild(make, case).label for make, case in decodes_with_lengths_of_tokens(0, 100)}
    made = decodes_with_lengths_of_tokens(10_000, 4000)
    wrong |= {mutated(make, case, space).label for make, case in made if space.reset() is None}
    name = "token_seq_lens"
    assert {f"{name} out of range", f"{name} of another extent", f"{name} of int16", f"{name} on meta"} <= wrong
    assert {f"{name} with a dimension more", f"{name} with a dimension fewer", f"{name} is 3"} <= wrong


def forms(case: Case) -> set[str]:
    bounds, lse, most = case.arguments["cu_seqlens_q"].values, case.arguments.get("lse"), case.arguments["max_q_len"]
    tokens, counts = whole(case.arguments["q"]).shape[1], np.diff(bounds)
    found = {
        "no request": len(counts) == 0,
        "no token": tokens == 0,
        "an empty request": (counts == 0).any(),
        "equal requests": len(counts) > 1 and counts[0] > 0 and (counts == counts[0]).all(),
        "a higher max_q_len": len(counts) > 0 and most > counts.max(),
        "tokens before": bounds[0] > 0,
        "tokens after": bounds[-1] < tokens,
        "lse by tokens": isinstance(lse, Array) and lse.shape[1] > 1 and lse.strides[1] == 1 < lse.strides[2],
        "batch_invariant": case.arguments.get("batch_invariant") is True,
        "check": case.arguments.get("check") is True,
    }
    return {name for name, holds in found.items() if holds}


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


def settings(fault: planted.Call | None = None, patience: float = 60.0, op: str = "gather_kv") -> Settings:
    make = Worker if fault is None else lambda *_: planted.Planted(fault, op)
    return Settings("cpu", "cpu", 2, ("baseline",), patience, make=make)


def run(
    fault: planted.Call | None, folder: Path, seeds: range, patience: float = 60.0, op: str = "gather_kv"
) -> list[Finding]:
    progress = Progress({})
    Supervisor(settings(fault, patience, op), progress, folder / "fuzz.progress").run(seeds, lambda finding: None)
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


@pytest.mark.parametrize(
    ("fault", "found"),
    [(planted.spilling, "memory beside an output is overwritten"), (planted.shifted, "wrong answer")],
    ids=["spilling", "shifted"],
)
def test_a_fault_of_ragged_queries_is_found(fault: planted.Call, found: str, tmp_path: Path) -> None:
    findings = run(fault, tmp_path, range(1000), op="decode")
    assert found in {finding.fault for finding in findings}
    assert {finding.op for finding in findings} == {"decode"}


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
