"""Values that no caller means, and every public function with arguments that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import mla_kernels as mla
import numpy as np
import torch
from mla_kernels import Plan, _launcher
from mla_kernels.compat import flash_mla, sgl_kernel, vllm

INT32, BF16 = torch.int32, torch.bfloat16
Arguments = dict[str, Any]


class Raises:
    """An object whose every conversion fails."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("no such conversion")

    __index__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = __eq__ = __hash__ = __repr__ = _fail


class NoAttributes:
    """An object that fails wherever it is asked for an attribute."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Name(str):
    """A name that fails to be compared, hashed or written."""

    __slots__ = ()
    __eq__ = __hash__ = __repr__ = Raises._fail  # type: ignore[assignment]


class Liar(str):
    """A name that says that it equals every other one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return id(self)


class Number(int):
    """A number that fails to be compared, hashed or written."""

    __eq__ = __hash__ = __repr__ = Raises._fail  # type: ignore[assignment]


class Real(float):
    """A number that fails to be written."""

    __repr__ = Raises._fail  # type: ignore[assignment]


MEANINGLESS: dict[str, Callable[[], Any]] = {
    "empty tuple": lambda: (),
    "tuple of None": lambda: (None,),
    "pair of numbers": lambda: (1, 2),
    "triple": lambda: (1, 2, 3),
    "nested tuples": lambda: (((), ()), ()),
    "pair of 0-d tensors": lambda: (torch.zeros(()), torch.zeros(())),
    "list": list,
    "set": lambda: {1},
    "generator": lambda: (x for x in ()),
    "slice": lambda: slice(None),
    "bytes": lambda: b"a",
    "complex": lambda: 1j,
    "nan": lambda: float("nan"),
    "nan that cannot be written": lambda: Real("nan"),
    "infinity": lambda: float("inf"),
    "string": lambda: "no",
    "empty string": str,
    "liar": lambda: Liar("evil"),
    "object": object,
    "raises": Raises,
    "no attributes": NoAttributes,
    "class": lambda: torch.Tensor,
    "array of objects": lambda: np.zeros(1, object),
    "array of times": lambda: np.zeros(1, "datetime64[s]"),
    "NumPy bool": lambda: np.bool_(True),
    "NumPy float32": lambda: np.float32(1),
    "sparse tensor": lambda: torch.zeros(1, 1, 1, 576).to_sparse(),
    "int of thousands of digits": lambda: 10**5000,
}
"""No argument takes any of these."""

SELDOM: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "-1": lambda: -1,
    "1.5": lambda: 1.5,
    "2**63": lambda: 2**63,
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "dict": dict,
    "dtype": lambda: torch.float32,
    "number that cannot be written": lambda: Number(3),
    "large number that cannot be written": lambda: Number(2**65),
    "name that cannot be hashed": lambda: Name("decode"),
    "NumPy int": lambda: np.int64(3),
    "0-d tensor": lambda: torch.tensor(0.0),
    "0-d bytes": lambda: torch.zeros((), dtype=torch.uint8),
    "0-d int32": lambda: torch.tensor(1, dtype=INT32),
    "0-d array": lambda: np.zeros((), np.uint8),
    "empty tensor": lambda: torch.zeros(0),
    "empty int32": lambda: torch.zeros(0, dtype=INT32),
    "complex tensor": lambda: torch.zeros(1, dtype=torch.complex64),
    "broadcast tensor": lambda: torch.zeros(1).expand(1, 1, 1, 576),
    "6-d tensor": lambda: torch.zeros(1, 1, 1, 1, 1, 576),
}
"""Some arguments take one of these."""


