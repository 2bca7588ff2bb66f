"""Peers: what each is called with, what becomes of one that fails, and figures of another run."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.diagnostics.bench.problems import Problem
from mla_kernels.errors import ValueRangeError

from benchmarks.peers import adapters, figures

from .imagined import FIGURES, US, cell_row, document, own


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
    """The arguments are as FlashInfer documents them: page lists in a row, tokens of all requests in one dimension."""

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
@pytest.mark.parametrize("peer", adapters.PEERS, ids=lambda peer: peer.name)
def test_peers_are_called_as_they_want(run, install, peer, lengths):
    install(peer.module, **FAKES[peer.module]())
    document = run(Problem("bf16", "bf16", 4, 3, 100, q_len=2, lengths=lengths))
    (row,) = document["rows"]
    assert row["peers"] == [{"name": peer.name, "version": "7.8", "us": US, "source": "same run"}]
    assert peer.name not in document["not installed"]
    assert figures.ratio(row) == pytest.approx(1.0)


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
    assert figures.ratio(row) is None


def test_figures_of_a_file_join_their_cells():
    known = figures.load(str(FIGURES))
    served, other = figures.joined(document(cell_row(), cell_row(page_size=128)), known)["rows"]
    assert other["peers"] == []
    assert {peer["source"] for peer in served["peers"]} == {"table figure"}
    fastest = figures.best(served)
    assert (fastest["name"], fastest["us"], fastest["version"]) == ("FlashMLA", 457.02, "9241ae3")
    assert figures.label(fastest) == "FlashMLA, table figure"
    assert figures.ratio(served) == pytest.approx(457.02 / 500)


def test_a_peer_of_the_same_run_replaces_its_figures():
    known = figures.load(str(FIGURES))
    row = cell_row(peers=[own("FlashMLA", 460.0), own("FA3", None, note="ImportError: no")])
    joined = figures.joined(document(row), known)
    assert figures.joined(joined, known) == joined
    found = {peer["name"]: peer["source"] for peer in joined["rows"][0]["peers"]}
    assert found["FlashMLA"] == "same run"
    assert "FlashMLA (vLLM)" not in found
    assert [peer["us"] for peer in joined["rows"][0]["peers"] if peer["name"] == "FA3"] == [None, 466.5]
    assert figures.label(figures.best(joined["rows"][0])) == "FlashMLA"


@pytest.mark.parametrize("text", ["[]", "{", '{"machine": "m"}', '{"machine": "m", "method": "m", "cells": []}'])
def test_figures_of_another_form_are_refused(tmp_path, text):
    path = tmp_path / "peers.json"
    path.write_text(text)
    with pytest.raises(ValueRangeError, match=r"^peers: got"):
        figures.load(str(path))
