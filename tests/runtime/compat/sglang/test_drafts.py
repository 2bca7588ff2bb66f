"""Drafts of SGLang's speculative decoding, one token a step, driven as by its workers, beside the reference."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace

import pytest
import torch
from mla_kernels.compat import sglang_plugin as door

from tests.runtime.compat.sglang.problems import (
    DRAFTED,
    Requests,
    backend_of,
    chained,
    close,
    drafted_by,
    drafts_of,
    extension,
    forward,
    layer_of,
    runner_of,
    speculate,
)
from tests.runtime.compat.sglang.stand_ins import DRAFTS, Engine
from tests.runtime.compat.sglang.watches import Recorded, Waits
from tests.runtime.compat.stand_ins import shape_of


@pytest.fixture
def sglang(sglang) -> Engine:
    """Stand-ins of a release, which speculates."""
    speculate(sglang, DRAFTED)
    return sglang


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("mirrored", [True, False])
def test_each_step_sees_the_drafts_before_it(sglang, page, dtype, mirrored, apart):
    """SGLang's lengths stay those before the first step; a request may need another page between two steps."""
    runner = runner_of(sglang, dtype, page_size=page, is_draft_worker=True)
    backend, _ = drafted_by(sglang, runner, DRAFTED)
    requests, want = drafts_of(sglang, runner, [37, 1, 126, 193])
    if not mirrored:
        requests.batch.seq_lens_cpu = None
    backend.init_forward_metadata(requests.batch)
    for child, step, wanted in zip(backend.attn_backends, chained(requests), want, strict=True):
        close(forward(sglang, child, step, apart), wanted)


def test_all_steps_share_one_page_table(sglang):
    runner = runner_of(sglang, is_draft_worker=True)
    backend, _ = drafted_by(sglang, runner, DRAFTED)
    backend.init_forward_metadata(drafts_of(sglang, runner, [37, 126])[0].batch)
    steps = [child.forward_metadata for child in backend.attn_backends]
    assert [step.lengths.tolist() for step in steps] == [[38, 127], [39, 128], [40, 129]]
    assert len({step.table.data_ptr() for step in steps}) == 1
    assert len({step.plan.buffer.data_ptr() for step in steps}) == len(steps)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("mirrored", [True, False])
def test_verified_tokens_extend_the_cache(sglang, page, mirrored, apart):
    """As many tokens of each request, which SGLang's lengths count."""
    runner = runner_of(sglang, page_size=page, is_draft_worker=True)
    _, backend = drafted_by(sglang, runner, DRAFTED)
    requests = extension(sglang, runner, [37, 1, 126])
    if not mirrored:
        requests.batch.seq_lens_cpu = None
    backend.init_forward_metadata(requests.batch)
    close(forward(sglang, backend, requests, apart), requests.expected())


def test_drafts_are_replayed_in_a_graph_with_other_requests(sglang, monkeypatch):
    """The steps of one graph keep their buffers, while larger steps without one come between."""
    runner = runner_of(sglang, is_draft_worker=True)
    backend, _ = drafted_by(sglang, runner, DRAFTED)
    backend.init_cuda_graph_state(4, 4)
    fill = backend.attn_backends[0].get_cuda_graph_seq_len_fill_value()
    captured = chained(drafts_of(sglang, runner, [fill, fill])[0])
    backend.init_forward_metadata_out_graph(captured[0].batch, in_capture=True)
    backend.init_forward_metadata_in_graph(captured[0].batch)
    recorded = Recorded(monkeypatch, backend.attn_backends[0].forward_metadata.kernel)
    for child, step in zip(backend.attn_backends, captured, strict=True):
        forward(sglang, child, step)
    for seed, lengths in enumerate([[37, 200], [1, 62], [126, 193]]):
        larger, want = drafts_of(sglang, runner, [9, 80, 1, 7, 150], seed)
        backend.init_forward_metadata(larger.batch)
        for child, step, wanted in zip(backend.attn_backends, chained(larger), want, strict=True):
            close(forward(sglang, child, step), wanted)
        requests, want = drafts_of(sglang, runner, lengths, seed)
        backend.init_forward_metadata_out_graph(SimpleNamespace(**vars(requests.batch), num_padding=0))
        for number, (static, step, wanted) in enumerate(zip(captured, chained(requests), want, strict=True)):
            static.q.copy_(step.q)
            runner.token_to_kv_pool.rows[step.batch.out_cache_loc] = step.k
            close(recorded.replay(number), wanted)


def test_sglang_captures_an_extension_in_a_graph(sglang):
    """Its worker does so for instances of a few classes of its own."""
    _, backend = drafted_by(sglang, runner_of(sglang, is_draft_worker=True), DRAFTED)
    listed = importlib.import_module("sglang.srt.layers.attention.flashmla_backend").FlashMLABackend
    assert isinstance(backend, listed)


def test_a_mask_of_drafts_has_a_place(sglang):
    """A chain has no use for it; where a backend has no place for it, SGLang allocates one for the longest context."""
    runner = runner_of(sglang)
    mask = backend_of(runner).verify_mask
    assert (mask.is_read, mask.max_bs) == (False, len(runner.req_to_token_pool.req_to_token))
    assert (mask.num_draft_tokens, mask.is_draft_runner, mask.skip_prefill) == (DRAFTED, False, False)


