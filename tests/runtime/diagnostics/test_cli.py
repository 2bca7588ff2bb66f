"""The command line prints what the package knows, as text and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mla_kernels as mla
import pytest
from mla_kernels.bench import report
from mla_kernels.diagnostics.cli import main

from tests.support.native.build import build


@pytest.fixture
def run(capsys):
    """Run a command; its exit status, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_info(run):
    status, out, _ = run("info")
    assert status == 0
    assert f"mla-kernels {mla.__version__}" in out
    assert "rejected" not in out
    status, out, _ = run("info", "--json")
    told = json.loads(out)
    assert told["version"] == mla.__version__
    assert [payload["payload"] for payload in told["payloads"]] == ["cpu"]
    assert told["payloads"][0]["variants"] == len(mla.variants())
    assert told["devices"][-1]["arch"] == "cpu"


def test_info_shows_the_commit_of_each_payload(run, site, rediscover):
    site.install("toy")
    site.manifest("toy", dirty=True)
    site.install("other")
    site.manifest("other", commit=None)
    rediscover()
    rows = {row["payload"]: row["commit"] for row in json.loads(run("info", "--json")[1])["payloads"]}
    assert (rows["toy"], rows["other"]) == ("0123456789ab+dirty", None)
    assert "0123456789ab+dirty" in run("info")[1]


def test_info_shows_rejected_payloads_with_their_reason(run, site, rediscover):
    site.install("toy", version="99.1")
    rediscover()
    assert "mla-kernels-toy is version 99.1" in run("info")[1]
    assert json.loads(run("info", "--json")[1])["rejected"][0]["payload"] == "toy"


def test_list_filters(run):
    status, out, _ = run("list", "op=decode", "kv_dtype=e4m3", "page_size=64", "--json")
    assert status == 0
    assert [row["name"] for row in json.loads(out)] == [
        variant.name for variant in mla.variants(op="decode", kv_dtype="e4m3")
    ]
    status, out, _ = run("list", "op=merge_states")
    assert "cpu_merge_states_ifp32_obf16_rows" in out
    assert "cpu_decode" not in out


def test_explain(run):
    status, out, _ = run("explain", "op=decode", "q_dtype=bf16")
    assert (status, "is served by cpu_decode_qbf16" in out) == (0, True)
    status, out, _ = run("explain", "op=decode", "q_dtype=bf16", "kv_dtype=fp32", "--json")
    told = json.loads(out)
    assert status == 1
    assert told["chosen"] is None
    assert told["command"].startswith("nox -s generate -- add op=decode arch=cpu q_dtype=bf16 kv_dtype=fp32")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("list", "heads=3"), "ValueRangeError: config field: got 'heads'"),
        (("list", "decode"), "config: got 'decode'; accepts field=value"),
        (("explain", "op=encode"), "op: got 'encode'; accepts decode"),
        (("bench", "--arch=cpu", "--dtypes", "int8"), "dtypes: got 'int8'"),
        (("bench", "--arch=cpu", "--threads", "100000"), "threads: got 100000; accepts 1 to"),
    ],
)
def test_errors_are_one_line_and_status_1(run, arguments, part):
    status, out, err = run(*arguments)
    assert (status, out) == (1, "")
    assert part in err
    assert len(err.splitlines()) == 1


def test_missing_rich_is_said_and_json_needs_none(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    status, _, err = run("list")
    assert status == 1
    assert "this needs rich: pip install 'mla-kernels[cli]'" in err
    assert run("list", "--json")[0] == 0


def test_module_runs():
    done = subprocess.run([sys.executable, "-m", "mla_kernels", "list", "--json"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)) == len(mla.variants())
    assert done.stderr == b""


def test_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m mla_kernels list --json | head -1; exit ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[\n"
    assert done.stderr == ""


def test_bench_decode(run, tmp_path: Path):
    picture = tmp_path / "bench.png"
    options = ("--batch=2", "--seq=100", "--heads=3", "--dtypes=fp32,bf16:fp8_ds_mla", "--repeats=3")
    status, out, _ = run("bench", "--arch=cpu", *options, "--json")
    rows = json.loads(out)
    assert status == 0
    assert [(row["q"], row["kv"], row["heads"]) for row in rows] == [("fp32", "fp32", 3), ("bf16", "fp8_ds_mla", 3)]
    for row in rows:
        assert row["us"] > 0
        ceiling = max(row["GB/s"] / row["read GB/s"], row["GFLOP/s"] / row["GEMM GFLOP/s"])
        assert row["of ceiling"] == pytest.approx(ceiling)
        assert row["x torch"] == pytest.approx(row[f"torch {row['torch by']} us"] / row["us"])
        assert row["GFLOP/s"] == pytest.approx(2 * 2 * 3 * 100 * (576 + 512) / row["us"] / 1e3)
    report.plot(rows, str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "of ceiling" in run("bench", "--arch=cpu", *options)[1]


def test_bench_overhead(run, tmp_path):
    status, out, _ = run("bench", "--op=overhead", f"--noop={build(tmp_path)}", "--json")
    told = {row["what"]: row for row in json.loads(out)}
    assert status == 0
    assert told["import mla_kernels"]["to reach"] == "60 ms"
    assert len(told) == 19
    assert all(row["us"] > 0 for what, row in told.items() if "over" not in what and "allocating" not in what)
    mla.lookup(op="decode", q_dtype="bf16")
