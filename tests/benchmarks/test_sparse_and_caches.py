"""The bench of sparse attention and of cache ops, as far as it needs no GPU: cells, tensors, runs, pages, command."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import mla_kernels as mla
import pytest
import torch
from mla_kernels import reference
from mla_kernels.api.lookup import find
from mla_kernels.compat import flash_mla
from mla_kernels.diagnostics.bench.problems import SCALE, shapes
from mla_kernels.errors import ValueRangeError

from benchmarks.ops import caches_cuda, sparse_cuda
from benchmarks.ops.sparse_problems import DECODE_SUITES, PREFILL_SUITES, SparseDecode, SparsePrefill, decodes, prefills
from benchmarks.ops.sparse_tensors import SparseDecodeTensors, SparsePrefillTensors, chosen
from benchmarks.pages import page, roofline
from benchmarks.peers import adapters

from .imagined import COPY, US, imagine, shell

CPU = torch.device("cpu")
DECODE = SparseDecode("bf16", "fp8_ds_mla", 4, 2, 200, 48, q_len=2, page_size=16)
PREFILL = SparsePrefill("bf16", 4, 5, 100, 32)


@pytest.fixture
def measure(monkeypatch):
    return imagine(monkeypatch)


# Cells


def test_cells_are_every_combination():
    cells = decodes(("bf16", "bf16:fp8_ds_mla"), shapes((64, 128), (1, 2), (8,), (100, 200)), (16, 32), (64,))
    assert len(cells) == len(set(cells)) == 32
    assert cells[0] == SparseDecode("bf16", "bf16", 64, 8, 100, 16)
    assert prefills(("bf16",), ((64, 10, 1, 100),), (16,)) == (SparsePrefill("bf16", 64, 10, 100, 16),)


def test_suites_have_the_cells_that_are_to_be_reached():
    assert {(heads, q_len) for heads, q_len, _, _ in DECODE_SUITES["h200"]} == {(64, 1), (64, 2), (128, 1), (128, 2)}
    assert {batch for _, _, batch, _ in DECODE_SUITES["h200"]} == {1, 2, 4, 64, 128}
    assert {(heads, kv) for heads, _, _, kv in PREFILL_SUITES["h200"]} == {
        (heads, kv) for heads in (64, 128) for kv in (8192, 32768, 65536, 131072)
    }


def test_costs_by_hand():
    """Of the table of peers: 183.7 us are 398 TFLOP/s, and 4139.8 us 564."""
    decode = SparseDecode("bf16", "fp8_ds_mla", 128, 128, 32768, 2048)
    assert decode.counts["FLOP"] / 183.7e-6 / 1e12 == pytest.approx(398, abs=1)
    assert decode.counts["tokens"] == 128 * 2048
    assert decode.counts["bytes"] == 128 * (2048 * 660 + 128 * 1088 * 2)
    prefill = SparsePrefill("bf16", 128, 4096, 32768, 2048)
    assert prefill.counts["FLOP"] / 4139.8e-6 / 1e12 == pytest.approx(564, abs=1)
    assert prefill.counts["bytes"] == 32768 * 1152 + 4096 * (128 * 1088 * 2 + 4 * 2048)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: decodes(("bf16",), ((64, 1, 8, 100),), (128,), (64,)), "topk: got 128; accepts up to 100, the tokens"),
        (lambda: decodes(("bf16",), ((64, 1, 8, 100),), (0,), (64,)), "topk: got 0; accepts integers from 1"),
        (lambda: decodes(("int4",), ((64, 1, 8, 100),), (16,), (64,)), "dtypes: got 'int4'"),
        (lambda: prefills(("bf16:e4m3",), ((64, 1, 1, 100),), (16,)), "dtypes: got 'bf16:e4m3'; accepts one type"),
        (lambda: prefills(("bf16",), ((64, 1, 2, 100),), (16,)), "batch: got 2; accepts 1, because sparse prefill is"),
    ],
)
def test_refused_cells(call, text):
    with pytest.raises(ValueRangeError, match=text):
        call()


def test_chosen_numbers_are_distinct():
    source = torch.Generator().manual_seed(0)
    rows = chosen(50, 40, 60, source)
    assert rows.shape == (50, 40)
    assert all(len(row.unique()) == 40 for row in rows)
    assert (rows.min(), rows.max()) == (0, 59)


def test_requests_have_slots_of_their_own():
    tensors = SparseDecodeTensors(DECODE, CPU, 3)
    assert tensors.indices.shape == (3, 2, 2, 48)
    assert all(len(row.unique()) == 48 for row in tensors.indices.view(-1, 48))
    pages = [set((request // 16).unique().tolist()) for request in tensors.indices.view(6, -1)]
    assert len(set.union(*pages)) == sum(map(len, pages))
    assert tensors.kv_cache.shape == (6 * 13, 16, 656)
    out, _ = mla.sparse_decode(tensors.q[2], tensors.kv_cache, tensors.indices[2], softmax_scale=SCALE)
    want, _ = reference.sparse_decode(tensors.q[2], tensors.kv_cache, tensors.indices[2], softmax_scale=SCALE)
    # A kernel may round the weights to 16 bits; values have a deviation of 1.
    torch.testing.assert_close(out.float(), want, rtol=0.02, atol=1e-2)


def test_v4_has_a_window_beside_what_is_selected():
    cell = SparseDecode("bf16", "fp8_ds_v4", 4, 2, 200, 48, q_len=2, page_size=16, d_qk=512, window=32)
    assert cell.counts["tokens"] == 4 * (48 + 32)
    assert cell.counts["bytes"] == 4 * 80 * 588 + 4 * 4 * 1024 * 2
    assert (cell.fields["d_qk"], cell.fields["window"]) == (512, 32)
    tensors, kernel = SparseDecodeTensors(cell, CPU, 3), find(cell.config("cpu"))
    assert kernel.variant.name == "cpu_sparse_decode_qbf16_kvfp8_ds_v4_obf16_direct_split_d512"
    for i, (positional, named) in enumerate(sparse_cuda.decode_calls(kernel, tensors)):
        kernel(*positional, **named)
        caches = {name: named[name] for name in ("kv_cache", "indices", "extra_kv_cache", "extra_indices")}
        want, _ = reference.sparse_decode(tensors.q[i], **caches, softmax_scale=SCALE)
        torch.testing.assert_close(tensors.out[i].float(), want, rtol=0.02, atol=1e-2)


# Runs


def test_sparse_decode(measure):
    document = measure(sparse_cuda.DECODE, DECODE, SparseDecode("bf16", "fp16", 4, 2, 100, 16))
    json.dumps(document)
    row, refused = document["rows"]
    assert row["variant"] == "cpu_sparse_decode_qbf16_kvfp8_ds_mla_obf16_direct_split"
    assert (row["us"], row["call us"]) == pytest.approx((US, 3.0))
    assert row["TFLOP/s"] == pytest.approx(DECODE.counts["FLOP"] / US / 1e6)
    assert (refused["variant"], refused["us"]) == ("no variant", None)


def test_sparse_prefill(measure):
    document = measure(sparse_cuda.PREFILL, PREFILL)
    (row,) = document["rows"]
    assert row["variant"] == "cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_rows"
    assert (row["us"], row["call us"]) == pytest.approx((US, 3.0))
    assert row["tokens"] == 5 * 32


def test_caches(measure, monkeypatch):
    monkeypatch.setattr(caches_cuda, "MANY", 256)
    cells = caches_cuda.cells("cpu")
    variants = [each for op in ("store_kv", "gather_kv") for each in mla.variants(op=op, arch="cpu", d_qk=576)]
    assert len(cells) == 3 * len(variants) + 3
    document = measure(caches_cuda.OP, *cells)
    assert {row["variant"] for row in document["rows"]} == {each.name for each in variants} | {"cpu_to_global_indices"}
    assert [row.get("note") for row in document["rows"]] == [None] * len(cells)
    row = document["rows"][0]
    assert row["of ceiling"] == pytest.approx(row["bytes"] / US / 1e6 / COPY)


# Peers


def fake_decode(q, cache, table, lengths, width, meta, splits, *, softmax_scale, is_fp8_kvcache, indices):
    assert (table, lengths, width, meta, splits, is_fp8_kvcache) == (None, None, 512, "metadata", None, True)
    return mla.sparse_decode(q, cache[:, :, 0], indices, softmax_scale=softmax_scale)


def fake_prefill(q, kv, indices, sm_scale):
    return mla.sparse_prefill(q, kv[:, 0], indices[:, 0], softmax_scale=sm_scale)


FAKE = SimpleNamespace(
    get_mla_metadata=lambda: ("metadata", None), flash_mla_with_kvcache=fake_decode, flash_mla_sparse_fwd=fake_prefill
)


@pytest.mark.parametrize("module", [FAKE, flash_mla], ids=["as FlashMLA documents it", "our own door"])
@pytest.mark.parametrize("op", ["decode", "prefill"])
def test_peers_are_called_as_they_want(op, module):
    """Our own door has FlashMLA's signatures."""
    if op == "decode":
        decode = SparseDecodeTensors(DECODE, CPU, 2)
        got = adapters.SPARSE_DECODE_PEERS[0].prepare(module, decode)(1)
        want, _ = mla.sparse_decode(decode.q[1], decode.kv_cache, decode.indices[1], softmax_scale=SCALE)
    else:
        prefill = SparsePrefillTensors(PREFILL, CPU, 2)
        got = adapters.SPARSE_PREFILL_PEERS[0].prepare(module, prefill)(1)
        want, *_ = mla.sparse_prefill(prefill.q[1], prefill.kv[1], prefill.indices[1], softmax_scale=SCALE)
    assert adapters.relative_error(got, want) < 0.01


