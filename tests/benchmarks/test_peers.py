"""Peers: what each is called with."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels.diagnostics.bench.problems import SCALE, Problem
from mla_kernels.diagnostics.bench.tensors import Tensors

from benchmarks.peers import adapters


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


def fake_fp8_extension() -> SimpleNamespace:
    """The two ops of vLLM's extension; Q and cache are e4m3, and both factors are tensors of one element."""

    def metadata(lengths: torch.Tensor, rows: int, heads: int) -> list[object]:
        return [(lengths, rows, heads), "splits"]

    def attention(
        q, cache, width, lengths, table, scale, causal, metadata, splits, descale_q, descale_k
    ):  # fmt: skip
        assert metadata == (lengths, q.shape[1] * q.shape[2], 1)
        assert (width, splits, causal, cache.shape[2]) == (512, "splits", True, 1)
        assert q.dtype == cache.dtype == torch.float8_e4m3fn
        for descale in (descale_q, descale_k):
            assert (descale.dtype, descale.tolist()) == (torch.float32, [1.0])
        return list(attend(q.bfloat16(), cache[:, :, 0], table, lengths, scale))

    return SimpleNamespace(get_mla_decoding_metadata_dense_fp8=metadata, fwd_kvcache_mla_fp8=attention)


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


def error_of(peer: adapters.Peer, cell: Problem) -> float:
    """The largest relative error of a peer's outputs to ours, in two problems of a cell."""
    tensors = Tensors(cell, torch.device("cpu"), 2)
    launch = peer.prepare(sys.modules[peer.module], tensors)
    errors = []
    for i in range(2):
        want, _ = attend(tensors.q[i], tensors.kv_cache, tensors.block_table[i], tensors.seq_lens, SCALE)
        errors.append(adapters.relative_error(launch(i), want))
    return max(errors)


@pytest.mark.parametrize("lengths", ["equal", "normal"])
@pytest.mark.parametrize("peer", adapters.PEERS, ids=lambda peer: peer.name)
def test_peers_are_called_as_they_want(install, peer, lengths):
    install(peer.module, **FAKES[peer.module]())
    assert peer.installed
    assert adapters.version_of(peer, sys.modules[peer.module]) == "7.8"
    assert error_of(peer, Problem("bf16", "bf16", 4, 3, 100, q_len=2, lengths=lengths)) < 0.01


def test_the_fp8_arithmetic_of_flash_mla_is_an_extension_beside_its_module(install, monkeypatch, tmp_path):
    (peer,) = adapters.FP8_DECODE_PEERS
    install(peer.module, __file__=str(tmp_path / "__init__.py"))
    loaded = []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torch.ops, "_flashmla_extension_C", fake_fp8_extension(), raising=False)
    assert 0.005 < error_of(peer, Problem("bf16", "e4m3", 4, 3, 100, q_len=2)) < 0.05
    assert loaded == [str(tmp_path / "_flashmla_extension_C.abi3.so")]


def test_the_error_of_another_output_is_seen(install):
    class Wrong(FakeWrapper):
        def run(self, *tensors, out, **others):
            return out.fill_(1.0)

    install("flashinfer.mla", BatchMLAPagedAttentionWrapper=Wrong)
    assert error_of(adapters.PEERS[1], Problem("bf16", "bf16", 4, 3, 100)) > 0.5


def test_what_is_not_installed_is_known_without_an_import():
    assert not any(peer.installed for peer in adapters.PEERS)