def test_an_extension_is_replayed_in_a_graph_with_other_requests(sglang, monkeypatch):
    """A request that pads a graph is shorter than the tokens that extend it, and gives zeros or what little it sees."""
    runner = runner_of(sglang, is_draft_worker=True)
    _, backend = drafted_by(sglang, runner, DRAFTED)
    backend.init_cuda_graph_state(4, 4 * DRAFTED)
    captured = extension(sglang, runner, [1, 1, 1])
    captured.batch.seq_lens.fill_(backend.get_cuda_graph_seq_len_fill_value())
    captured.batch.seq_lens_cpu.fill_(backend.get_cuda_graph_seq_len_fill_value())
    backend.init_forward_metadata_out_graph(captured.batch, in_capture=True)
    recorded = Recorded(monkeypatch, backend.forward_metadata.kernel)
    assert forward(sglang, backend, captured).isfinite().all()
    for seed, lengths in enumerate([[37, 200, 3], [1, 60, 125]]):
        requests = extension(sglang, runner, lengths, seed)
        backend.init_forward_metadata_out_graph(requests.batch)
        captured.q.copy_(requests.q)
        want = requests.expected()
        runner.token_to_kv_pool.rows[requests.batch.out_cache_loc] = requests.k
        close(recorded.replay(0), want)


@pytest.mark.parametrize("of_steps", [True, False])
def test_tokens_that_pad_a_rank_are_zeros(sglang, of_steps):
    """Ranks that share experts pad their tokens to one number after SGLang has prepared the steps of drafts."""
    runner = runner_of(sglang, is_draft_worker=True)
    steps, extended = drafted_by(sglang, runner, DRAFTED)
    requests = drafts_of(sglang, runner, [37, 126])[0] if of_steps else extension(sglang, runner, [37, 126])
    (steps if of_steps else extended).init_forward_metadata(requests.batch)
    backend, step = (steps.attn_backends[0], chained(requests)[0]) if of_steps else (extended, requests)
    alone = forward(sglang, backend, step)
    padded = torch.cat([step.q, torch.full_like(step.q[:2], torch.nan)])
    out = backend.forward_decode(padded, None, None, layer_of(sglang), step.batch)
    assert torch.equal(out[:-2], alone)
    assert not out[-2:].any()


def test_steps_of_drafts_are_prepared_without_waiting_for_the_device(sglang):
    runner = runner_of(sglang, is_draft_worker=True)
    backend, extended = drafted_by(sglang, runner, DRAFTED)
    for each, requests in (
        (backend, drafts_of(sglang, runner, [37, 200])[0]),
        (extended, extension(sglang, runner, [37, 200])),
    ):
        each.init_cuda_graph_state(2, 2 * DRAFTED)
        assert each.needs_cpu_seq_lens is False
        requests.batch.seq_lens_cpu = None
        with Waits() as waits:
            each.init_forward_metadata(requests.batch)
            each.init_forward_metadata_out_graph(requests.batch)
        assert waits.names == []


def test_deterministic_drafts_are_planned_by_themselves(sglang):
    """Steps of drafts may be ours where another backend prefills the draft model and extends its cache."""
    runner = runner_of(sglang, is_draft_worker=True, prefill_attention_backend_str="fa3")
    sglang.deterministic.enable_deterministic_inference = True
    drafts = importlib.import_module(DRAFTS)
    backend = drafts.MultiStepDraftBackend(runner, 1, DRAFTED)
    backend.init_forward_metadata(drafts_of(sglang, runner, [37, 200])[0].batch)
    assert all(child.forward_metadata.plan.batch_invariant for child in backend.attn_backends)


def test_the_draft_model_prefills_as_with_flashmla(sglang):
    """Which way a DeepSeek model attends hangs on the name of the backend; prefill is that of the class beneath."""
    runner = runner_of(sglang, is_draft_worker=True)
    _, backend = drafted_by(sglang, runner, DRAFTED)
    assert sglang.handlers[door.NAME] == sglang.handlers["flashmla"]
    batch = Requests(sglang, runner, [37]).batch
    batch.forward_mode = type(batch.forward_mode).EXTEND
    assert backend.forward_extend("q", "k", "v", "layer", batch) == "by forward_extend of the class beneath"


def test_the_backend_of_steps_is_what_sglang_has(sglang):
    """It has the methods of SGLang's for FlashMLA that its workers and graphs call, with their parameters."""
    described = sglang.names["classes"]["FlashMLAMultiStepDraftBackend"]
    runner = runner_of(sglang, is_draft_worker=True)
    backend, _ = drafted_by(sglang, runner, DRAFTED)
    for name in described["methods"].keys() - {"common_template"}:
        assert shape_of(getattr(type(backend), name)) == described["methods"][name], name
    assert all(hasattr(backend, name) for name in described["attributes"])
    assert len(backend.attn_backends) == DRAFTED - 1
    runners = ("eagle_worker_v2", "eagle_draft_cuda_graph_runner")
    calls = [call for call in sglang.names["calls"] if call["in"].rpartition(".")[2] in runners]
    assert calls
    for call in calls:
        called = backend.attn_backends[0] if call["name"] == "get_cuda_graph_seq_len_fill_value" else backend
        given = inspect.signature(getattr(called, call["name"]))
        given.bind(*range(call["positional"]), **dict.fromkeys(call["keywords"]))