@pytest.mark.parametrize("accepted", [{64, 128}, {PREFILL.num_heads, 64, 128}], ids=["padded", "as they are"])
def test_queries_of_few_heads_are_padded_for_a_peer_that_refuses_them(accepted):
    seen = []

    def prefill(q, kv, indices, sm_scale):
        if q.shape[1] not in accepted:
            raise RuntimeError("h_q")
        seen.append(q.shape[1])
        return fake_prefill(q, kv, indices, sm_scale)

    tensors = SparsePrefillTensors(PREFILL, CPU, 2)
    module = SimpleNamespace(flash_mla_sparse_fwd=prefill)
    got = adapters.SPARSE_PREFILL_PEERS[0].prepare(module, tensors)(1)
    want, *_ = mla.sparse_prefill(tensors.q[1], tensors.kv[1], tensors.indices[1], softmax_scale=SCALE)
    assert set(seen) == {min(accepted)}
    assert adapters.relative_error(got, want) < 0.01


def test_queries_and_rows_are_rounded_to_e4m3_for_a_peer_that_multiplies_in_it():
    def prefill(q, kv, indices, sm_scale, q_scale, kv_scale):
        assert q.dtype == kv.dtype == torch.float8_e4m3fn
        assert q.shape[1] == 64
        return fake_prefill((q.float() * q_scale).bfloat16(), (kv.float() * kv_scale).bfloat16(), indices, sm_scale)

    tensors = SparsePrefillTensors(PREFILL, CPU, 2)
    launch = adapters.sglang_q8kv8(SimpleNamespace(sparse_mla_q8kv8_prefill_fwd=prefill), tensors)
    want, *_ = mla.sparse_prefill(tensors.q[1], tensors.kv[1], tensors.indices[1], softmax_scale=SCALE)
    assert launch(1).shape == want.shape
    assert 0.001 < adapters.relative_error(launch(1), want) < 0.08


