"""Calls on a GPU are recorded and replayed there and on the host, and a capture is refused before it is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.diagnostics import record
from mla_kernels.diagnostics.cli import main
from mla_kernels.diagnostics.recording import call as calls
from mla_kernels.errors import UnsupportedError
from mla_kernels.kernels.ops import KERNELS

from tests.gpu.support.availability import require_op

SCALE = 192**-0.5


def arguments(**changes: Any) -> dict[str, Any]:
    """A ragged decode over some pages of a larger pool."""
    source = torch.Generator("cuda").manual_seed(3)
    return {
        "q": torch.randn(3, 1, 16, 576, generator=source, device="cuda").bfloat16(),
        "kv_cache": torch.randn(300, 64, 576, generator=source, device="cuda").bfloat16(),
        "block_table": torch.randperm(300, generator=source, device="cuda")[:27].int().view(3, 9),
        "seq_lens": torch.tensor([0, 65, 540], dtype=torch.int32, device="cuda"),
        "softmax_scale": SCALE,
        **changes,
    }


def replayed(capsys: pytest.CaptureFixture[str], file: Path, *options: str) -> dict[str, Any]:
    """What the command says of a file."""
    status = main(["replay", str(file), "--json", *options])
    (told,) = json.loads(capsys.readouterr().out)
    assert status == told["fault"]
    return dict(told)


def test_a_decode(arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_op(arch, "decode")
    given = arguments()
    want, want_lse = mla.decode(**given)
    with record(tmp_path) as files:
        out, lse = mla.decode(**given)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        mla.decode(**given, stream=side.cuda_stream)
    assert torch.equal(out, want)
    assert torch.equal(lse, want_lse)
    assert len(files) == 2
    for file in files:
        call = calls.load(file)
        assert (call.pool["kv_cache"], len(call.pages["kv_cache"])) == (300, 11)
        assert torch.equal(call.outputs["out"], want.cpu())
        told = replayed(capsys, file)
        assert (told["fault"], told["replayed"]["same_bits"]) == (False, True)
        assert not replayed(capsys, file, "--arch=cpu")["fault"]


def test_a_wrong_result(arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that the lengths of another step would give."""
    require_op(arch, "decode")
    given = arguments()
    with record(tmp_path) as files:
        mla.decode(**given)
    call = calls.load(files[0])
    other, _ = mla.decode(**{**given, "seq_lens": given["seq_lens"] - torch.tensor([0, 0, 200]).int().cuda()})
    call.outputs["out"] = other.cpu()
    calls.save(call, files[0])
    told = replayed(capsys, files[0])
    assert told["fault"]
    (wrong,) = (each for each in told["recorded_results"] if each["wrong"])
    assert {row[0] for row in wrong["rows"]} == {2}
    assert not any(each["wrong"] for each in told["replayed_results"])


def test_stores_and_gathers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = torch.randn(5, 576, device="cuda").bfloat16()
    cache = torch.zeros(200, 64, 656, dtype=torch.uint8, device="cuda")
    slots = torch.tensor([12_000, -1, 3, 4, 700], device="cuda")
    with record(tmp_path) as files:
        mla.store_kv(rows[:, :512], rows[:, 512:], cache, slots)
        mla.gather_kv(cache, slots.int())
    for file in files:
        assert len(calls.load(file).pages["kv_cache"]) == 3
        for options in ((), ("--arch=cpu",)):
            told = replayed(capsys, file, *options)
            assert (told["fault"], told["replayed"]["same_bits"]) == (False, True)


@pytest.mark.parametrize("by_handle", [False, True])
def test_a_capture_is_refused_and_goes_on(arch: str, tmp_path: Path, by_handle: bool) -> None:
    require_op(arch, "merge_states")
    o, lse = torch.randn(2, 4, 16, 512, device="cuda").bfloat16(), torch.randn(2, 4, 16, device="cuda")
    want, _ = mla.merge_states(o, lse)
    out, graph = torch.zeros_like(want), torch.cuda.CUDAGraph()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    # Other threads of the process may do what a capture does not allow.
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        with record(tmp_path) as files:
            handle = torch.cuda.current_stream().cuda_stream
            refused = pytest.raises(UnsupportedError, match="record: got a launch that a CUDA graph captures")
            with torch.cuda.stream(other if by_handle else side), refused:
                mla.merge_states(o, lse, out=out, stream=handle)
        mla.merge_states(o, lse, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert files == []
    assert torch.equal(out, want)
    assert KERNELS["merge_states"].launch.__module__ == "mla_kernels.kernels.ops"
