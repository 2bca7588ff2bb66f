"""Verification of different numbers of drafts, as SGLang's DSPARK asks for it, beside the reference."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.compat.sglang.problems import (
    HEADS,
    RANK,
    Requests,
    backend_of,
    close,
    forward,
    layer_of,
    ragged,
    runner_of,
    speculate,
)
from tests.runtime.compat.sglang.stand_ins import Engine
from tests.runtime.compat.sglang.watches import Recorded

DRAFTS = 4


@pytest.fixture
def sglang(sglang) -> Engine:
    """Stand-ins of a release, whose drafts are DSPARK's."""
    speculate(sglang, DRAFTS)
    sglang.spec.speculative_algorithm = "DSPARK"
    return sglang


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("counts", [[1, 4, 2], [3, 1, 1], [4, 4, 4]])
@pytest.mark.parametrize("mirrored", [True, False])
def test_each_draft_sees_those_of_its_request(sglang, page, counts, mirrored, apart):
    runner = runner_of(sglang, page_size=page)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 1, 126], DRAFTS)
    step = ragged(sglang, requests, counts)
    if not mirrored:
        step.batch.seq_lens_cpu = None
    backend.init_forward_metadata(step.batch)
    close(forward(sglang, backend, step, apart), requests.expected()[step.rows])
    assert backend.forward_metadata.lengths.tolist() == [37 + counts[0], 1 + counts[1], 126 + counts[2]]


def test_queries_are_read_where_they_are(sglang, monkeypatch):
    runner = runner_of(sglang)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 126], DRAFTS)
    step = ragged(sglang, requests, [1, 3])
    backend.init_forward_metadata(step.batch)
    launched, launch = [], type(backend.forward_metadata.kernel).__call__
    watched = type(backend.forward_metadata.kernel)
    monkeypatch.setattr(watched, "__call__", lambda *args, **kw: launched.append(args) or launch(*args, **kw))
    forward(sglang, backend, step)
    ((_, q, *_),) = launched
    assert (q.data_ptr(), q.shape[:2]) == (step.q.data_ptr(), (1, 4))


def test_uniform_steps_come_between(sglang):
    """The same requests are verified with and without a layout, each by a plan of its own."""
    runner = runner_of(sglang)
    backend = backend_of(runner)
    for seed in range(2):
        requests = Requests(sglang, runner, [37, 126], DRAFTS, seed)
        want = requests.expected()
        step = ragged(sglang, requests, [2, 1])
        for each, wanted in ((step, want[step.rows]), (requests, want)):
            backend.init_forward_metadata(each.batch)
            close(forward(sglang, backend, each), wanted)


def test_tokens_that_pad_a_graph_are_zeros(sglang, monkeypatch):
    """A graph of more requests and tokens; its bounds keep their address, and what pads it is of no request."""
    runner = runner_of(sglang)
    backend = backend_of(runner)
    assert backend.supports_ragged_verify_graph
    backend.init_cuda_graph_state(4, 4 * DRAFTS)
    captured = ragged(sglang, Requests(sglang, runner, [1, 1, 1], DRAFTS), [4, 2, 2])
    backend.init_forward_metadata_out_graph(captured.batch, in_capture=True)
    recorded = Recorded(monkeypatch, backend.forward_metadata.kernel)
    forward(sglang, backend, captured)
    held = [each.data_ptr() for each in (backend.forward_metadata.bounds, backend.forward_metadata.lengths)]
    for seed, (lengths, counts) in enumerate([([37, 200], [3, 4]), ([1, 62], [1, 1])]):
        requests = Requests(sglang, runner, lengths, DRAFTS, seed)
        want, step = requests.expected(), ragged(sglang, requests, counts)
        row = torch.zeros(1, dtype=step.batch.req_pool_indices.dtype)
        step.batch.batch_size, step.batch.req_pool_indices = 3, torch.cat([step.batch.req_pool_indices, row])
        for name in ("seq_lens", "seq_lens_cpu"):
            setattr(step.batch, name, torch.cat([getattr(step.batch, name), row + 1]))
        backend.init_forward_metadata_out_graph(step.batch)
        metadata = backend.forward_metadata
        assert [each.data_ptr() for each in (metadata.bounds, metadata.lengths)] == held
        runner.token_to_kv_pool.rows[step.batch.out_cache_loc] = step.k
        captured.q.fill_(torch.nan)
        captured.q[: len(step.rows)] = step.q
        close(recorded.replay(0)[: len(step.rows)], want[step.rows])
        out = backend.forward_extend(captured.q, None, None, layer_of(sglang), step.batch)
        close(out[: len(step.rows)], want[step.rows])
        assert not out[len(step.rows) :].any()


def test_queries_without_rope_are_one_tensor(sglang, monkeypatch):
    """SGLang hands over a second tensor of no columns, by which nothing can be reshaped."""
    runner = runner_of(sglang)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 126], DRAFTS)
    step = ragged(sglang, requests, [1, 3])
    backend.init_forward_metadata(step.batch)
    launched = []
    kind = type(backend.forward_metadata.kernel)
    monkeypatch.setattr(kind, "__call__", lambda kernel, *args, **_: launched.append(args))
    latent = step.q[..., :RANK].contiguous()
    given = (latent, None, None, layer_of(sglang, head_dim=RANK), step.batch)
    backend.forward_extend(*given, q_rope=step.q[..., :0])
    ((queries, *_),) = launched
    assert queries.shape == (1, len(latent), HEADS, RANK)
    assert queries.data_ptr() == latent.data_ptr()
