"""``python -m benchmarks``: what it shows and writes, and what it refuses."""

from __future__ import annotations

import json
import sys

import mla_kernels as mla
import pytest
import torch
from mla_kernels.payloads.discovery import Payloads

from benchmarks.ops import overhead
from benchmarks.timing import overheads
from tests.support.native.build import build

from .imagined import cell_row, document


def test_what_was_measured_is_shown_again(bench, tmp_path):
    measured, written = tmp_path / "measured.json", tmp_path / "pages" / "page.md"
    written.parent.mkdir()
    measured.write_text(json.dumps(document(cell_row())))
    done = bench(f"--measured={measured}", f"--markdown={written}", f"--plot={tmp_path / 'p.png'}")
    assert (done.status, done.err) == (0, "")
    assert "sm90a_decode" in done.out
    assert "![roofline](../p.png)" in written.read_text()
    data = written.parent / "data" / "page.json"
    assert "[page.json](data/page.json)" in written.read_text()
    again = json.loads(data.read_text())
    assert json.loads(bench(f"--measured={data}", "--json").out) == again


def test_a_failed_cell_is_status_1(bench, tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(document(cell_row(note="RuntimeError: no"))))
    assert bench(f"--measured={path}").status == 1


def test_the_command_is_on_the_page(run, bench, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.command.HOST", "another")
    options = ("--arch=cpu", "--heads=2,3", "--batch=1", "--seq=70", "--page-size=16", "--lengths=normal")
    done = bench(*options, f"--markdown={tmp_path / 'page.md'}", "--json")
    assert done.status == 0
    told = json.loads(done.out)
    assert [row["heads"] for row in told["rows"]] == [2, 3]
    assert told["repeats"] == 7
    assert told["command"] == (
        "python -m benchmarks --op decode --arch cpu --heads 2,3 --batch 1 --seq 70 --page-size 16 --lengths normal"
    )
    assert f"`{told['command']}`" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--arch=cpu", "--threads=100000"), "threads: got 100000; accepts 1 to"),
        (("--arch=cpu", "--q-len=2"), "q-len: got 2; accepts 1"),
        (("--arch=cpu", "--page-size=16"), "page-size: got 16; accepts 64"),
        (("--arch=cpu", "--lengths=long"), "lengths: got long; accepts equal"),
        (("--arch=cpu", "--markdown=x.md"), "markdown: got x.md; accepts nothing here"),
        (("--arch=cpu", "--suite=h200", "--batch=3"), "batch: got 3; accepts nothing beside --suite"),
        (("--arch=cpu", "--plot=nowhere/x.png"), "plot: got nowhere/x.png; accepts a file in a folder that exists"),
        (("--repeats=0",), "repeats: got 0; accepts integers from 1"),
        (("--arch=sm11",), "arch: got 'sm11'; accepts"),
        (("--arch=sm90a", "--threads=1"), "threads: got 1; accepts nothing here"),
        (("--measured=nowhere.json",), "measured: got nowhere.json (FileNotFoundError"),
    ],
)
def test_refusals(bench, arguments, part):
    done = bench(*arguments)
    assert (done.status, done.out) == (1, "")
    assert part in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("missing", "option"), [("matplotlib", "--plot=x.png"), ("torch", "--batch=1")])
def test_what_is_missing_is_said_before_measuring(bench, monkeypatch, missing, option):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr("benchmarks.command._cpu", lambda options: pytest.fail("measured"))
    done = bench("--arch=cpu", option)
    assert done.status == 1
    assert f"this needs {missing}: pip install '" in done.err


def test_an_arch_that_nothing_here_runs(bench, play, rediscover, monkeypatch):
    play(COUNT=0)
    assert "DeviceError: arch: got sm90a; accepts a machine that runs it" in bench("--arch=sm90a").err
    play('{"NVIDIA H200", 9, 0}')
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "accepts a torch that is built for CUDA" in bench("--arch=sm90a").err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Payloads, "registry_of", lambda self, arch: None)
    assert "PayloadError: no payload of sm90a is in use" in bench("--arch=sm90a").err


def test_a_decode_on_the_cpu(bench, tmp_path):
    picture = tmp_path / "bench.png"
    options = ("--batch=2", "--seq=100", "--heads=3", "--dtypes=fp32,bf16:fp8_ds_mla", "--repeats=3")
    done = bench("--arch=cpu", *options, f"--plot={picture}", "--json")
    rows = json.loads(done.out)
    assert done.status == 0
    assert [(row["q"], row["kv"], row["heads"]) for row in rows] == [("fp32", "fp32", 3), ("bf16", "fp8_ds_mla", 3)]
    for row in rows:
        assert row["us"] > 0
        ceiling = max(row["GB/s"] / row["read GB/s"], row["GFLOP/s"] / row["GEMM GFLOP/s"])
        assert row["of ceiling"] == pytest.approx(ceiling)
        assert row["x torch"] == pytest.approx(row[f"torch {row['torch by']} us"] / row["us"])
        assert row["GFLOP/s"] == pytest.approx(2 * 2 * 3 * 100 * (576 + 512) / row["us"] / 1e3)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "of ceiling" in bench("--arch=cpu", *options).out


def test_overheads(bench, monkeypatch, tmp_path):
    """Of few calls: what is timed is not the test's."""
    few = {"number": 200, "repeats": 5}
    monkeypatch.setattr(overhead, "overheads", lambda calls, **_: overheads(calls, **few))
    monkeypatch.setattr(overhead.import_time, "__defaults__", (3,))
    done = bench("--op=overhead", f"--noop={build(tmp_path)}", "--json")
    told = {row["what"]: row for row in json.loads(done.out)}
    assert done.status == 0
    assert told["import mla_kernels"]["to reach"] == "60 ms"
    assert len(told) == 19
    assert all(row["us"] > 0 for what, row in told.items() if "over" not in what and "allocating" not in what)
    mla.lookup(op="decode", q_dtype="bf16")
