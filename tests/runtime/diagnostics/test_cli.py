"""The command line prints what the package knows, as text and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import mla_kernels as mla
import pytest
from mla_kernels.diagnostics.cli import main


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
        (("bench", "--arch=cpu", "--repeats=0"), "repeats: got 0; accepts integers from 1"),
        (("bench", "--arch=cpu", "--suite=h200", "--batch=3"), "batch: got 3; accepts nothing beside --suite"),
        (("bench", "--arch=sm11"), "arch: got 'sm11'; accepts"),
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


def test_bench_times_each_cell(run):
    options = ("bench", "--arch=cpu", "--batch=2", "--seq=100", "--heads=3", "--repeats=3")
    status, out, _ = run(*options, "--dtypes=fp32,bf16:fp8_ds_mla,bf16:fp16", "--q-len=2", "--lengths=normal", "--json")
    first, second, unserved = json.loads(out)
    assert status == 0
    assert [(row["q"], row["kv"], row["heads"], row["lengths"]) for row in (first, second)] == [
        ("fp32", "fp32", 3, "normal"),
        ("bf16", "fp8_ds_mla", 3, "normal"),
    ]
    assert first["variant"] == "cpu_decode_qfp32_kvfp32_ofp32_direct_split"
    for row in (first, second):
        assert row["TFLOP/s"] == pytest.approx(2 * 2 * 3 * 2 * 100 * (576 + 512) / row["us"] / 1e6)
    assert (unserved["variant"], unserved["us"]) == ("no variant", None)
    assert "cpu_decode_qbf16_kvbf16_obf16_direct_split" in run(*options)[1]
