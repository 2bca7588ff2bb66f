"""The bench of CUDA, as far as it needs no GPU: runs, peers, what a measurement becomes; launches run on the CPU."""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.bench import cuda, decode_cuda, page, peer_figures, peers, roofline, run_cuda
from mla_kernels.bench.problems import SUITES, Problem, problems
from mla_kernels.errors import ValueRangeError
from mla_kernels.kernels.ops import DecodeKernel
from mla_kernels.payloads.discovery import Payloads

from .imagined import CEILINGS, MACHINE, US, imagine, shell

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
FIGURES = BENCHMARKS / "data" / "peers_h200.json"

# A run without a GPU


@pytest.fixture
def run(monkeypatch):
    """``measure`` of dense decodes."""
    return partial(imagine(monkeypatch), decode_cuda.OP)


def test_measure(run):
    served = Problem("bf16", "bf16", 4, 2, 100, q_len=2, lengths="normal")
    document = run(served, Problem("bf16", "fp32", 4, 2, 100))
    json.dumps(document)
    row, refused = document["rows"]
    assert row["variant"] == "cpu_decode_qbf16_kvbf16_obf16_direct_split"
    assert document["variants"] == [row["variant"]]
    assert [row[name] for name in ("us", "with plan us", "call us")] == pytest.approx([US, US, 3.0])
    assert row["TFLOP/s"] == pytest.approx(served.flop / US / 1e6)
    assert row["TB/s"] == pytest.approx(served.bytes / US / 1e6)
    assert row["of ceiling"] == pytest.approx(max(row["TB/s"] / 4, row["TFLOP/s"] / 800))
    assert (refused["variant"], refused["us"], refused["of ceiling"]) == ("no variant", None, None)
    assert "note" not in row
    assert "note" not in refused
    assert document["not installed"] == ["FlashMLA", "FlashInfer", "FA3"]
    assert document["payload"]["name"] == "cpu"
    assert len(document["payload"]["library_sha256"]) == 64


def test_only_the_time_with_plan_has_plans(run, monkeypatch):
    timed = []
    plan, replayed = DecodeKernel.plan, cuda.replayed
    monkeypatch.setattr(DecodeKernel, "plan", lambda *args, **named: timed.append("plan") or plan(*args, **named))
    monkeypatch.setattr(cuda, "replayed", lambda calls, repeats: timed.append("time") or replayed(calls, repeats))
    run(Problem("bf16", "bf16", 4, 2, 100))
    assert timed == ["plan", "time", "time", "plan", "plan"]


