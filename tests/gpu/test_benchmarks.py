"""The bench on CUDA: each way that a cell can go, in tiny cells."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.diagnostics.bench import timing
from mla_kernels.diagnostics.bench.problems import SCALE, Problem
from mla_kernels.diagnostics.bench.tensors import Tensors

from benchmarks import shared_prefix
from benchmarks.command import main
from benchmarks.ops import caches_cuda, cuda, decode_cuda, run_cuda, sparse_cuda
from benchmarks.ops.sparse_problems import SparseDecode, SparsePrefill
from benchmarks.ops.sparse_tensors import chosen
from benchmarks.peers import adapters
from benchmarks.side_by_side import libraries, run
from benchmarks.side_by_side.cells import ALL, SUITES, Suite, dense
from tests.gpu.support.availability import refuse, require_op

CEILINGS = {"read TB/s": 4.0, "GEMM TFLOP/s": 800.0}


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, arch: str) -> Any:
    """Measure cells under imagined ceilings, since real ones take longer to measure than these cells."""
    require_op(arch, "decode")
    monkeypatch.setattr(cuda, "read_rate", lambda repeats: CEILINGS["read TB/s"] * 1e12)
    monkeypatch.setattr(cuda, "gemm_rate", lambda repeats: CEILINGS["GEMM TFLOP/s"] * 1e12)

    def call(*cells: Problem) -> list[dict[str, Any]]:
        document = run_cuda.measure(decode_cuda.OP, cells, arch, 3, lambda items, _: items)
        rows: list[dict[str, Any]] = json.loads(json.dumps(document))["rows"]
        return rows

    return call


def test_ceilings() -> None:
    read, gemm = cuda.read_rate(3), cuda.gemm_rate(3)
    assert 1e11 < read < 2e13
    assert 1e13 < gemm < 1e16
    assert gemm / read > 10


def test_selected_rows_are_in_random_order() -> None:
    """Half of all neighbours ascend; without sorting, ``torch.topk`` returns indices of which all ascend on a GPU."""
    rows = chosen(16, 2048, 8192, torch.Generator("cuda").manual_seed(0))
    assert all(len(row.unique()) == 2048 for row in rows)
    assert (rows.diff() > 0).float().mean().item() == pytest.approx(0.5, abs=0.02)


def test_replays_take_what_their_calls_take() -> None:
    """``_sleep`` counts clocks, of which a GPU has between 0.5 and 3 in a nanosecond."""
    one = timing.replayed([lambda: torch.cuda._sleep(1_000_000)], 3)
    three = timing.replayed([lambda: torch.cuda._sleep(1_000_000)] * 3, 3)
    assert 3e-4 < one < 3e-3
    assert three == pytest.approx(one, rel=0.3)


def test_the_host_does_not_wait() -> None:
    assert cuda.on_host(lambda: torch.cuda._sleep(1_000_000), 3) < 1e-4


def test_machine() -> None:
    told = cuda.machine()
    assert told["gpu"] == torch.cuda.get_device_name()
    assert told["cuda"]
    assert json.dumps(told)


@pytest.mark.parametrize("changes", [{}, {"q_len": 2}, {"lengths": "normal"}, {"lengths": "long"}], ids=str)
def test_cell(measure: Any, arch: str, changes: dict[str, Any]) -> None:
    given = {"num_heads": 128, "batch": 3, "seq": 300, "page_size": 128} | changes
    cell = Problem("bf16", "bf16", **given)
    (row,) = measure(cell)
    assert "note" not in row
    if not mla.variants(**{**cell.config(arch), "out_dtype": "bf16"}):
        assert row["variant"] == "no variant"
        return
    assert row["variant"].startswith(f"{arch}_decode_qbf16_kvbf16")
    assert 0 < row["us"] < 10_000
    assert row["with plan us"] > row["us"]
    assert row["call us"] is None or 0.1 < row["call us"] < 1000
    assert 0 < row["of ceiling"] < 1.5
    assert row["problems"] >= 2


@pytest.mark.parametrize(
    ("op", "cell"),
    [
        (sparse_cuda.DECODE, SparseDecode("bf16", "fp8_ds_mla", 64, 2, 1000, 128, q_len=2)),
        (sparse_cuda.DECODE, SparseDecode("bf16", "bf16", 64, 2, 1000, 128)),
        (sparse_cuda.PREFILL, SparsePrefill("bf16", 64, 16, 1000, 128)),
    ],
    ids=lambda value: getattr(value, "name", None) or value.fields["kv"],
)
def test_sparse_cell(measure: Any, arch: str, op: run_cuda.Op, cell: Any) -> None:
    (row,) = run_cuda.measure(op, [cell], arch, 3, lambda items, _: items)["rows"]
    assert "note" not in row
    if not mla.variants(**{**cell.config(arch), "out_dtype": "bf16"}):
        assert row["variant"] == "no variant"
        return
    assert row["variant"].startswith(f"{arch}_{op.name}_qbf16_kv{row['kv']}")
    assert 0 < row["us"] < 10_000
    assert 0 < row["of ceiling"] < 1.5


def test_caches(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches_cuda, "MANY", 4096)
    document = run_cuda.measure(caches_cuda.OP, caches_cuda.cells(arch), arch, 3, lambda items, _: items)
    assert document["rows"]
    assert all("note" not in row and 0 < row["us"] < 1000 for row in document["rows"])
    assert 0.1 < document["ceilings"]["copy TB/s"] < 20


def test_a_cell_without_a_variant(measure: Any) -> None:
    first, second = measure(Problem("fp32", "fp32", 3, 2, 100), Problem("bf16", "bf16", 128, 2, 200, page_size=128))
    assert (first["variant"], first["us"]) == ("no variant", None)
    assert "note" not in first
    assert second["us"] > 0


@pytest.mark.parametrize("kv_dtype", ["bf16", "e4m3", "fp8_ds_mla"])
def test_tensors(kv_dtype: str, arch: str) -> None:
    if not mla.variants(op="store_kv", arch=arch, in_dtype="bf16", kv_dtype=kv_dtype):
        refuse(f"{arch}: no store_kv of {kv_dtype}")
    tensors = Tensors(Problem("bf16", kv_dtype, 3, 4, 300, lengths="normal"), torch.device("cuda"), 2)
    host = {name: getattr(tensors, name).cpu() for name in ("q", "kv_cache", "block_table", "seq_lens")}
    q, cache, table, lengths = host["q"][1], host["kv_cache"], host["block_table"][1], host["seq_lens"]
    out, _ = mla.decode(q, cache, table, lengths, softmax_scale=SCALE)  # the host refuses pages that do not exist
    assert out.isfinite().all()


def ours(module: Any, tensors: Tensors) -> adapters.Launch:
    """A peer that computes the same, allocates in the graph, and plans in each launch."""

    def launch(i: int) -> torch.Tensor:
        out, _ = module.decode(
            tensors.q[i], tensors.kv_cache, tensors.block_table[i], tensors.seq_lens, softmax_scale=SCALE
        )
        return out

    return launch


def wrong(module: Any, tensors: Tensors) -> adapters.Launch:
    return lambda i: tensors.q[i, ..., :512]


def uncaptured(module: Any, tensors: Tensors) -> adapters.Launch:
    """A peer that fails where it is captured."""
    launch = ours(module, tensors)

    def eager(i: int) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise ValueError("not in a graph")
        return launch(i)

    return eager


@pytest.fixture
def side_by_side(measure: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Measure a small dense decode side by side, with peers that are ours under other names."""
    monkeypatch.setitem(SUITES, "smoke", Suite("One", ALL, (dense(128, 2, 256),)))

    def call(*prepared: Any, apart: bool = False) -> list[dict[str, Any]]:
        peers = [adapters.Peer(str(place), "mla_kernels", "mla-kernels", each) for place, each in enumerate(prepared)]
        monkeypatch.setitem(libraries._PEERS, "decode", peers)
        chosen = [libraries.Library(libraries.OURS, "mla_kernels")]
        chosen += [libraries.Library(peer.name, peer.module) for peer in peers]
        (cell,) = run.measure(run.Run("smoke", chosen, 0.1, apart, "a command"), tmp_path / "out.json")["cells"]
        turns: list[dict[str, Any]] = json.loads(json.dumps(cell))["turns"]
        return turns

    return call


