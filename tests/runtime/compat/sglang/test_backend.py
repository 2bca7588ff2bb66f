"""Dense MLA as SGLang's backend, driven as its runners do: stand-ins of its classes, the CPU's payload, the reference.

On a machine without a GPU the class for GPUs runs on the host, which is what shows that it passes arguments rightly.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import mla_kernels as mla
import pytest
import torch

from tests.runtime.compat.sglang.problems import (
    CONTEXT,
    HEADS,
    RANK,
    Requests,
    backend_of,
    close,
    forward,
    layer_of,
    runner_of,
    speculate,
)
from tests.runtime.compat.sglang.stand_ins import OURS
from tests.runtime.compat.sglang.watches import Recorded, Waits
from tests.runtime.compat.stand_ins import shape_of


@pytest.mark.parametrize("page", [1, 16, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_decode(sglang, page, dtype, mirrored, apart):
    """The layer writes the new token and attends to it, over pages that the table of the step lists."""
    runner = runner_of(sglang, dtype, page_size=page)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 1, 128, 193])
    if not mirrored:
        requests.batch.seq_lens_cpu = None
    backend.init_forward_metadata(requests.batch)
    close(forward(sglang, backend, requests, apart), requests.expected())


@pytest.mark.parametrize("drafts", [1, 3])
@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("apart", [True, False])
def test_verification_of_drafts(sglang, drafts, page, apart):
    """A draft sees those before it; the lengths of SGLang do not count drafts."""
    speculate(sglang, drafts)
    runner = runner_of(sglang, page_size=page)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 1, 128], drafts)
    backend.init_forward_metadata(requests.batch)
    close(forward(sglang, backend, requests, apart), requests.expected())


@pytest.mark.parametrize("apart", [True, False])
def test_a_cache_of_e4m3_is_read_without_a_scale(sglang, apart):
    """SGLang's pool writes latents without one, whatever a layer's ``k_scale`` says."""
    runner = runner_of(sglang, kv_cache_dtype=torch.float8_e4m3fn)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 70])
    backend.init_forward_metadata(requests.batch)
    assert backend.data_type == torch.float8_e4m3fn
    close(forward(sglang, backend, requests, apart), requests.expected())


def test_a_token_that_is_already_in_the_cache_is_not_written(sglang):
    runner = runner_of(sglang)
    backend, requests = backend_of(runner), Requests(sglang, runner, [5, 70])
    want = requests.expected()
    runner.token_to_kv_pool.rows[requests.batch.out_cache_loc] = requests.k
    backend.init_forward_metadata(requests.batch)
    wrong = torch.full_like(requests.k, torch.nan)
    for given in ((None, None), (wrong, wrong[..., :512])):
        close(backend.forward_decode(requests.q, *given, layer_of(sglang), requests.batch, save_kv_cache=False), want)


def test_steps_of_other_sizes_follow_each_other(sglang):
    """Buffers without a graph grow with the batch, and with its longest request."""
    runner = runner_of(sglang)
    backend = backend_of(runner)
    for seed, lengths in enumerate([[3], [70, 2, 9], [200, 1], [1, 1, 1, 250]]):
        requests = Requests(sglang, runner, lengths, seed=seed)
        backend.init_forward_metadata(requests.batch)
        close(forward(sglang, backend, requests), requests.expected())


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_graph_is_replayed_with_other_requests(sglang, monkeypatch, drafts):
    """Between capture and replay come a graph of another size, and a larger step without one."""
    if drafts:
        speculate(sglang, drafts)
    runner = runner_of(sglang)
    backend = backend_of(runner)
    backend.init_cuda_graph_state(4, 4 * max(1, drafts))
    fill = backend.get_cuda_graph_seq_len_fill_value()
    captured = {batch: Requests(sglang, runner, [fill] * batch, drafts) for batch in (2, 4)}
    recorded = Recorded(monkeypatch, next(iter(backend._steps._kernels.values())))
    for batch in captured.values():
        batch.batch.seq_lens_cpu = None if drafts else batch.batch.seq_lens_cpu
        backend.init_forward_metadata_out_graph(batch.batch, in_capture=True)
        backend.init_forward_metadata_in_graph(batch.batch)
        forward(sglang, backend, batch)
    for seed, lengths in enumerate([[37, 200], [1, 64], [128, 193]]):
        larger = Requests(sglang, runner, [9, 80, 1, 7, 150], drafts, seed=seed)
        backend.init_forward_metadata(larger.batch)
        close(forward(sglang, backend, larger), larger.expected())
        requests = Requests(sglang, runner, lengths, drafts, seed=seed)
        backend.init_forward_metadata_out_graph(requests.batch)
        # The graph's own inputs are refreshed in place, and it writes the cache itself.
        captured[2].q.copy_(requests.q)
        want = requests.expected()
        runner.token_to_kv_pool.rows[requests.batch.out_cache_loc] = requests.k
        close(recorded.replay(0), want)


def test_graphs_keep_their_buffers(sglang):
    runner = runner_of(sglang)
    backend = backend_of(runner)
    backend.init_cuda_graph_state(4, 4)

    def addresses(lengths: list[int]) -> list[int]:
        backend.init_forward_metadata_out_graph(Requests(sglang, runner, lengths).batch)
        step = backend.forward_metadata
        return [each.data_ptr() for each in (step.table, step.lengths, step.plan.buffer)] + list(step.table.shape)

    first = addresses([1, 1, 1])
    assert addresses([200, 3, 64]) == first
    assert first[-2:] == [3, CONTEXT // 64]
    assert addresses([5, 5])[:2] == first[:2]


def test_a_step_is_prepared_without_waiting_for_the_device(sglang):
    runner = runner_of(sglang)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 200])
    backend.init_cuda_graph_state(2, 2)
    assert backend.needs_cpu_seq_lens is False
    requests.batch.seq_lens_cpu = None
    with Waits() as waits:
        backend.init_forward_metadata(requests.batch)
        backend.init_forward_metadata_out_graph(requests.batch)
    assert waits.names == []
    with Waits() as control:
        requests.batch.seq_lens.max().item()
    assert control.names


def test_nothing_is_copied_in_a_layer(sglang, monkeypatch):
    """The kernel is handed the very memory of queries, cache, table and lengths."""
    runner = runner_of(sglang)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 200])
    backend.init_forward_metadata(requests.batch)
    step, launched = backend.forward_metadata, []
    launch = type(step.kernel).__call__
    monkeypatch.setattr(type(step.kernel), "__call__", lambda *args, **kw: launched.append(args) or launch(*args, **kw))
    forward(sglang, backend, requests)
    ((_, *given),) = launched
    held = (requests.q, runner.token_to_kv_pool.rows, step.table, step.lengths)
    assert [each.data_ptr() for each in given] == [each.data_ptr() for each in held]
    latent, rope = requests.q[..., :RANK].transpose(0, 1).contiguous().transpose(0, 1), requests.q[..., RANK:].clone()
    given = (latent, None, None, layer_of(sglang), requests.batch)
    backend.forward_decode(*given, q_rope=rope)
    assert [each.data_ptr() for each in launched[1][1]] == [latent.data_ptr(), rope.data_ptr()]


@pytest.mark.parametrize("asked", [False, True])
def test_deterministic_inference_plans_each_request_by_itself(sglang, asked):
    """Another backend prefills then, which ``--prefill-attention-backend`` or ``--attention-backend`` names."""
    sglang.deterministic.enable_deterministic_inference = asked
    runner = runner_of(sglang, prefill_attention_backend_str="fa3")
    backend = backend_of(runner)
    backend.init_forward_metadata(Requests(sglang, runner, [37, 200]).batch)
    assert backend.forward_metadata.plan.batch_invariant is asked


def test_the_switch_of_all_calls_makes_steps_batch_invariant(sglang):
    """Though SGLang does not ask for it: plans are made, and refreshed."""
    runner = runner_of(sglang)
    backend = backend_of(runner)
    with mla.batch_invariant():
        for lengths in ([70, 2], [37, 200]):
            requests = Requests(sglang, runner, lengths)
            backend.init_forward_metadata(requests.batch)
            assert backend.forward_metadata.plan.batch_invariant
            close(forward(sglang, backend, requests), requests.expected())


def test_prefill_is_left_to_the_class_beneath(sglang):
    runner = runner_of(sglang)
    backend, batch = backend_of(runner), Requests(sglang, runner, [37, 200]).batch
    batch.forward_mode = type(batch.forward_mode).EXTEND
    del sglang.beneath[:]
    backend.init_forward_metadata(batch)
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    assert (
        backend.forward_extend("q", "k", "v", "layer", batch, False, q_rope="r")
        == "by forward_extend of the class beneath"
    )
    names = [name for name, _ in sglang.beneath]
    assert names == ["init_forward_metadata", "init_forward_metadata_out_graph", "forward_extend"]
    assert sglang.beneath[1][1]["in_capture"] is True
    given = {name: sglang.beneath[2][1][name] for name in ("q", "k", "v", "layer", "save_kv_cache", "q_rope", "k_rope")}
    assert given == {
        "q": "q",
        "k": "k",
        "v": "v",
        "layer": "layer",
        "save_kv_cache": False,
        "q_rope": "r",
        "k_rope": None,
    }


def test_a_rank_without_requests_prepares_nothing(sglang):
    runner = runner_of(sglang)
    backend, batch = backend_of(runner), Requests(sglang, runner, [4]).batch
    vars(batch).update(batch_size=0, forward_mode=type(batch.forward_mode).IDLE, seq_lens_cpu=torch.tensor([]))
    backend.init_forward_metadata(batch)
    assert backend.forward_metadata is None


def test_heads_are_those_of_a_rank(sglang):
    sglang.parallel.attn_tp_size = 2
    runner = runner_of(sglang, num_attention_heads=2 * HEADS)
    backend, requests = backend_of(runner), Requests(sglang, runner, [37, 200])
    backend.init_forward_metadata(requests.batch)
    close(forward(sglang, backend, requests), requests.expected())


def check_overridden(mine: type, theirs: list[Any]) -> list[str]:
    """What a class overrides: required parameters are the last one's, and what may be left out, one of them has too."""
    overridden = []
    for owner in (each for each in mine.__mro__ if each.__module__.startswith("mla_kernels.")):
        for name, member in vars(owner).items():
            found = [each["methods"][name] for each in theirs if name in each["methods"]]
            if callable(member) and found:
                ours = [each for each in shape_of(member) if owner is not mine or each != "prefill="]
                assert [each for each in ours if each[-1] != "="] == [each for each in found[-1] if each[-1] != "="], (
                    name
                )
                assert set(ours) <= {each for names in found for each in names}, name
                overridden.append(name)
            elif not callable(member) and not name.startswith("_"):
                kind = "methods" if isinstance(member, property) else "attributes"
                assert any(name in each[kind] for each in theirs), name
    return sorted(overridden)


