"""The CPU refuses these values before it writes anything. A GPU treats them as absent instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support import memory
from tests.support.problems import SCALE, Decode, unchanged
from tests.support.rows import Row
from tests.support.sparse import INT_MAX, INT_MIN, SparseDecode, SparsePrefill

CPU = {"where": lambda row: row.arch == "cpu"}


def refuses(argument: str, call: Callable[[], object], *written: memory.Guarded) -> None:
    """Check that ``call`` raises ValueRangeError naming ``argument`` and leaves ``written`` as it was."""
    from mla_kernels.errors import InvalidArgumentError, ValueRangeError

    with (
        unchanged(*(guarded.buffer for guarded in written)),
        pytest.raises(ValueRangeError) as caught,
    ):
        call()
    assert issubclass(ValueRangeError, InvalidArgumentError)
    assert caught.value.argument.startswith(argument)
    assert str(caught.value).startswith(argument)
    assert "accepts" in str(caught.value)


def outputs(problem: Decode | SparseDecode, batch: int) -> tuple[memory.Guarded, memory.Guarded]:
    dtype = memory.DTYPES[problem.row.out_dtype]
    out = memory.guarded((batch, problem.q_len, problem.num_heads, problem.row.form.d_v), dtype)
    return out, memory.guarded((batch, problem.num_heads, problem.q_len), torch.float32, pad=1)


@pytest.mark.op("decode", **CPU)
@pytest.mark.parametrize("length", [-1, INT_MIN, INT_MAX, 64 * 5 + 1])
@pytest.mark.parametrize("request_", [0, 3])
def test_decode_lengths(variant: Row, length: int, request_: int) -> None:
    problem = Decode(variant.name, lengths=(140, 20, 1, 3), spare=2)
    inputs = problem.tensors()
    assert inputs["block_table"].shape[1] == 5
    inputs["seq_lens"][request_] = length
    out, lse = outputs(problem, 4)
    refuses(f"seq_lens[{request_}]", lambda: problem.launch(inputs, out=out.view, lse=lse.view), out, lse)


@pytest.mark.op("decode", **CPU)
def test_decode_length_beyond_a_contiguous_page(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(4, 5), paged=False, spare=0)
    inputs = problem.tensors()
    inputs["seq_lens"][1] = 6
    out, lse = outputs(problem, 2)
    refuses("seq_lens[1]", lambda: problem.launch(inputs, out=out.view, lse=lse.view), out, lse)


@pytest.mark.op("decode", **CPU)
@pytest.mark.parametrize("page", [-1, INT_MIN, INT_MAX, "one too many"])
def test_decode_used_table_entries(variant: Row, page: int | str) -> None:
    problem = Decode(variant.name, lengths=(20, 140), num_heads=2)
    inputs = problem.tensors()
    inputs["block_table"][1, 2] = len(inputs["kv_cache"]) if isinstance(page, str) else page
    out, lse = outputs(problem, 2)
    refuses("block_table[1, 2]", lambda: problem.launch(inputs, out=out.view, lse=lse.view), out, lse)


@pytest.mark.op("decode", where=lambda row: row.arch == "cpu" and row.kv_dtype != "e4m3")
def test_decode_scale_of_a_cache_without_one(variant: Row) -> None:
    problem = Decode(variant.name, lengths=(20,))
    inputs = problem.tensors()
    out, lse = outputs(problem, 1)
    call = {**problem.scalars(), "kv_scale": 0.5, "out": out.view, "lse": lse.view}
    refuses("kv_scale", lambda: problem.kernel()(**inputs, **call), out, lse)


def launch(
    problem: SparseDecode, inputs: dict[str, Any], out: memory.Guarded, lse: memory.Guarded
) -> Callable[[], object]:
    return lambda: problem.launch(inputs, out=out.view, lse=lse.view)


@pytest.mark.op("sparse_decode", **CPU)
@pytest.mark.parametrize("index", [9 * 64, INT_MAX])
@pytest.mark.parametrize("where", [(0, 0, 0), (2, 1, 63), (1, 0, 31)])
def test_sparse_decode_indices(variant: Row, index: int, where: tuple[int, int, int]) -> None:
    problem = SparseDecode(variant.name, q_len=2, num_heads=2)
    inputs = problem.tensors()
    inputs["indices"][where] = index
    out, lse = outputs(problem, 3)
    refuses(f"indices[{', '.join(map(str, where))}]", launch(problem, inputs, out, lse), out, lse)


@pytest.mark.op("sparse_decode", **CPU)
def test_sparse_decode_extra_indices(variant: Row) -> None:
    problem = SparseDecode(variant.name, num_heads=2, extra_topk=9)
    inputs = problem.tensors()
    inputs["extra_indices"][2, 0, 8] = 15
    out, lse = outputs(problem, 3)
    refuses("extra_indices[2, 0, 8]", launch(problem, inputs, out, lse), out, lse)


@pytest.mark.op("sparse_decode", **CPU)
@pytest.mark.parametrize("prefix", ["", "extra_"])
@pytest.mark.parametrize("count", [-1, 65, INT_MIN, INT_MAX])
def test_sparse_decode_counts(variant: Row, prefix: str, count: int) -> None:
    problem = SparseDecode(variant.name, num_heads=2, counts=True, extra_topk=64)
    inputs = problem.tensors()
    inputs[f"{prefix}topk_length"][1, 0] = count
    out, lse = outputs(problem, 3)
    refuses(f"{prefix}topk_length[1, 0]", launch(problem, inputs, out, lse), out, lse)


@pytest.mark.op("sparse_prefill", **CPU)
@pytest.mark.parametrize(("argument", "where", "value"), [
    ("indices", (3, 63), 300),
    ("indices", (0, 0), INT_MAX),
    ("topk_length", (2,), 65),
    ("topk_length", (0,), -1),
])  # fmt: skip
def test_sparse_prefill(variant: Row, argument: str, where: tuple[int, ...], value: int) -> None:
    import mla_kernels as mla

    inputs = SparsePrefill(variant.name, num_heads=2).tensors()
    inputs["topk_length"] = torch.full((5,), 64, dtype=torch.int32)
    inputs[argument][where] = value
    name = f"{argument}[{', '.join(map(str, where))}]"
    refuses(name, lambda: mla.sparse_prefill(**inputs, softmax_scale=SCALE))


@pytest.mark.op("sparse_decode", **CPU)
@pytest.mark.parametrize("prefix", ["", "extra_"])
def test_lists_of_more_than_32_bits(variant: Row, prefix: str) -> None:
    import mla_kernels as mla
    from mla_kernels.errors import ShapeError

    traits: dict[str, Any] = dict(variant.traits)
    kernel = mla.lookup(op="sparse_decode", arch=variant.arch, **traits)
    kernel.can_run(**{f"{prefix}topk": INT_MAX})
    for topk in (2**31, 2**32 + 64, 2**63 - 1):
        message = f"{prefix}indices: got {prefix}topk = {topk}; accepts 0 to {INT_MAX}"
        with pytest.raises(ShapeError, match=message):
            kernel.can_run(**{f"{prefix}topk": topk})


@pytest.mark.op("store_kv", **CPU)
@pytest.mark.parametrize("slot", [12, 2**31, 2**62])
@pytest.mark.parametrize("token", [0, 4])
def test_store_slots(variant: Row, slot: int, token: int) -> None:
    import mla_kernels as mla

    form, dtype = variant.form, memory.DTYPES[variant.in_dtype]
    cache = memory.guarded((3, 4, memory.width_of(form)), memory.dtype_of(form))
    if form.page_multiple > 1:
        cache = memory.guarded_pages(form, 3, 4)
    slots = torch.arange(5)
    slots[token] = slot
    scale = torch.ones(1) if variant.kv_dtype == "e4m3" else None
    latent, rope = (torch.ones(5, width, dtype=dtype) for width in (form.latent, form.rope))
    arguments = (latent, rope, cache.view, slots)
    refuses(f"slot_mapping[{token}]", lambda: mla.store_kv(*arguments, scale=scale, kv_dtype=form.name), cache)


@pytest.mark.op("gather_kv", **CPU)
@pytest.mark.parametrize("index", [12, INT_MAX])
def test_gather_indices(variant: Row, index: int) -> None:
    import mla_kernels as mla

    cache = memory.pages_of(variant.form, 3, 4)
    named = {"kv_dtype": variant.kv_dtype, "out_dtype": variant.out_dtype}
    indices = torch.tensor([0, -1, index], dtype=torch.int32)
    refuses("indices[2]", lambda: mla.gather_kv(cache, indices, **named))


@pytest.mark.op("to_global_indices", **CPU)
@pytest.mark.parametrize("request_", [-1, 2, INT_MIN, INT_MAX])
def test_requests(variant: Row, request_: int) -> None:
    import mla_kernels as mla

    table, tokens = torch.zeros(2, 3, dtype=torch.int32), torch.zeros(4, 5, dtype=torch.int32)
    req_id = torch.tensor([0, 1, request_, 0], dtype=torch.int32)
    refuses("req_id[2]", lambda: mla.to_global_indices(req_id, table, tokens, page_size=64))


@pytest.mark.op("decode", where=lambda row: row.kv_dtype == "fp8_ds_mla")
def test_unaligned_bytes_are_refused_or_right(variant: Row) -> None:
    """A 656-byte row that starts at an odd address holds scales that no float pointer may touch."""
    from mla_kernels.errors import AlignmentError

    problem = Decode(variant.name, lengths=(40, 9), num_heads=2)
    inputs = problem.tensors()
    pool = inputs["kv_cache"]
    raw = torch.empty(pool.numel() + 1, dtype=torch.uint8, device=variant.device)
    inputs["kv_cache"] = raw[1:].view(pool.shape).copy_(pool)
    try:
        out, lse = problem.launch(inputs)
    except AlignmentError:
        return
    problem.compare(out, lse, *problem.expected())
