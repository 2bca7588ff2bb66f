"""The command line prints what the package knows, as text and as JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points

import mla_kernels as mla
import pytest
from mla_kernels.diagnostics import cli
from mla_kernels.diagnostics.cli import main
from mla_kernels.models import model, models

from tests.runtime.site import sm90_registry

ENTRY = "import sys; from mla_kernels.diagnostics.cli import main; sys.exit(main())"
"""What the console script does."""
BENCH = ("bench", "--arch=cpu", "--heads=1", "--seq=10", "--repeats=1")


@pytest.fixture
def run(capsys):
    """Run a command; its exit status, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_list_filters(run):
    status, out, _ = run("list", "op=decode", "kv_dtype=e4m3", "page_size=64", "--json")
    assert status == 0
    assert [row["name"] for row in json.loads(out)] == [
        variant.name for variant in mla.variants(op="decode", kv_dtype="e4m3")
    ]
    status, out, _ = run("list", "op=merge_states")
    assert "cpu_merge_states_ifp32_obf16_rows" in out
    assert "cpu_decode" not in out


def test_list_says_how_accurate_fp8_arithmetic_is(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert "accuracy of 4 of them: Q and P are rounded to e4m3" in run("list", "compute_dtype=e4m3", "arch=cpu")[1]
    assert "accuracy" not in run("list", "compute_dtype=exact", "arch=cpu")[1]


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
        (("models", "GPT-2"), "ValueRangeError: model: got 'GPT-2'; accepts DeepSeek-V2-Lite, "),
        (("models", "--arch=sm90a"), "arch: got 'sm90a'; accepts cpu, whose payloads are installed"),
        (("models", "--tp=0"), "tensor-parallel: got 0; accepts integers from 1"),
        (("models", "DeepSeek-R1", "--tp=0"), "tensor-parallel: got 0; accepts integers from 1"),
        (("explain", f"page_size={'9' * 5000}"), "page_size: got an integer of 5000 digits; accepts one of fewer"),
        (("models", "GLM-4.7-Flash", "--tensor-parallel=8"), "tensor_parallel: got 8; accepts a divisor of 20"),
        (("bench", "--arch=cpu", "--dtypes", "int8"), "dtypes: got 'int8'"),
        (("bench", "--arch=cpu", "--repeats=0"), "repeats: got 0; accepts integers from 1"),
        (("bench", "--arch=cpu", "--suite=h200", "--batch=3"), "batch: got 3; accepts nothing beside --suite"),
        (("bench", "--arch=cpu", f"--heads={10**11}"), "heads=100000000000 q_len=1 batch=8 seq=4096 page_size=64"),
        (("bench", "--arch=cpu", f"--seq={10**11}"), "accepts what fits into the memory of device 0"),
        (("bench", "--arch=sm11"), "arch: got 'sm11'; accepts"),
        (("models", "--arch=sm90"), "arch: got 'sm90a'; accepts cpu, whose payloads are installed"),
    ],
)
def test_errors_are_one_line_and_status_1(run, arguments, part):
    status, out, err = run(*arguments)
    assert (status, out) == (1, "")
    assert part in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("fields", [("op=decode", "--json", "kv_dtype=e4m3"), ("--json", "op=decode", "kv_dtype=e4m3")])
def test_an_option_may_stand_between_fields(run, fields):
    status, out, _ = run("list", *fields, "page_size=64")
    assert status == 0
    assert [row["name"] for row in json.loads(out)] == [
        variant.name for variant in mla.variants(op="decode", kv_dtype="e4m3")
    ]


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (("list", "num_heads=16", "--json", "op=decode", "--fast"), "--fast"),
        (("info", "op=decode"), "op=decode"),
        (("completion", "bash", "zsh"), "zsh"),
    ],
)
def test_what_a_command_does_not_take(run, capsys, arguments, unknown):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"usage: mla-kernels {arguments[0]} ")
    assert said.endswith(f"mla-kernels {arguments[0]}: error: unrecognized arguments: {unknown}\n")