def test_a_cell_that_fails_is_a_note(run, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: out of luck\nmore")

    monkeypatch.setattr(DecodeKernel, "plan", fails)
    rows = run(Problem("bf16", "bf16", 4, 2, 100), Problem("bf16", "fp32", 4, 2, 100))["rows"]
    assert [row.get("note") for row in rows] == ["RuntimeError: CUDA error: out of luck", None]
    told = [row["variant"] for row in page.summary({"rows": rows, "method": decode_cuda.METHOD})]
    assert told == ["RuntimeError: CUDA error: out of luck", "no variant"]


def test_compute_bound_and_memory_bound():
    few, many = (Problem("bf16", "bf16", heads, 128, 8192) for heads in (16, 128))
    for cell, us, want in ((few, 400.0, few.bytes / 4e12 / 400e-6), (many, 400.0, many.flop / 800e12 / 400e-6)):
        assert run_cuda.of_attention(cell, us, CEILINGS)["of ceiling"] == pytest.approx(want)


# Peers


def attend(q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, scale: float) -> Any:
    return mla.decode(q, cache, table, lengths, softmax_scale=scale)


def fake_flash_mla() -> dict[str, Any]:
    def metadata(lengths: torch.Tensor, rows: int, heads: int) -> tuple[object, None]:
        return (lengths, rows, heads), None

    def attention(q, cache, table, lengths, width, metadata, splits, *, softmax_scale, causal):
        assert metadata == (lengths, q.shape[1] * q.shape[2], 1)
        assert (width, splits, causal, cache.shape[2]) == (512, None, True, 1)
        return attend(q, cache[:, :, 0], table, lengths, softmax_scale)

    return {"get_mla_metadata": metadata, "flash_mla_with_kvcache": attention}


class FakeWrapper:
    """As FlashInfer documents it: page lists one after the other, tokens of all requests in one dimension."""

    def __init__(self, scratch: torch.Tensor) -> None:
        assert scratch.nbytes == 128 << 20

    def plan(self, tokens, starts, pages, lengths, heads, latent, rope, page_size, causal, scale, q_dtype, kv_dtype):
        assert (latent, rope, causal, q_dtype, kv_dtype) == (512, 64, True, torch.bfloat16, torch.bfloat16)
        assert starts.dtype == tokens.dtype == pages.dtype == torch.int32
        assert int(starts[-1]) == len(pages)
        lists = [pages[first:last] for first, last in pairwise(starts)]
        assert [len(each) for each in lists] == [-(-int(length) // page_size) for length in lengths]
        self.table = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        self.lengths, self.scale, self.tokens = lengths, scale, tokens

    def run(self, q_latent, q_rope, latent, rope, *, out, lse, return_lse):
        assert return_lse
        assert lse.shape == out.shape[:2]
        batch = len(self.lengths)
        assert self.tokens.tolist() == list(range(0, len(out) + 1, len(out) // batch))
        q = torch.cat((q_latent, q_rope), -1).view(batch, -1, *q_latent.shape[1:2], 576)
        got, _ = attend(q, torch.cat((latent, rope), -1), self.table, self.lengths, self.scale)
        out.copy_(got.flatten(0, 1))
        return out, lse


def fake_flash_attention() -> dict[str, Any]:
    def metadata(batch, q_len, most, heads, kv_heads, width, lengths, *, qkv_dtype, headdim_v, page_size, causal):
        assert (len(lengths), kv_heads, width, headdim_v, causal) == (batch, 1, 64, 512, True)
        assert most >= int(lengths.max())
        return (q_len, heads, page_size)

    def attention(
        q, k, v, *, qv, cache_seqlens, page_table, softmax_scale, causal, scheduler_metadata
    ):  # fmt: skip
        assert causal
        assert scheduler_metadata == (q.shape[1], q.shape[2], k.shape[1])
        cache = torch.cat((v, k), -1)[:, :, 0]
        return attend(torch.cat((qv, q), -1), cache, page_table, cache_seqlens, softmax_scale)[0]

    return {"get_scheduler_metadata": metadata, "flash_attn_with_kvcache": attention}


FAKES = {
    "flash_mla": fake_flash_mla,
    "flashinfer.mla": lambda: {"BatchMLAPagedAttentionWrapper": FakeWrapper},
    "flash_attn_interface": fake_flash_attention,
}


@pytest.fixture
def install(monkeypatch):
    """Put a module with the given contents where imports find it."""

    def call(name: str, **contents: Any) -> None:
        for parent in (name.partition(".")[0], name):
            module = ModuleType(parent)
            module.__spec__ = ModuleSpec(parent, None, is_package=parent != name)
            module.__path__ = []
            monkeypatch.setitem(sys.modules, parent, module)
        vars(module).update(contents, __version__="7.8")

    return call


@pytest.mark.parametrize("lengths", ["equal", "normal"])
@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_peers_are_called_as_they_want(run, install, peer, lengths):
    install(peer.module, **FAKES[peer.module]())
    document = run(Problem("bf16", "bf16", 4, 3, 100, q_len=2, lengths=lengths))
    (row,) = document["rows"]
    assert row["peers"] == [{"name": peer.name, "version": "7.8", "us": US, "source": "same run"}]
    assert peer.name not in document["not installed"]
    assert peer_figures.ratio(row) == pytest.approx(1.0)


def test_a_peer_that_fails_is_a_note(run, install):
    def broken(*_: object) -> None:
        raise ValueError("heads\nand more")

    install("flash_mla", **{**fake_flash_mla(), "get_mla_metadata": broken})
    install("flash_attn_interface")  # lacks its functions
    install("flashinfer.mla", BatchMLAPagedAttentionWrapper=Wrong)
    first, second, third = run(Problem("bf16", "bf16", 4, 3, 100))["rows"][0]["peers"]
    assert (first["us"], first["note"]) == (None, "ValueError: heads")
    assert second["note"].startswith("its output differs from ours by")
    assert third["note"].startswith("AttributeError: module 'flash_attn_interface' has no attribute")


class Wrong(FakeWrapper):
    def run(self, *tensors, out, **others):
        return out.fill_(float("nan"))


def test_peers_are_measured_where_we_have_no_variant(run, install):
    def attention(q, *_: object, **__: object) -> tuple[torch.Tensor, None]:
        return q[..., :512], None

    install("flash_mla", **{**fake_flash_mla(), "flash_mla_with_kvcache": attention})
    (row,) = run(Problem("bf16", "fp32", 4, 2, 100))["rows"]
    assert row["variant"] == "no variant"
    assert row["peers"][0]["us"] == US
    assert peer_figures.ratio(row) is None


def cell_row(**changes: Any) -> dict[str, Any]:
    cell = Problem("bf16", "bf16", 128, 128, 8192)
    return {
        **cell.fields, **cell.counts, "variant": "sm90a_decode", "us": 500.0,
        "with plan us": 505.0, "call us": 4.0, **run_cuda.of_attention(cell, 500.0, CEILINGS), "peers": [],
        **changes,
    }  # fmt: skip


def own(name: str, us: float | None, **more: str) -> dict[str, Any]:
    return {"name": name, "version": "7.8", "us": us, "source": "same run", **more}


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "command": "python -m mla_kernels bench", "op": "decode", "arch": "sm90a", "machine": MACHINE,
        "payload": {"name": "sm90", "version": "0.1.0", "commit": "0123456789ab", "library_sha256": "f" * 64},
        "variants": ["sm90a_decode"], "method": decode_cuda.METHOD, "repeats": 7, "ceilings": CEILINGS,
        "not installed": ["FA3"], "rows": list(rows),
    }  # fmt: skip


def test_figures_of_a_file_join_their_cells():
    figures = peer_figures.load(str(FIGURES))
    served, other = peer_figures.joined(document(cell_row(), cell_row(page_size=128)), figures)["rows"]
    assert other["peers"] == []
    assert {peer["source"] for peer in served["peers"]} == {"table figure"}
    fastest = peer_figures.best(served)
    assert (fastest["name"], fastest["us"], fastest["version"]) == ("FlashMLA", 457.02, "9241ae3")
    assert peer_figures.label(fastest) == "FlashMLA, table figure"
    assert peer_figures.ratio(served) == pytest.approx(457.02 / 500)


def test_a_peer_of_the_same_run_replaces_its_figures():
    figures = peer_figures.load(str(FIGURES))
    row = cell_row(peers=[own("FlashMLA", 460.0), own("FA3", None, note="ImportError: no")])
    joined = peer_figures.joined(document(row), figures)
    assert peer_figures.joined(joined, figures) == joined
    found = {peer["name"]: peer["source"] for peer in joined["rows"][0]["peers"]}
    assert found["FlashMLA"] == "same run"
    assert "FlashMLA (vLLM)" not in found
    assert [peer["us"] for peer in joined["rows"][0]["peers"] if peer["name"] == "FA3"] == [None, 466.5]
    assert peer_figures.label(peer_figures.best(joined["rows"][0])) == "FlashMLA"


@pytest.mark.parametrize("text", ["[]", "{", '{"machine": "m"}', '{"machine": "m", "method": "m", "cells": []}'])
def test_figures_of_another_form_are_refused(tmp_path, text):
    path = tmp_path / "peers.json"
    path.write_text(text)
    with pytest.raises(ValueRangeError, match=r"^peers: got"):
        peer_figures.load(str(path))


# What a measurement becomes


def test_page():
    rows = (
        cell_row(peers=[own("FlashMLA", 460.0)]),
        cell_row(
            us=None, variant="no variant", **run_cuda.of_attention(Problem("bf16", "bf16", 1, 1, 1), None, CEILINGS)
        ),
        cell_row(note="RuntimeError: a|b", page_size=16, peers=[own("FA3", None, note="ImportError: no")]),
    )
    text = page.page(document(*rows), data="x.json", picture="x.png")
    lines = text.splitlines()
    assert lines[0] == "# Dense decode: Imagined GPU"
    assert "![roofline](x.png)" in lines
    assert "[x.json](x.json)" in text
    assert "commit `0123456789ab`" in text
    assert "FlashMLA 7.8" in text
    assert "FA3: ImportError: no" in text
    assert "Peers not installed: FA3." in text
    assert "In all cells: q `bf16`, kv `bf16`, lengths `equal`." in text
    assert "The columns, of 7 replays:" in text
    header, _, first, second, third = (line for line in lines if line.startswith("| "))
    assert header.startswith("| heads | q_len | batch | seq | page_size | us |")
    assert "| 128 | 1 | 128 | 8,192 | 64 | 500.0 | 505.0 | 4.0 |" in first
    assert first.endswith("| 460.0 | FlashMLA | 0.92 | `sm90a_decode` |")
    assert second.endswith("| no variant |")
    assert third.endswith("| RuntimeError: a/b |")


def test_page_labels_table_figures():
    joined = peer_figures.joined(document(cell_row()), peer_figures.load(str(FIGURES)))
    text = page.page(joined, data="x.json", picture=None)
    assert "| FlashMLA, table figure |" in text
    assert "**not of this run**: one NVIDIA H200, driver 580" in text
    assert "FlashInfer (FA3) 0.7.2.post1" in text
    assert "roofline" not in text
    assert "variant `sm90a_decode`" in text
    assert "| variant |" not in text


def test_roofline(tmp_path):
    cells = problems(("bf16",), SUITES["h200"])
    rows = [
        cell_row(**cell.fields, **cell.counts, **run_cuda.of_attention(cell, cell.bytes / 3e6, CEILINGS))
        for cell in cells
    ]
    rows[0]["peers"] = [own("FlashMLA", 30.0)]
    rows.append(cell_row(us=None, **run_cuda.of_attention(cells[0], None, CEILINGS)))
    roofline.draw(document(*rows), str(tmp_path / "a.png"))
    roofline.draw(document(cell_row(us=None, peers=[own("FlashMLA", 30.0)])), str(tmp_path / "b.png"))
    for name in ("a.png", "b.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_labels_keep_their_distance():
    assert roofline.spread([0.5, 0.11, 0.1, 0.09], 0.05) == pytest.approx([0.5, 0.11, 0.06, 0.01])


# The command


@pytest.fixture
def bench(capsys):
    return shell(capsys)


def test_what_was_measured_is_shown_again(bench, tmp_path):
    measured, written = tmp_path / "measured.json", tmp_path / "pages" / "page.md"
    written.parent.mkdir()
    measured.write_text(json.dumps(document(cell_row(peers=[own("FlashMLA", 460.0)]))))
    done = bench(
        f"--measured={measured}", f"--peers={FIGURES}", f"--markdown={written}", f"--plot={tmp_path / 'p.png'}"
    )
    assert (done.status, done.err) == (0, "")
    assert "FlashMLA" in done.out
    assert "![roofline](../p.png)" in written.read_text()
    data = written.parent / "data" / "page.json"
    assert "[page.json](data/page.json)" in written.read_text()
    again = json.loads(data.read_text())
    assert json.loads(bench(f"--measured={data}", "--json").out) == again
    assert {peer["source"] for peer in again["rows"][0]["peers"]} == {"same run", "table figure"}


def test_a_failed_cell_is_status_1(bench, tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(document(cell_row(note="RuntimeError: no"))))
    assert bench(f"--measured={path}").status == 1


def test_the_command_is_on_the_page(run, bench, monkeypatch, tmp_path):
    monkeypatch.setattr("mla_kernels.bench.command.HOST", "another")
    options = ("--arch=cpu", "--heads=2,3", "--batch=1", "--seq=70", "--page-size=16", "--lengths=normal")
    done = bench(*options, f"--markdown={tmp_path / 'page.md'}", "--json")
    assert done.status == 0
    told = json.loads(done.out)
    assert [row["heads"] for row in told["rows"]] == [2, 3]
    assert told["repeats"] == 7
    assert told["command"] == (
        "python -m mla_kernels bench --op decode --arch cpu --heads 2,3 --batch 1 --seq 70 --page-size 16 "
        "--lengths normal"
    )
    assert f"`{told['command']}`" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--arch=cpu", "--q-len=2"), "q-len: got 2; accepts 1"),
        (("--arch=cpu", "--page-size=16"), "page-size: got 16; accepts 64"),
        (("--arch=cpu", "--lengths=long"), "lengths: got long; accepts equal"),
        (("--arch=cpu", "--markdown=x.md"), "markdown: got x.md; accepts nothing here"),
        (("--arch=cpu", "--suite=h200", "--batch=3"), "batch: got 3; accepts nothing beside --suite"),
        (("--arch=cpu", "--plot=nowhere/x.png"), "plot: got nowhere/x.png; accepts a file in a folder that exists"),
        (("--repeats=0",), "repeats: got 0; accepts integers from 1"),
        (("--arch=sm11",), "arch: got 'sm11'; accepts"),
        (("--arch=sm90a", "--threads=1"), "threads: got 1; accepts nothing here"),
        (("--arch=sm90a", "--peers=nowhere.json"), "peers: got nowhere.json (FileNotFoundError"),
        (("--measured=nowhere.json",), "measured: got nowhere.json (FileNotFoundError"),
    ],
)
def test_refusals(bench, arguments, part):
    done = bench(*arguments)
    assert (done.status, done.out) == (1, "")
    assert part in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("missing", "option"), [("matplotlib", "--plot=x.png"), ("rich", "--batch=1")])
def test_what_is_missing_is_said_before_measuring(bench, monkeypatch, missing, option):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr("mla_kernels.bench.command._cpu", lambda options: pytest.fail("measured"))
    done = bench("--arch=cpu", option)
    assert done.status == 1
    assert f"this needs {missing}: pip install 'mla-kernels[" in done.err


def test_an_arch_that_nothing_here_runs(bench, play, rediscover, monkeypatch):
    play(COUNT=0)
    assert "DeviceError: arch: got sm90a; accepts a machine that runs it" in bench("--arch=sm90a").err
    play('{"NVIDIA H200", 9, 0}')
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "accepts a torch that is built for CUDA" in bench("--arch=sm90a").err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Payloads, "registry_of", lambda self, arch: None)
    assert "PayloadError: no payload of sm90a is in use" in bench("--arch=sm90a").err


@pytest.mark.parametrize(
    "name",
    sorted(path.stem for path in BENCHMARKS.glob("data/h200_*.json") if (BENCHMARKS / f"{path.stem}.md").exists()),
)
def test_a_committed_page_is_what_its_measurements_say(name: str) -> None:
    data, picture = f"data/{name}.json", BENCHMARKS / f"{name}.png"
    measured = json.loads((BENCHMARKS / data).read_text())
    assert picture.exists() or measured["op"] != "decode"
    written = page.page(measured, data=data, picture=picture.name if picture.exists() else None)
    assert (BENCHMARKS / f"{name}.md").read_text() == written
