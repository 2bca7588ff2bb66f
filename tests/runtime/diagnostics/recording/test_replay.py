"""A recorded call is replayed to the same bits, and a result that was changed is found, whatever the op."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import pytest
import torch
from mla_kernels import reference
from mla_kernels.api.signatures import SIGNATURES
from mla_kernels.diagnostics import record
from mla_kernels.diagnostics.cli import main
from mla_kernels.diagnostics.recording import call as calls
from mla_kernels.diagnostics.recording.referenced import REFERENCES
from mla_kernels.kernels import invariance
from mla_kernels.kernels.ops import KERNELS

from tests.runtime.diagnostics.recording.every_op import CALLS, decode, decode_of_ragged_queries, store_kv
from tests.runtime.small_decode import Decode


@pytest.fixture(params=CALLS, ids=lambda call: call.__name__)
def file(request, tmp_path):
    """The last call that an example makes, as a file."""
    torch.manual_seed(0)
    with record(tmp_path) as files:
        request.param()
    return files[-1]


@pytest.fixture
def replayed(capsys):
    """Replay a file: the status, and what the command says as JSON."""

    def call(path, *arguments):
        status = main(["replay", str(path), "--json", *arguments])
        return status, json.loads(capsys.readouterr().out)[0]

    return call


def changed(path, change):
    """Write a call again, after a change."""
    call = calls.load(path)
    change(call)
    calls.save(call, path)


def test_every_op_has_an_example():
    named = {name for call in CALLS for name in SIGNATURES if call.__name__.startswith(name)}
    assert named == set(SIGNATURES) == set(REFERENCES)


def test_a_replay_gives_the_same_bits(file, replayed):
    status, told = replayed(file)
    results = told["recorded_results"]
    assert (status, told["fault"], told["replayed"]["same_bits"]) == (0, False, True)
    assert {each["wrong"] for each in results} == {0}
    assert sum(each["elements"] for each in results) == sum(
        tensor.numel() for _, tensor in pieces(calls.load(file).outputs)
    )


def pieces(values):
    return [part for name, value in values.items() for part in calls.parts(name, value)]


def test_a_result_that_is_wrong_is_found(file, replayed):
    """One element of each result in turn, the last one."""
    original = calls.load(file)
    for name, tensor in pieces(original.outputs):
        call = calls.load(file)
        (bad,) = (part for key, part in pieces(call.outputs) if key == name)
        last = last_written(original, name, tensor)
        bad[last] = 77 if tensor.dtype == torch.int32 else float(tensor[last]) + 1
        path = file.with_name("changed.safetensors")
        calls.save(call, path)
        status, told = replayed(path)
        assert status == 1
        assert told["conclusion"].startswith("the recorded result is wrong, and this launch is right")
        found = [each for each in told["recorded_results"] if each["wrong"]]
        assert [(each["wrong"], each["wrong_rows"]) for each in found] == [(1, 1)]
        assert found[0]["at"][:-1] == found[0]["rows"][0]
        assert found[0]["columns"] == [found[0]["at"][-1]] * 2
        assert {each["wrong"] for each in told["replayed_results"]} == {0}


def last_written(call, name, tensor):
    """The last element of a result; of ragged queries, of the last token that belongs to a request."""
    place = [extent - 1 for extent in tensor.shape]
    if call.inputs.get("cu_seqlens_q") is not None:
        place[1 if name == "out" else 2] = int(call.inputs["cu_seqlens_q"][-1]) - 1
    return tuple(place)


def test_tokens_of_no_request_are_not_compared(tmp_path, replayed):
    """A launch writes nothing there."""
    with record(tmp_path) as files:
        decode_of_ragged_queries()

    def spoil(call):
        call.outputs["out"][0, 5] = 1e6
        call.outputs["lse"][0, :, 5] = 1e6

    changed(files[0], spoil)
    status, told = replayed(files[0])
    assert (status, told["replayed"]["same_bits"]) == (0, True)


def test_only_pages_that_a_call_refers_to_are_kept(file):
    call = calls.load(file)
    for name, pages in call.pages.items():
        pool = call.inputs[name][0] if isinstance(call.inputs[name], tuple) else call.inputs[name]
        assert len(pages) == len(pool)
        assert len(pages) <= call.pool[name]
        assert pages.tolist() == sorted(set(pages.tolist()))
    assert call.pages.keys() <= {reference.cache for reference in REFERENCES[call.op]}


def test_pages_of_a_large_pool(tmp_path):
    small = Decode()
    pool = torch.zeros(5000, 16, 576, dtype=torch.bfloat16)
    pool[4991:] = small.kv_cache
    with record(tmp_path) as files:
        small.call(kv_cache=pool, block_table=small.block_table + 4991)
    call = calls.load(files[0])
    assert call.pool == {"kv_cache": 5000}
    assert call.pages["kv_cache"].tolist() == sorted(
        (small.block_table[1, :2] + 4991).tolist() + (small.block_table[2] + 4991).tolist()
    )
    assert call.inputs["block_table"][0].tolist() == [-1, -1, -1]
    assert files[0].stat().st_size < 200_000
    assert main(["replay", str(files[0])]) == 0


def test_both_wrong(tmp_path, replayed, monkeypatch):
    """The reference is another one, with which neither launch agrees."""
    with record(tmp_path) as files:
        decode()
    right = reference.decode

    @functools.wraps(right)
    def other(*args, **kwargs):
        return tuple(2 + each for each in right(*args, **kwargs))

    monkeypatch.setattr(reference, "decode", other)
    status, told = replayed(files[0])
    assert (status, told["conclusion"]) == (1, "both results are wrong: report it with this file")


def test_what_is_written_in_place_is_kept_as_it_was_and_as_it_is(tmp_path):
    with record(tmp_path) as files:
        store_kv()
    call = calls.load(files[0])
    before, after = (each["kv_cache"].view(torch.uint8) for each in (call.inputs, call.outputs))
    assert call.pages["kv_cache"].tolist() == [0, 5]
    assert not before.any()
    assert after.flatten(0, 1).any(-1).nonzero()[:, 0].tolist() == [3, 16, 17]
    assert call.inputs["slot_mapping"].tolist() == [16, -1, 3, 17]


def test_strides_of_the_recorded_tensors_come_back(tmp_path, monkeypatch):
    """A page of a cache that lies among those of other layers."""
    seen = []
    pool = torch.randn(9, 2, 16, 576).bfloat16()
    with record(tmp_path) as files:
        Decode().call(kv_cache=pool[:, 1])
    launch = KERNELS["decode"].launch
    monkeypatch.setattr(
        KERNELS["decode"], "launch", lambda kernel, **given: seen.append(given["kv_cache"]) or launch(kernel, **given)
    )
    assert main(["replay", str(files[0])]) == 0
    assert seen[0].stride() == pool[:, 1].stride()


def test_a_value_that_is_out_of_range_is_named(tmp_path, capsys):
    with record(tmp_path) as files:
        decode()
    changed(files[0], lambda call: call.inputs["seq_lens"].fill_(900))
    assert main(["replay", str(files[0])]) == 1
    assert "seq_lens[0]: got 900; accepts 0 to 48" in capsys.readouterr().err


@pytest.mark.parametrize("example", CALLS[:4], ids=lambda call: call.__name__)
def test_the_op_in_one_call_serves_where_the_variant_is_not_installed(tmp_path, replayed, example):
    with record(tmp_path) as files:
        example()
    changed(files[-1], lambda call: vars(call).update(variant="another"))
    status, told = replayed(files[-1])
    assert (status, told["replayed"]["variant"][:10]) == (0, "cpu_decode")


@pytest.mark.parametrize("planned", [{}, {"max_splits": 2, "batch_invariant": False, "max_q_len": 0}])
def test_a_replay_switches_batch_invariance_as_it_was(tmp_path, monkeypatch, planned):
    """A plan has a flag of its own."""
    seen = []
    with record(tmp_path) as files:
        decode()
    changed(files[0], lambda call: vars(call).update(invariant=True, planned=planned))
    launch = KERNELS["decode"].launch

    def watched(kernel, **given):
        seen.append((invariance.enabled, getattr(given.get("plan"), "batch_invariant", None)))
        return launch(kernel, **given)

    monkeypatch.setattr(KERNELS["decode"], "launch", watched)
    assert main(["replay", str(files[0])]) == 0
    assert seen == [(False, False) if planned else (True, None)]


def test_a_variant_that_is_not_installed_is_replaced(tmp_path, replayed):
    with record(tmp_path) as files:
        decode()
    changed(files[0], lambda call: vars(call).update(variant="sm90a_decode", arch="sm90a"))
    status, told = replayed(files[0], "--arch=cpu")
    assert (status, told["replayed"]["variant"]) == (0, "cpu_decode_qbf16_kvbf16_obf16_direct_split")
    assert main(["replay", str(files[0])]) == 1


def test_a_replay_is_not_recorded(tmp_path):
    with record(tmp_path / "first") as files:
        decode()
    with record(tmp_path / "second") as others:
        assert main(["replay", str(files[0])]) == 0
    assert others == []


def test_a_launch_that_failed_has_no_results(tmp_path, replayed):
    with record(tmp_path) as files:
        decode()
    call = replace(calls.load(files[0]), outputs={}, failure="AcceleratorError: an illegal memory access")
    calls.save(call, files[0])
    status, told = replayed(files[0])
    assert (status, told["recorded_results"]) == (1, [])
    assert told["conclusion"].startswith("the recorded launch failed, and this launch is right")


def test_the_text_says_which_rows_and_columns(tmp_path, capsys):
    with record(tmp_path) as files:
        decode()

    def spoil(call):
        call.outputs["out"][1, 0, 2, 300:303] += 0.5

    changed(files[0], spoil)
    assert main(["replay", str(files[0])]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "recorded out: WRONG, 3 of 6144 elements in 1 of 12 rows, columns 300 to 302, rows [1, 0, 2]; largest" in said
    )
    assert "kv_cache: bfloat16 [5, 16, 576], 5 of 9 pages" in said
