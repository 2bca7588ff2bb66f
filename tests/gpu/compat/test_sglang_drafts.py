"""Drafts of SGLang on a GPU, in CUDA graphs that are replayed with other requests; its classes are stand-ins."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.compat.sglang.problems import (
    DRAFTED,
    chained,
    close,
    drafted_by,
    drafts_of,
    extension,
    forward,
    runner_of,
    speculate,
)
from tests.runtime.compat.sglang.stand_ins import Engine


@pytest.fixture
def sglang(sglang) -> Engine:
    """Stand-ins of a release, which speculates."""
    speculate(sglang, DRAFTED)
    return sglang


@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("mirrored", [True, False])
def test_each_step_sees_the_drafts_before_it(sglang, page, mirrored):
    runner = runner_of(sglang, device="cuda", page_size=page, is_draft_worker=True)
    backend, _ = drafted_by(sglang, runner, DRAFTED)
    requests, want = drafts_of(sglang, runner, [37, 1, 126, 193])
    if not mirrored:
        requests.batch.seq_lens_cpu = None
    backend.init_forward_metadata(requests.batch)
    for child, step, wanted in zip(backend.attn_backends, chained(requests), want, strict=True):
        close(forward(sglang, child, step), wanted)


@pytest.mark.parametrize("page", [1, 64])
def test_verified_tokens_extend_the_cache(sglang, page):
    runner = runner_of(sglang, device="cuda", page_size=page, is_draft_worker=True)
    _, backend = drafted_by(sglang, runner, DRAFTED)
    requests = extension(sglang, runner, [37, 1, 126])
    want = requests.expected()
    backend.init_forward_metadata(requests.batch)
    close(forward(sglang, backend, requests), want)


def test_all_steps_are_replayed_as_one_graph_with_other_requests(sglang):
    """Between two replays come larger steps without a graph, whose plans have another shape."""
    runner = runner_of(sglang, device="cuda", is_draft_worker=True)
    backend, _ = drafted_by(sglang, runner, DRAFTED)
    backend.init_cuda_graph_state(4, 4)
    fill = backend.attn_backends[0].get_cuda_graph_seq_len_fill_value()
    captured = chained(drafts_of(sglang, runner, [fill, fill])[0])
    backend.init_forward_metadata_out_graph(captured[0].batch, in_capture=True)
    for child, step in zip(backend.attn_backends, captured, strict=True):
        forward(sglang, child, step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backend.init_forward_metadata_in_graph(captured[0].batch)
        outs = [forward(sglang, *each) for each in zip(backend.attn_backends, captured, strict=True)]
    for seed, lengths in enumerate([[37, 200], [1, 62], [126, 193]]):
        larger, want = drafts_of(sglang, runner, [9, 80, 1, 7, 150], seed)
        backend.init_forward_metadata(larger.batch)
        for child, step, wanted in zip(backend.attn_backends, chained(larger), want, strict=True):
            close(forward(sglang, child, step), wanted)
        requests, want = drafts_of(sglang, runner, lengths, seed)
        backend.init_forward_metadata_out_graph(requests.batch)
        for static, step in zip(captured, chained(requests), strict=True):
            static.q.copy_(step.q)
            static.k.copy_(step.k)
            static.batch.out_cache_loc.copy_(step.batch.out_cache_loc)
        graph.replay()
        for out, wanted in zip(outs, want, strict=True):
            close(out, wanted)


def test_an_extension_is_replayed_in_a_graph_with_other_requests(sglang):
    """A request that pads a graph is shorter than the tokens that extend it."""
    runner = runner_of(sglang, device="cuda", is_draft_worker=True)
    _, backend = drafted_by(sglang, runner, DRAFTED)
    backend.init_cuda_graph_state(4, 4 * DRAFTED)
    captured = extension(sglang, runner, [1, 1, 1])
    captured.batch.seq_lens.fill_(backend.get_cuda_graph_seq_len_fill_value())
    captured.batch.seq_lens_cpu.fill_(backend.get_cuda_graph_seq_len_fill_value())
    backend.init_forward_metadata_out_graph(captured.batch, in_capture=True)
    assert forward(sglang, backend, captured).isfinite().all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = forward(sglang, backend, captured)
    for seed, lengths in enumerate([[37, 200, 3], [1, 60, 125]]):
        requests = extension(sglang, runner, lengths, seed)
        want = requests.expected()
        backend.init_forward_metadata_out_graph(requests.batch)
        for static, fresh in ((captured.q, requests.q), (captured.k, requests.k)):
            static.copy_(fresh)
        captured.batch.out_cache_loc.copy_(requests.batch.out_cache_loc)
        graph.replay()
        close(out, want)


def test_steps_are_prepared_without_waiting_for_the_device(sglang):
    runner = runner_of(sglang, device="cuda", is_draft_worker=True)
    backend, extended = drafted_by(sglang, runner, DRAFTED)
    pairs = [(backend, drafts_of(sglang, runner, [37, 200])[0]), (extended, extension(sglang, runner, [37, 200]))]
    for each, requests in pairs:
        each.init_cuda_graph_state(2, 2 * DRAFTED)
        requests.batch.seq_lens_cpu = None
        each.init_forward_metadata_out_graph(requests.batch, in_capture=True)
        torch.cuda.set_sync_debug_mode("error")
        try:
            each.init_forward_metadata(requests.batch)
            each.init_forward_metadata_out_graph(requests.batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