def of_op(op: str) -> Arguments:
    """Return the smallest arguments that an op takes."""
    q, kv = torch.ones(1, 1, 1, 576), torch.ones(1, 4, 576)
    two = torch.zeros(1, 1, 2, dtype=INT32)
    one, many = torch.zeros(1, dtype=INT32), {"softmax_scale": 0.1}
    extra = {"extra_kv_cache": kv.clone(), "extra_indices": two}
    rows = {"extra_kv": kv[0].clone(), "extra_indices": two[0]}
    arguments: dict[str, Arguments] = {
        "decode": {"q": q, "kv_cache": kv, "block_table": one[None], "seq_lens": one + 1, **many},
        "sparse_decode": {"q": q, "kv_cache": kv, "indices": two, **extra, **many},
        "sparse_prefill": {"q": q[0], "kv": kv[0], "indices": two[0], **rows, **many},
        "merge_states": {"o": torch.ones(2, 1, 1, 8), "lse": torch.zeros(2, 1, 1)},
        "store_kv": {"latent": q[0, 0, :, :512], "rope": q[0, 0, :, 512:], "kv_cache": kv, "slot_mapping": one.long()},
        "gather_kv": {"kv_cache": kv, "indices": one},
        "to_global_indices": {"req_id": one, "block_table": one[None], "token_indices": two[0], "page_size": 4},
    }
    return arguments[op]


def kernel_of(op: str) -> Any:
    """Return the kernel of the op for float32 on the CPU."""
    traits = {"decode": "q", "sparse_decode": "q", "sparse_prefill": "q", "merge_states": "in", "store_kv": "in"}
    config: dict[str, Any] = {"op": op, "arch": "cpu"}
    if op in traits:
        config[f"{traits[op]}_dtype"] = "fp32"
    if op in ("store_kv", "gather_kv"):
        config["kv_dtype"] = "fp32"
    return mla.lookup(**config, **({"out_dtype": "fp32"} if op == "gather_kv" else {}))


def made_plan(**fields: Any) -> Plan:
    """Return a plan of the smallest decode, with some of its fields replaced."""
    plan = kernel_of("decode").plan(torch.ones(1, dtype=INT32), num_heads=1, q_len=1)
    own = {name: getattr(plan, name) for name in PLAN_FIELDS}
    return Plan(**own | fields)


PLAN_FIELDS = ("buffer", "variant", "batch", "q_len", "num_heads", "max_splits", "batch_invariant")


def planned(**fields: Any) -> None:
    """Decode by a plan of which a caller made some fields, and refresh it."""
    kernel_of("decode")(**of_op("decode"), plan=made_plan(**fields))
    mla.decode(**of_op("decode"), plan=made_plan(**fields), out=torch.empty(1, 1, 1, 512))
    kernel_of("decode").plan(torch.ones(1, dtype=INT32), out=made_plan(**fields))


def of_flash_mla(sparse: bool) -> Arguments:
    lengths = torch.tensor([3], dtype=INT32)
    metadata, splits = flash_mla.get_mla_metadata(lengths, 2, 1, topk=2 if sparse else None)
    indices = torch.zeros(1, 1, 2, dtype=INT32)
    cache = torch.zeros(1, 4, 1, 576, dtype=BF16)
    extra = {"indices": indices, "extra_k_cache": cache.clone(), "extra_indices_in_kvcache": indices}
    return {
        "q": torch.zeros(1, 1, 2, 576, dtype=BF16),
        "k_cache": cache,
        "block_table": torch.zeros(1, 1, dtype=INT32),
        "cache_seqlens": lengths,
        "head_dim_v": 512,
        "tile_scheduler_metadata": metadata,
        "num_splits": splits,
        **(extra if sparse else {}),
    }


def of_prefill() -> Arguments:
    indices = torch.zeros(1, 1, 2, dtype=INT32)
    q, kv = torch.zeros(1, 2, 576, dtype=BF16), torch.zeros(4, 1, 576, dtype=BF16)
    return {"q": q, "kv": kv, "indices": indices, "sm_scale": 0.1}


def of_sgl() -> Arguments:
    q, cache = torch.zeros(1, 2, 576, dtype=BF16), torch.zeros(1, 4, 576, dtype=BF16)
    return {
        "q_nope": q[..., :512],
        "q_pe": q[..., 512:],
        "kv_c_and_k_pe_cache": cache,
        "seq_lens": torch.ones(1, dtype=INT32),
        "page_table": torch.zeros(1, 1, dtype=INT32),
        "workspace": torch.zeros(1 << 20, dtype=torch.uint8),
        "sm_scale": 0.1,
    }


