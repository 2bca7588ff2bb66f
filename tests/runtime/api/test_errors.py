"""Every refusal is a typed error that names the argument, and leaves the outputs as they were."""

from __future__ import annotations

import mla_kernels as mla
import numpy as np
import pytest
import torch
from mla_kernels.errors import (
    DeviceError,
    DTypeError,
    InvalidArgumentError,
    ShapeError,
    StrideError,
    UnsupportedError,
    ValueRangeError,
    VariantNotFoundError,
    WorkspaceError,
)

from tests.runtime.small_decode import SCALE, Decode

POISON = 7.0


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def with_element(tensor: torch.Tensor, at: tuple[int, ...], value: int) -> torch.Tensor:
    changed = tensor.clone()
    changed[at] = value
    return changed


D = Decode()
REFUSED = {
    "q is a list": ({"q": [1.0]}, DTypeError, "q", "a tensor"),
    "q of integers": ({"q": D.q.int()}, DTypeError, "q", "float32, float16, bfloat16, float8_e4m3fn"),
    "q without batch": ({"q": D.q[0]}, ShapeError, "q", "[batch, q_len, num_heads, 576]"),
    "q of a vector": ({"q": D.q[0, 0, 0]}, ShapeError, "q", "[batch, q_len, num_heads, 576]"),
    "q too narrow": ({"q": D.q[..., :512]}, ShapeError, "q", "576"),
    "q strided within rows": ({"q": D.q.repeat_interleave(2, -1)[..., ::2]}, StrideError, "q", "stride 1"),
    "q on another device": ({"q": D.q.to("meta")}, DeviceError, "q", "cpu"),
    "pair of three": ({"q": (D.q, D.q, D.q)}, ShapeError, "q", "pair"),
    "pair too wide": ({"q": (D.q, D.q)}, ShapeError, "q[0]", "512"),
    "kv_cache without pages": ({"kv_cache": D.kv_cache[0]}, ShapeError, "kv_cache", "[num_pages, page_size"),
    "kv_cache too narrow": ({"kv_cache": D.kv_cache[..., :575]}, ShapeError, "kv_cache", "576"),
    "table of int64": ({"block_table": D.block_table.long()}, DTypeError, "block_table", "int32"),
    "table of another batch": ({"block_table": D.block_table[:2]}, ShapeError, "block_table", "3, as q has"),
    "table strided": (
        {"block_table": D.block_table.repeat_interleave(2, 1)[:, ::2]},
        StrideError,
        "block_table",
        "stride 1",
    ),
    "table too narrow": ({"block_table": D.block_table[:, :2]}, ValueRangeError, "seq_lens[2]", "0 to 32"),
    "page out of range": (
        {"block_table": with_element(D.block_table, (2, 1), 9)},
        ValueRangeError,
        "block_table[2, 1]",
        "0 to 8",
    ),
    "cache without pages": ({"kv_cache": D.kv_cache[:0]}, ValueRangeError, "block_table[1, 0]", "no page, because"),
    "page negative": (
        {"block_table": with_element(D.block_table, (1, 0), -1)},
        ValueRangeError,
        "block_table[1, 0]",
        "0 to 8",
    ),
    "no lengths": ({"seq_lens": None}, DTypeError, "seq_lens", "tensor"),
    "lengths of int64": ({"seq_lens": D.seq_lens.long()}, DTypeError, "seq_lens", "int32"),
    "lengths of a matrix": ({"seq_lens": D.seq_lens[None]}, ShapeError, "seq_lens", "[batch]"),
    "lengths of another batch": ({"seq_lens": int32(1, 2)}, ShapeError, "seq_lens", "3, as q has"),
    "length negative": ({"seq_lens": int32(1, -1, 4)}, ValueRangeError, "seq_lens[1]", "0 to "),
    "length too large": ({"seq_lens": int32(1, 2, 49)}, ValueRangeError, "seq_lens[2]", "0 to 48"),
    "contiguous cache of fewer requests": (
        {"block_table": None, "kv_cache": D.kv_cache[:2], "seq_lens": int32(1, 2, 3)},
        ShapeError,
        "kv_cache",
        "3",
    ),
    "scale NaN": ({"softmax_scale": float("nan")}, ValueRangeError, "softmax_scale", "finite"),
    "scale infinite": ({"out_scale": float("inf")}, ValueRangeError, "out_scale", "finite"),
    "scale a string": ({"softmax_scale": "1"}, DTypeError, "softmax_scale", "a Python float or int"),
    "kv_scale of an unquantised cache": ({"kv_scale": 2.0}, ValueRangeError, "kv_scale", "1"),
    "causal 2": ({"causal": 2}, ValueRangeError, "causal", ""),
    "splits negative": ({"max_splits": -1}, ValueRangeError, "max_splits", "0"),
    "out of another type": ({"out": torch.zeros(3, 1, 4, 512)}, DTypeError, "out", "bfloat16"),
    "out of another shape": ({"out": torch.zeros(3, 1, 5, 512).bfloat16()}, ShapeError, "out", "4, as q has"),
    "out overlapping": (
        {"out": torch.zeros(1, 1, 1, 512).bfloat16().expand(3, 1, 4, 512)},
        StrideError,
        "out",
        "overlap",
    ),
    "lse of another type": ({"lse": torch.zeros(3, 4, 1).half()}, DTypeError, "lse", "float32"),
    "workspace too small": ({"workspace": torch.zeros(0, dtype=torch.uint8)}, WorkspaceError, "workspace", "at least"),
    "workspace with gaps": (
        {"workspace": torch.zeros(1 << 22, 2, dtype=torch.uint8)[:, 0]},
        WorkspaceError,
        "workspace",
        "contiguous",
    ),
    "plan no plan": ({"plan": torch.zeros(8)}, DTypeError, "plan", "the Plan that kernel.plan(seq_lens) returns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name_and_nothing_written(case):
    changes, error, argument, accepts = REFUSED[case]
    out = torch.full((3, 1, 4, 512), POISON).bfloat16()
    lse = torch.full((3, 4, 1), POISON)
    with pytest.raises(error) as caught:
        D.call(**{"out": out, "lse": lse, **changes})
    assert (out == POISON).all()
    assert (lse == POISON).all()
    assert argument in caught.value.argument
    assert accepts in caught.value.accepts


def test_page_size_that_the_pool_contradicts(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16", page_size=32)
    with pytest.raises(ShapeError, match="kv_cache: got page_size = 16; accepts 32"):
        kernel(**problem.arguments())


@pytest.mark.parametrize("width", [528, 264])
def test_rows_that_only_a_sparse_decode_reads(width):
    """``decode`` has no ``kv_dtype`` that would tell the two formats of 528 bytes apart."""
    cache = torch.zeros(1, 16, width, dtype=torch.uint8)
    rows = r"320 \(e4m3\), 512 \(e4m3\), 576 \(e4m3\), 656 \(fp8_ds_mla\); sparse_decode reads the others"
    with pytest.raises(ShapeError, match=rf"^kv_cache: got rows of 528 bytes; accepts {rows}"):
        D.call(kv_cache=cache if width == 528 else (cache, cache))


def test_numbers_of_numpy_are_refused_by_their_whole_name(problem):
    kernel = mla.lookup(op="to_global_indices", arch="cpu")
    given = int32(0), int32(0)[None], int32(0)[None]
    for value, name in ((np.int64(16), r"numpy\.int64"), ("16", "str")):
        with pytest.raises(DTypeError, match=f"^page_size: got {name}; accepts a Python int of at least 0"):
            kernel(*given, page_size=value)
    with pytest.raises(ValueRangeError, match="page_size: got None; accepts an integer, because the kernel's config"):
        kernel(*given)
    with pytest.raises(DTypeError, match=r"^check: got numpy\.bool_?; accepts True or False"):
        problem.call(check=np.True_)


def test_numbers_of_the_config_are_exact_limits(problem):
    for name, value in {"num_heads": 8, "q_len": 2}.items():
        kernel = mla.lookup(op="decode", q_dtype="bf16", **{name: value})
        with pytest.raises(ShapeError, match=f"{name} = {getattr(problem, name)}; accepts {value}"):
            kernel(**problem.arguments())


@pytest.mark.parametrize(("layout", "table"), [("paged", None), ("contiguous", D.block_table)])
def test_layout_of_the_config_must_be_the_calls(layout, table):
    kernel = mla.lookup(op="decode", q_dtype="bf16", kv_layout=layout)
    with pytest.raises(UnsupportedError, match=f"block_table: .*the kernel's config says {layout}"):
        kernel(**D.arguments(block_table=table))


def test_tensor_of_another_framework_device_is_refused_together(problem):
    with pytest.raises(InvalidArgumentError, match="kv_cache"):
        problem.call(kv_cache=problem.kv_cache.to("meta"))


def test_read_only_output_is_refused():
    q = np.ones((1, 1, 1, 576), np.float32)
    out = np.zeros((1, 1, 1, 512), np.float32)
    out.flags.writeable = False
    cache, lengths = np.ones((1, 16, 576), np.float32), np.ones(1, np.int32)
    with pytest.raises(InvalidArgumentError, match=r"out: got a read-only tensor; accepts .* \(arrays of JAX are"):
        mla.decode(q, cache, None, lengths, softmax_scale=SCALE, out=out)


def test_framework_that_cannot_allocate_the_output_says_so():
    q = np.zeros((1, 512), np.uint16)
    cache = np.zeros((1, 16, 656), np.uint8)
    with pytest.raises(UnsupportedError, match=r"out: got None; accepts a bf16 tensor .* because numpy allocates fp32"):
        mla.gather_kv(cache, np.zeros(1, np.int32))
    with pytest.raises(DTypeError, match="latent: got uint16; accepts float32"):
        mla.store_kv(q, q[:, :64], cache, np.zeros(1, np.int64))


class OfJax:
    """An array whose framework allocates nothing here."""

    __module__ = "jaxlib.array"

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_a_plan_is_made_where_the_lengths_are():
    kernel = mla.lookup(op="decode", arch="cpu", q_dtype="fp32", num_heads=1, q_len=1)
    with pytest.raises(UnsupportedError, match=r"seq_lens: got OfJax; accepts a tensor of torch.* buffer of the plan"):
        kernel.plan(OfJax(np.ones(1, np.int32)))


def test_types_that_differ_are_said_first():
    with pytest.raises(VariantNotFoundError, match=r"^q is fp32 and kv_cache bf16: convert one, such as q.to"):
        D.call(q=D.q.float())
    latent, slots = torch.zeros(1, 576, dtype=torch.float16), torch.zeros(1, dtype=torch.int64)
    with pytest.raises(VariantNotFoundError, match=r"^latent is fp16 and kv_cache bf16: convert latent and"):
        mla.store_kv(latent[:, :512], latent[:, 512:], D.kv_cache, slots)


def test_reasons_are_said():
    for changes, reason in (
        ({"block_table": None, "seq_lens": D.seq_lens + 99}, r"\(one page of kv_cache, because block_table is None\)"),
        ({"kv_cache": D.kv_cache[..., :512].contiguous()}, r"num_heads, 512\], because the rows of kv_cache have d_qk"),
        ({"kv_cache": D.kv_cache.to(torch.int8)}, "accepts .*float8_e4m3fn, uint8 for a cache of bytes"),
        ({"stream": "0"}, r"the address of a CUDA stream, such as torch\.cuda\.current_stream\(\)\.cuda_stream"),
    ):
        with pytest.raises(InvalidArgumentError, match=reason):
            D.call(**changes)
    cache = torch.zeros(1, 4, 576).to(torch.float8_e4m3fn)
    with pytest.raises(DTypeError, match=r"scale: got float; accepts a tensor of float32, \[1\]"):
        mla.store_kv(torch.zeros(1, 512), torch.zeros(1, 64), cache, torch.zeros(1, dtype=torch.int64), scale=0.02)


SPARSE = {"q": D.q, "kv_cache": D.kv_cache, "indices": torch.zeros(3, 1, 8, dtype=torch.int32), "softmax_scale": SCALE}


@pytest.mark.parametrize(
    ("changes", "error", "argument"),
    [
        ({"indices": torch.full((3, 1, 8), 144, dtype=torch.int32)}, ValueRangeError, "indices[0, 0, 0]"),
        ({"indices": torch.zeros(3, 8, dtype=torch.int32)}, ShapeError, "indices"),
        ({"indices": torch.zeros(3, 1, 8)}, DTypeError, "indices"),
        ({"topk_length": int32(8, 9, 8)}, ValueRangeError, "topk_length[1, 0]"),
        ({"topk_length": int32(8, 8)}, ShapeError, "topk_length"),
        ({"topk_length": int32(8, 8, 8).to_sparse()}, DTypeError, "topk_length"),
        ({"attn_sink": torch.zeros(5)}, ShapeError, "attn_sink"),
        ({"extra_kv_cache": D.kv_cache}, UnsupportedError, "extra_indices"),
        ({"extra_indices": torch.zeros(3, 1, 8, dtype=torch.int32)}, UnsupportedError, "extra_kv_cache"),
        ({"extra_topk_length": int32(1, 1, 1)}, UnsupportedError, "extra_topk_length"),
        ({"kv_cache": torch.zeros(9, 16, 576, dtype=torch.int8)}, DTypeError, "kv_cache"),
    ],
)
def test_sparse_decode_refuses(changes, error, argument):
    with pytest.raises(error) as caught:
        mla.sparse_decode(**{**SPARSE, **changes})
    assert caught.value.argument == argument


def test_sparse_prefill_refuses_an_index_out_of_range():
    q, kv = torch.ones(2, 4, 576), torch.ones(5, 576)
    with pytest.raises(ValueRangeError, match=r"indices\[1, 0\]: got 5"):
        mla.sparse_prefill(q, kv, torch.tensor([[0], [5]], dtype=torch.int32), softmax_scale=SCALE)


@pytest.mark.parametrize("name", ["q", "kv"])
def test_sparse_prefill_refuses_latents_without_memory_of_their_own(name):
    given = {"q": torch.ones(2, 4, 512), "kv": torch.ones(5, 512)}
    given[name] = given[name].to_sparse()
    with pytest.raises(InvalidArgumentError) as caught:
        mla.sparse_prefill(**given, indices=torch.zeros(2, 1, dtype=torch.int32), softmax_scale=SCALE)
    assert caught.value.argument == name


def test_a_pair_that_is_refused_decides_nothing_for_a_cache_like_its_first():
    """The kernel of a call is cached by what its tensors are."""
    latent, rope, slots = torch.zeros(2, 512).bfloat16(), torch.zeros(2, 64).bfloat16(), torch.tensor([0, 1])
    cache = torch.zeros(3, 7, 656, dtype=torch.uint8)
    scale = torch.ones(1)
    for pair in ((cache, cache[..., :64]), (cache,), (cache, cache, cache), (cache, 3)):
        for given in (scale, None):
            with pytest.raises(InvalidArgumentError):
                mla.store_kv(latent, rope, pair, slots, scale=given)
    mla.store_kv(latent, rope, cache, slots)


def test_cache_ops_refuse_slots_out_of_range_and_write_nothing():
    cache = torch.full((2, 4, 576), POISON)
    latent, rope = torch.zeros(2, 512), torch.zeros(2, 64)
    with pytest.raises(ValueRangeError, match=r"slot_mapping\[1\]: got 8"):
        mla.store_kv(latent, rope, cache, torch.tensor([0, 8]))
    assert (cache == POISON).all()
    with pytest.raises(ValueRangeError, match=r"indices\[0\]: got 8"):
        mla.gather_kv(cache, int32(8))
    with pytest.raises(ValueRangeError, match=r"req_id\[0\]"):
        mla.to_global_indices(int32(3), int32(1, 2)[None], int32(0)[None], page_size=4)
    with pytest.raises(InvalidArgumentError, match="scale"):
        mla.store_kv(latent, rope, torch.zeros(2, 4, 576, dtype=torch.uint8), torch.tensor([0, 1]))


def test_merge_states_refuses_counts_out_of_range():
    with pytest.raises(ValueRangeError, match=r"counts\[1\]"):
        mla.merge_states(torch.ones(2, 2, 1, 8), torch.zeros(2, 2, 1), int32(2, 3))


def test_an_output_of_another_type_is_named():
    states, lse = torch.ones(2, 3, 4, 8).bfloat16(), torch.zeros(2, 3, 4)
    with pytest.raises(DTypeError, match=r"^out: got float16; accepts bfloat16"):
        mla.merge_states(states, lse, out=torch.zeros(3, 4, 8).half())
    with pytest.raises(DTypeError, match=r"^out: got float32; accepts bfloat16"):
        mla.sparse_decode(D.q, D.kv_cache, int32(0).reshape(1, 1, 1).expand(3, 1, 1).contiguous(), softmax_scale=SCALE,
                          out=torch.zeros(3, 1, 4, 512))  # fmt: skip


def test_a_missing_scale_says_what_is_needed():
    cache = torch.zeros(1, 16, 576).to(torch.float8_e4m3fn)
    latent, rope = torch.ones(1, 512).bfloat16(), torch.ones(1, 64).bfloat16()
    message = "scale: got None; accepts a float32 tensor of one element, because kv_cache is e4m3"
    with pytest.raises(DTypeError, match=message):
        mla.store_kv(latent, rope, cache, torch.zeros(1, dtype=torch.int64))
    assert not cache.float().any()


def test_a_request_of_an_empty_table():
    with pytest.raises(ValueRangeError, match=r"req_id\[0\]: got 0; accepts no request, because block_table has none"):
        mla.to_global_indices(int32(0), torch.zeros(0, 1, dtype=torch.int32), int32(0)[None], page_size=16)


def test_plans_of_other_shapes_and_kernels_are_refused(problem):
    kernel = mla.lookup(op="decode", q_dtype="bf16")
    plan = kernel.plan(problem.seq_lens[:2], num_heads=4, q_len=1)
    with pytest.raises(ShapeError, match="plan: got a plan of batch 2; accepts a plan of batch 3, as q has"):
        kernel(**problem.arguments(), plan=plan)
    other = mla.lookup(op="decode", q_dtype="fp32").plan(problem.seq_lens, num_heads=4, q_len=1)
    with pytest.raises(
        ValueRangeError, match=r"plan: got a plan of cpu_decode_qfp32.*accepts a plan of cpu_decode_qbf16"
    ):
        kernel(**problem.arguments(), plan=other)
    fixed = mla.lookup(op="decode", q_dtype="bf16", num_heads=4)
    wide = kernel.plan(problem.seq_lens, num_heads=8, q_len=1)
    with pytest.raises(ShapeError, match="plan: got a plan of num_heads 8; accepts num_heads 4"):
        fixed(**problem.arguments(), plan=wide)
    with pytest.raises(ShapeError, match="out: got a plan of batch 2; accepts a plan of batch 3"):
        kernel.plan(problem.seq_lens, out=plan)
    with pytest.raises(ValueRangeError, match="num_heads: got None"):
        kernel.plan(problem.seq_lens, q_len=1)
    with pytest.raises(UnsupportedError, match="plan: got a kernel of store_kv"):
        mla.lookup(op="store_kv", in_dtype="bf16").plan(problem.seq_lens)