def test_launches_of_a_graph_do_not_share_an_output() -> None:
    graph = timing.captured([partial(torch.zeros, 1 << 20, device="cuda")] * 3)
    outputs: Any = graph.outputs
    graph.replay()
    for number, output in enumerate(outputs):
        output.fill_(number)
    assert [float(output[-1]) for output in outputs] == [0, 1, 2]
    graph.replay()
    assert not any(bool(output.any()) for output in outputs)


def test_side_by_side(side_by_side: Any) -> None:
    first, same, other, failed, again, last = side_by_side(ours, wrong, uncaptured, ours)
    for turn in (first, same, again, last):
        assert "note" not in turn
        assert turn["error"] < 0.02
        assert all(0 < turn[state]["us"] < 10_000 for state in ALL)
    assert other["note"].startswith("its output differs from ours")
    assert failed["note"] == "ValueError: not in a graph"
    assert "graph" not in failed


def test_side_by_side_in_processes(side_by_side: Any) -> None:
    first, last = side_by_side(apart=True)
    assert all(0 < turn[state]["us"] < 10_000 for turn in (first, last) for state in ALL)


def test_command(measure: Any, arch: str, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    options = [f"--arch={arch}", "--heads=128", "--batch=1,2", "--seq=256", "--page-size=128", "--repeats=3"]
    written = [f"--markdown={tmp_path / 'page.md'}", f"--plot={tmp_path / 'page.png'}"]
    assert main([*options, *written, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in told["rows"]] == [1, 2]
    assert told["payload"]["library_sha256"]
    assert json.loads((tmp_path / "data" / "page.json").read_text()) == told
    assert "# Dense decode" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_ways_to_attend_to_a_shared_prefix_agree(arch: str) -> None:
    require_op(arch, "decode")
    row = shared_prefix.measure(shared_prefix.Cell(4, 16, 1024, 128), torch.device("cuda"), 3)
    assert shared_prefix.wrong(row) == []
    assert row["by"] in shared_prefix.ATTENTIONS, row["torch"]
    assert all(row[name] > 0 for name in row if name.endswith(" us"))