def test_an_unknown_model_is_told_the_closest(run):
    for name, closest in (
        ("DeepSeek", {"DeepSeek-R1", "DeepSeek-V3.2"}),
        ("kimi-k25", {"Kimi-K2.5"}),
        ("zai-org/GLM51", {"GLM-5.1"}),
    ):
        *told, rest = run("models", name)[2].split("accepts ")[1].strip().split(", ")
        assert rest == "or another that `mla-kernels models` lists"
        assert closest <= {*told}
        assert len(told) < len(models()) / 2
        assert all(map(model, told))


def test_a_model_that_is_not_served_says_why(run, monkeypatch):
    status, out, _ = run("models", "A.X-K2", "--tp=4")
    assert status == 0
    assert "  none of its operations\nnot served on any arch: no kernel here has 160 columns\n" in out
    of_one = replace(model("GLM-5.3-Flash"), unserved=(("sm100f", "no kernel there has its rows"),))
    monkeypatch.setattr(cli, "model", lambda _: of_one)
    out = " ".join(run("models", "GLM-5.3-Flash", "--arch=cpu")[1].split())
    assert "not served on sm100f: no kernel there has its rows" in out
    assert "not served: " not in out


def test_a_config_that_is_not_served_is_named(run):
    out = " ".join(run("models", "MiniCPM3-4B", "--arch=cpu")[1].split())
    assert "not served: op=decode kv_dtype=bf16 arch=cpu out_dtype=bf16 num_heads=40 d_qk=288 d_v=256;" in out


def test_a_payload_that_is_absent_is_said(run):
    for name in ("sm90a", "sm90"):
        status, out, err = run("list", f"arch={name}")
        assert (status, out) == (1, "")
        assert err.startswith("the payload of arch sm90a is not installed: in a clone, nox -s wheels -- sm90 && ")
    status, out, err = run("list", "op=decode", "arch=sm90a", "--json")
    assert (status, json.loads(out)) == (1, [])
    assert "is not installed" in err


def test_a_payload_that_was_rejected_is_said(run, site, rediscover):
    site.install("sm90", version="99.1", registry=sm90_registry())
    rediscover()
    status, _, err = run("list", "arch=sm90a")
    assert status == 1
    assert "the payload of arch sm90a was rejected: distribution mla-kernels-sm90 is version 99.1" in err


def test_a_list_of_nothing_says_why(run):
    status, out, err = run("list", "op=decode", "arch=cpu", "q_dtype=e4m3")
    assert (status, out) == (1, "")
    assert err == "no variant of the installed payloads (cpu) serves op=decode arch=cpu q_dtype=e4m3\n"


def test_the_console_script_is_the_command():
    (script,) = entry_points(group="console_scripts", name="mla-kernels")
    assert script.load() is main