# What a measurement becomes


def test_pages(measure, monkeypatch, tmp_path):
    monkeypatch.setattr(caches_cuda, "MANY", 256)
    runs = {
        "Sparse decode": measure(sparse_cuda.DECODE, DECODE),
        "Sparse prefill": measure(sparse_cuda.PREFILL, PREFILL),
        "Cache ops": measure(caches_cuda.OP, *caches_cuda.cells("cpu")[:4]),
    }
    for title, document in runs.items():
        text = page.page({"command": "c", **document}, data="x.json", picture=None)
        assert text.startswith(f"# {title}: Imagined GPU\n")
        header, *_ = (line for line in text.splitlines() if line.startswith("| "))
        assert "us" in header.split(" | ")
        assert all(f"- `{column}`: " in text for column in document["method"])
    assert "3.00 TB/s read and written, the fastest of torch's copies" in text
    for name in ("Sparse decode", "Sparse prefill"):
        roofline.draw(runs[name], str(tmp_path / "plot.png"))
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def bench(capsys):
    return shell(capsys)


@pytest.mark.parametrize(
    ("op", "options", "want"),
    [
        ("sparse_decode", ("--heads=2,3", "--batch=1", "--seq=70", "--topk=8"), {"kv": "fp8_ds_mla", "topk": 8}),
        ("sparse_prefill", ("--heads=2", "--q-len=3", "--seq=70", "--topk=8"), {"q_len": 3, "kv": "bf16"}),
        ("caches", (), {"op": "store_kv"}),
    ],
)
def test_the_command(measure, bench, monkeypatch, tmp_path, op, options, want: dict[str, Any]):
    monkeypatch.setattr("benchmarks.command.HOST", "another")
    monkeypatch.setattr(caches_cuda, "MANY", 256)
    done = bench(f"--op={op}", "--arch=cpu", *options, f"--markdown={tmp_path / 'page.md'}", "--json")
    assert (done.status, done.err) == (0, "")
    told = json.loads(done.out)
    assert told["op"] == op
    assert told["command"].startswith(f"python -m benchmarks --op {op} --arch cpu")
    assert {name: told["rows"][0][name] for name in want} == want
    assert json.loads((tmp_path / "data" / "page.json").read_text()) == told
    again = bench(f"--op={op}", f"--measured={tmp_path / 'data' / 'page.json'}", "--json")
    assert json.loads(again.out) == told


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--op=sparse_decode", "--arch=cpu"), "op: got sparse_decode; accepts decode or overhead on a CPU"),
        (("--op=decode", "--arch=sm90a", "--topk=3"), "topk: got 3; accepts nothing here: --op decode has no use"),
        (("--op=decode", "--arch=cpu", "--topk=3"), "topk: got 3; accepts nothing here: it is for CUDA"),
        (("--op=sparse_prefill", "--arch=sm90a", "--page-size=64"), "page-size: got 64; accepts nothing here"),
        (("--op=sparse_decode", "--arch=sm90a", "--lengths=long"), "lengths: got long; accepts nothing here"),
        (("--op=caches", "--arch=sm90a", "--heads=3"), "heads: got 3; accepts nothing here: --op caches has no use"),
    ],
)
def test_refusals(bench, arguments, part):
    done = bench(*arguments)
    assert (done.status, done.out) == (1, "")
    assert part in done.err
