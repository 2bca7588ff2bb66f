"""The ways to attend to a shared prefix, on the CPU: they agree, and a page is written of those that do."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.problems import SCALE

from benchmarks import shared_prefix
from benchmarks.ops import cuda
from benchmarks.pages import shared_prefix as pages
from benchmarks.shared_prefix import Cell, Problem, difference, measure, wrong

from .imagined import MACHINE, US

SMALL = Cell(batch=3, heads=4, prefix=128, suffix=64)
CPU = torch.device("cpu")


def plain(q, keys, values):
    scores = SCALE * q.float() @ keys.float().transpose(-1, -2)
    return (scores.softmax(-1) @ values.float()).bfloat16(), scores.logsumexp(-1)


def padded(q, keys, values):
    """As torch's efficient attention: the LSE has more columns than there are queries."""
    out, lse = plain(q, keys, values[..., :128])
    return out, torch.nn.functional.pad(lse, (0, 29))


def in_base_2(q, keys, values):
    out, lse = plain(q, keys, values)
    return out, lse / math.log(2)


def absent(q, keys, values):
    raise RuntimeError("No available kernel.\nmore")


@pytest.fixture
def row(monkeypatch):
    """The measurement of a small cell with some attentions, each call imagined to take ``US``."""

    def replayed(calls: Any, repeats: int) -> float:
        assert len(calls) == 4
        for call in calls:
            call()
        return US / 1e6

    monkeypatch.setattr(timing, "replayed", replayed)

    def call(**attentions):
        monkeypatch.setattr(shared_prefix, "ATTENTIONS", attentions)
        return measure(SMALL, CPU, 3)

    return call


def test_ways_agree(row):
    found = row(plain=plain, padded=padded, absent=absent)
    assert wrong(found) == []
    assert found["by"] == "plain"
    assert found["torch"]["absent"] == {"note": "RuntimeError: No available kernel."}
    assert {name for name in found if name.endswith(" us")} == {
        f"{name} us"
        for name in ("whole", "absorbed", "cascade", "prefix", "suffix", "absorbed prefix", "projections", "merge")
    }
    assert 0 < found["cascade difference"] < shared_prefix.ALLOWED / 2


def test_an_lse_of_another_base_is_wrong(row):
    (fault,) = wrong(row(plain=plain, base=in_base_2))
    assert fault.startswith("base: ")


def test_a_prefix_that_torch_does_not_serve(row):
    found = row(absent=absent)
    assert "by" not in found
    assert "cascade us" not in found


def test_a_difference_of_nan_is_wrong():
    found = {"absorbed difference": float("nan"), "torch": {}}
    assert wrong(found) == ["absorbed: nan"]
    assert difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0])) == pytest.approx(4 / 3)


def test_the_prefix_is_the_same_pages_for_all():
    problem = Problem(SMALL, CPU, 0)
    assert problem.table.shape == (3, 3)
    assert {tuple(pages) for pages in problem.table[:, :2].tolist()} == {tuple(problem.prefix_table[0].tolist())}
    assert len({*problem.table.flatten().tolist()}) == 5


def test_costs():
    """The figures of the guide: 128 heads, 64 requests that share 8,192 tokens."""
    counts = Cell(64, 128, 8192, 0).counts
    assert counts["whole GFLOP"] == pytest.approx(64 * 128 * 8192 * 2 * 1088 / 1e9)
    assert counts["whole GFLOP"] / counts["cascade GFLOP"] == pytest.approx(3.4)
    assert counts["cascade MB"] == pytest.approx(128 * 8192 * 640 / 1e6)
    assert counts["whole MB"] == pytest.approx(8192 * 1152 / 1e6)


def test_every_cell_fits_the_pages():
    assert all(
        cell.prefix % shared_prefix.PAGE == cell.suffix % shared_prefix.PAGE == 0 for cell in shared_prefix.CELLS
    )
    assert {(cell.heads, cell.batch, cell.prefix) for cell in shared_prefix.CELLS} >= {(128, 64, 8192)}


def document(*rows):
    return {
        "command": "python -m benchmarks.shared_prefix OUT.json",
        "machine": MACHINE,
        "payload": {"name": "sm90", "version": "0.1.0", "commit": None, "library_sha256": "f" * 64},
        "allowed difference": shared_prefix.ALLOWED,
        "repeats": 3,
        "rows": json.loads(json.dumps(rows)),
    }


def test_a_page(row, tmp_path, monkeypatch):
    found = row(plain=plain)
    (tmp_path / "some.json").write_text(json.dumps(document({**found, "whole us": 250.0})))
    path = tmp_path / "some.md"
    monkeypatch.setattr("sys.argv", ["shared_prefix", str(tmp_path / "some.json"), "--page", str(path)])
    assert shared_prefix.main() == 0
    text = path.read_text()
    assert text.startswith("# A shared prefix: Imagined GPU\n\n| requests | shared | own | one decode, us |")
    assert "| 3 | 128 | 64 | 250 | 100 | 100 | 2.50x | 2.50x |" in text
    assert "[some.json](data/some.json)" in text
    assert "no commit" in text


@pytest.mark.parametrize("change", [{"cascade difference": 0.5}, {"absorbed difference": float("nan")}])
def test_a_page_of_results_that_differ_is_refused(row, change):
    with pytest.raises(ValueError, match="same values"):
        pages.page(document({**row(plain=plain), **change}), data="data/some.json")


def test_a_page_without_a_cascade_is_refused(row):
    with pytest.raises(ValueError, match="same values"):
        pages.page(document(row(absent=absent)), data="data/some.json")


@pytest.mark.parametrize(("attention", "status"), [(plain, 0), (in_base_2, 1), (absent, 1)])
def test_a_run(row, tmp_path, monkeypatch, attention, status):
    row(plain=plain)
    monkeypatch.setattr(shared_prefix, "ATTENTIONS", {"some": attention})
    monkeypatch.setattr(shared_prefix, "CELLS", (SMALL,))
    monkeypatch.setattr(shared_prefix, "measure", lambda cell, device, repeats: measure(cell, CPU, repeats))
    monkeypatch.setattr(cuda, "machine", lambda: MACHINE)
    assert shared_prefix.run(tmp_path / "out.json", 3) == status
    written = json.loads((tmp_path / "out.json").read_text())
    assert (written["machine"], len(written["rows"]), written["payload"]["name"]) == (MACHINE, 1, "cpu")