@pytest.mark.parametrize("program", [("-m", "mla_kernels"), ("-c", ENTRY)])
def test_module_and_script_run(program):
    done = subprocess.run([sys.executable, *program, "list", "--json"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)) == len(mla.variants())
    assert done.stderr == b""
    version = subprocess.run([sys.executable, *program, "--version"], capture_output=True, check=True, text=True)
    assert version.stdout == f"mla-kernels {mla.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("info",),
        ("list",),
        ("models",),
        ("models", "DeepSeek-V3.2"),
        ("explain", "op=decode", "q_dtype=bf16"),
        ("explain", "op=decode", "q_dtype=bf16", "kv_dtype=fp32"),
        ("doctor",),
        (*BENCH, "--batch=1,2", "--seq=10,20"),
        (*BENCH, "--batch=1,2", "--seq=10,20", "--q-len=1,2", "--page-size=16,64", "--dtypes=bf16,bf16:fp8_ds_mla"),
    ],
    ids=" ".join,
)
def test_80_columns(run, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = run(*arguments)
    assert err == ""
    assert [line for line in out.splitlines() if len(line) > 80 and " " in line.strip()] == []
    words = [word for line in out.splitlines() for word in line.split() if "_direct_split" in word]
    assert all(word.startswith("cpu_") for word in words), "a name was broken"


def test_a_pipe_has_a_line_for_each_row(run, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("list", "op=decode")[1].splitlines()
    assert len(lines) == 2 + len(mla.variants(op="decode"))
    assert all("page_size 1 and up" in line for line in lines[2:])


def test_progress_is_shown_on_a_terminal_only():
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mla_kernels", *BENCH, "--batch=1,2"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True, text=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "decode: 1 of 2" in shown
    assert "decode: 2 of 2" in shown
    assert shown.endswith("\r\x1b[K")
    assert "1 of 2" not in done.stdout
    piped = subprocess.run(command, capture_output=True, check=True, text=True)
    assert piped.stderr == ""


def test_models(run):
    status, out, _ = run("models")
    assert status == 0
    (row,) = (line for line in out.splitlines() if line.startswith("DeepSeek-V3.2 "))
    assert row.split() == ["DeepSeek-V3.2", "128", "576", "512", "2048", "cpu"]
    (row,) = (line for line in out.splitlines() if line.startswith("MiniCPM3-4B "))
    assert row.endswith("no payload here")
    served = {each["name"]: each["served_by"] for each in json.loads(run("models", "--json")[1])}
    assert (served["Kimi-K2"], served["DeepSeek-V4-Flash"], served["A.X-K2"]) == (["cpu"], ["cpu"], [])
    assert "GLM-4.7-Flash" not in run("models", "--tensor-parallel=8")[1]


@pytest.mark.parametrize(
    ("degree", "title"),
    [
        (1, f"{len(models())} models"),
        (3, f"1 of {len(models())} models has heads that 3 divides"),
        (16, f"{sum(each.heads % 16 == 0 for each in models())} of {len(models())} models have heads that 16 divides"),
    ],
)
def test_models_whose_heads_cannot_be_shared_are_counted(run, degree, title):
    assert run("models", f"--tp={degree}")[1].startswith(f"{title}; mla-kernels models MODEL")


def test_one_model(run):
    status, out, _ = run("models", "deepseek-r1", "--tensor-parallel=8")
    assert status == 0
    assert "with 16 heads on a rank of 8, the installed payloads serve" in out
    assert "op=decode kv_dtype=e4m3 arch=cpu out_dtype=bf16 num_heads=16" in out
    told = json.loads(run("models", "deepseek-r1", "--json")[1])
    assert [(row["num_heads"], row["variant"]) for row in told["served"]] == [
        (128, "cpu_decode_qbf16_kvbf16_obf16_direct_split"),
        (128, "cpu_decode_qbf16_kve4m3_obf16_direct_split"),
    ]
    assert "none of its operations" in run("models", "MiniCPM3-4B")[1]


def test_windows_and_drafts_of_a_model(run):
    lines = run("models", "DeepSeek-V4-Flash")[1].splitlines()
    assert {"window: 128", "q_lens: 2, 6"} < set(lines)
    assert any(line.startswith("source of q_lens: transformers deepseek_v4") for line in lines)
    assert "q_lens: not stated" in run("models", "DeepSeek-V2")[1].splitlines()
    assert json.loads(run("models", "DeepSeek-V4-Flash", "--json")[1])["q_lens"] == [2, 6]


def test_completion(run, tmp_path):
    script = tmp_path / "completion"
    script.write_text(run("completion", "bash")[1])
    ask = "source {}; COMP_WORDS=(mla-kernels {}); COMP_CWORD={}; _shtab_mla_kernels; echo ${{COMPREPLY[@]}}"
    for words, place, wanted in (("do", 1, "doctor"), ("info --j", 2, "--json"), ("completion z", 2, "zsh")):
        command = ["bash", "-c", ask.format(script, words, place)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [wanted], done.stderr
    assert run("completion", "zsh")[1].startswith("#compdef mla-kernels")


def test_completion_without_its_package(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    status, out, err = run("completion", "bash")
    assert (status, out) == (1, "")
    assert "this needs shtab: pip install 'mla-kernels[cli]'" in err


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