def test_what_is_overridden_is_what_sglang_has(sglang):
    described = [
        sglang.names["classes"][name] for name in ("FlashMLABackend", "FlashInferMLAAttnBackend", "AttentionBackend")
    ]
    mine = importlib.import_module(OURS).MlaKernelsBackend
    assert described[0]["bases"] == [mine.__bases__[-1].__name__]
    assert check_overridden(mine, described) == [
        "__init__", "forward_decode", "forward_extend", "get_cuda_graph_seq_len_fill_value", "init_cuda_graph_state",
        "init_forward_metadata", "init_forward_metadata_out_graph",
    ]  # fmt: skip


def test_sglang_calls_what_there_is(sglang):
    backend = backend_of(runner_of(sglang))
    calls = [call for call in sglang.names["calls"] if hasattr(backend, call["name"])]
    assert {call["name"] for call in calls} == {
        "forward_decode", "forward_extend", "get_cuda_graph_seq_len_fill_value", "init_cuda_graph_state",
        "init_forward_metadata", "init_forward_metadata_in_graph", "init_forward_metadata_out_graph",
    }  # fmt: skip
    for call in calls:
        given = inspect.signature(getattr(backend, call["name"]))
        given.bind(*range(call["positional"]), **dict.fromkeys(call["keywords"]))