def of_vllm(kv_cache_dtype: str, dtype: torch.dtype) -> Arguments:
    rows = torch.zeros(1, 576, dtype=BF16)
    return {
        "kv_c": rows[:, :512],
        "k_pe": rows[:, 512:],
        "kv_cache": torch.zeros(1, 4, 576, dtype=dtype),
        "slot_mapping": torch.zeros(1, dtype=torch.int64),
        "kv_cache_dtype": kv_cache_dtype,
        "scale": torch.ones(1),
    }


def of_k_cache() -> Arguments:
    slots = torch.zeros(1, dtype=torch.int64)
    return {"k": torch.zeros(1, 512, dtype=BF16), "k_cache": torch.zeros(1, 37440).byte(), "slot_mapping": slots}


def of_indices() -> Arguments:
    table, tokens = torch.zeros(1, 1, dtype=INT32), torch.zeros(1, 128, dtype=INT32)
    return {"req_id": table[0], "block_table": table, "token_indices": tokens, "NUM_TOPK_TOKENS": 128}


def _explain(config: Any) -> Any:
    """``explain`` with its only positional argument."""
    return mla.explain(config)


def _calls() -> dict[str, tuple[Callable[..., Any], Callable[[], Arguments], list[str]]]:
    """Every public function by name, with the arguments that it takes and the names of all that it knows."""
    found: dict[str, tuple[Callable[..., Any], Callable[[], Arguments], list[str]]] = {}

    def add(name: str, call: Callable[..., Any], arguments: Callable[[], Arguments], *names: str) -> None:
        found[name] = (call, arguments, [*(names or inspect.signature(call).parameters)])

    for op, arguments in _launcher.OPS.items():
        kernel = kernel_of(op)
        add(op, getattr(mla, op), lambda op=op: of_op(op))
        add(f"kernel of {op}", kernel.launch, lambda op=op: of_op(op))
        for asks in ("workspace_size", "plan_size", "can_run"):
            numbers = {} if asks == "can_run" else dict.fromkeys(kernel._sized_by, 1)
            add(f"{asks} of {op}", getattr(kernel, asks), lambda numbers=numbers: numbers, *arguments, "device")
        add(f"prepare of {op}", kernel.prepare, dict)
    lengths = {"seq_lens": torch.ones(1, dtype=INT32)}
    add("plan", kernel_of("decode").plan, lambda: lengths | {"num_heads": 1, "q_len": 1})
    add("Plan", planned, dict, *PLAN_FIELDS)
    for function in (mla.lookup, mla.explain, mla.variants):
        config = {"op": "decode", "arch": "cpu"}
        add(function.__name__, function, lambda config=config: config, *inspect.signature(mla.lookup).parameters)
    add("explain a config", _explain, dict)
    metadata = lengths["seq_lens"]
    add("get_mla_metadata", flash_mla.get_mla_metadata,
        lambda: {"cache_seqlens": metadata, "num_q_tokens_per_head_k": 2, "num_heads_k": 1})  # fmt: skip
    add("flash_mla, dense", flash_mla.flash_mla_with_kvcache, lambda: of_flash_mla(False))
    add("flash_mla, sparse", flash_mla.flash_mla_with_kvcache, lambda: of_flash_mla(True))
    add("flash_mla, prefill", flash_mla.flash_mla_sparse_fwd, of_prefill)
    add("sgl_kernel", sgl_kernel.cutlass_mla_decode, of_sgl)
    workspace = {"max_seq_len": 128, "num_batches": 1}
    add("sgl_kernel, workspace", sgl_kernel.cutlass_mla_get_workspace_size, lambda: workspace)
    add("vllm, bf16", vllm.concat_and_cache_mla, lambda: of_vllm("auto", BF16))
    add("vllm, fp8", vllm.concat_and_cache_mla, lambda: of_vllm("fp8", torch.uint8))
    add("vllm, V4", vllm.quantize_and_insert_k_cache, of_k_cache)
    add("vllm, indices", vllm.triton_convert_req_index_to_global_index, of_indices)
    return found


CALLS = _calls()
