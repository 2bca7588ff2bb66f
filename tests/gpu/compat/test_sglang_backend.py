"""SGLang's backend on a GPU, in CUDA graphs that are replayed with other requests; its classes are stand-ins."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.compat.sglang.problems import (
    Requests,
    backend_of,
    close,
    forward,
    ragged,
    runner_of,
    speculate,
)


@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("mirrored", [True, False])
def test_decode(sglang, page, mirrored):
    runner = runner_of(sglang, device="cuda", page_size=page)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 1, 128, 193])
    if not mirrored:
        requests.batch.seq_lens_cpu = None
    want = requests.expected()
    backend.init_forward_metadata(requests.batch)
    close(forward(sglang, backend, requests), want)


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_graph_is_replayed_with_other_requests(sglang, drafts):
    """Between two replays comes a larger step without a graph, whose plan has another shape."""
    if drafts:
        speculate(sglang, drafts)
    runner = runner_of(sglang, device="cuda")
    backend = backend_of(runner)
    backend.init_cuda_graph_state(4, 4 * max(1, drafts))
    fill = backend.get_cuda_graph_seq_len_fill_value()
    captured = Requests(sglang, runner, [fill, fill], drafts)
    backend.init_forward_metadata_out_graph(captured.batch, in_capture=True)
    forward(sglang, backend, captured)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backend.init_forward_metadata_in_graph(captured.batch)
        out = forward(sglang, backend, captured)
    for seed, lengths in enumerate([[37, 200], [1, 64], [128, 193]]):
        larger = Requests(sglang, runner, [9, 80, 1, 7, 150], drafts, seed=seed)
        want = larger.expected()
        backend.init_forward_metadata(larger.batch)
        close(forward(sglang, backend, larger), want)
        requests = Requests(sglang, runner, lengths, drafts, seed=seed)
        want = requests.expected()
        backend.init_forward_metadata_out_graph(requests.batch)
        for static, fresh in ((captured.q, requests.q), (captured.k, requests.k)):
            static.copy_(fresh)
        captured.batch.out_cache_loc.copy_(requests.batch.out_cache_loc)
        graph.replay()
        close(out, want)


def test_different_numbers_of_drafts_are_verified_in_a_graph(sglang):
    """As many tokens in every replay, which are parted among the requests in other ways."""
    speculate(sglang, 4)
    sglang.spec.speculative_algorithm = "DSPARK"
    runner = runner_of(sglang, device="cuda")
    backend = backend_of(runner)
    backend.init_cuda_graph_state(4, 16)
    captured = ragged(sglang, Requests(sglang, runner, [1, 1, 1], 4), [3, 3, 2])
    backend.init_forward_metadata_out_graph(captured.batch, in_capture=True)
    forward(sglang, backend, captured)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = forward(sglang, backend, captured)
    for seed, (lengths, counts) in enumerate([([37, 200, 9], [3, 4, 1]), ([1, 62, 126], [2, 2, 4])]):
        requests = Requests(sglang, runner, lengths, 4, seed)
        step = ragged(sglang, requests, counts)
        want = requests.expected()[step.rows]
        backend.init_forward_metadata_out_graph(step.batch)
        for static, fresh in ((captured.q, step.q), (captured.k, step.k)):
            static.copy_(fresh)
        captured.batch.out_cache_loc.copy_(step.batch.out_cache_loc)
        graph.replay()
        close(out, want)


def test_a_step_is_prepared_without_waiting_for_the_device(sglang):
    runner = runner_of(sglang, device="cuda")
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 200])
    backend.init_cuda_graph_state(2, 2)
    requests.batch.seq_lens_cpu = None
    backend.init_forward_metadata_out_graph(requests.batch, in_capture=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        backend.init_forward_metadata(requests.batch)
        backend.init_forward_metadata_out_graph(requests.batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
