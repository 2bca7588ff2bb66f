"""One small launch of a payload on fresh random inputs, compared with the reference."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mla_kernels.api.lookup import bound
from mla_kernels.formats import HEAD_DIM, LATENT
from mla_kernels.payloads.discovery import Payload
from mla_kernels.payloads.registry import Range, Value, Variant
from mla_kernels.resolve.config import DEFAULTS

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""The element types that inputs are drawn in, most wanted first."""
SCALE = 192**-0.5
LENGTH = 70
"""Tokens in the cache: a page of 64 and a part of the next."""
STATES = 3
RELATIVE, ABSOLUTE = 2**-5, 5e-3
"""A result within either bound is right: bf16 rounds to 2^-9, and what is broken is off by far more."""


class NotRunError(Exception):
    """Nothing was launched; the message says why and what would help."""


class WrongResultError(Exception):
    """A result is not the reference's."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """A config, the arguments of its call, and what the call is to return."""

    config: dict[str, Value]
    arguments: dict[str, Any]
    wanted: tuple[Any, Any]


def launch(payload: Payload, ordinal: int | None = None) -> str:
    """Launch one token of a payload's plainest variant and compare the result with the reference.

    Parameters
    ----------
    payload : Payload
    ordinal : int, optional
        Of the CUDA device; None for the host.

    Returns
    -------
    str
        What was launched, and the largest error.

    Raises
    ------
    NotRunError
        No framework makes tensors for the device, or the payload has no variant to launch on them.
    WrongResultError
        A result differs; the message names the worst element and the seed of the inputs.
    """
    seed = int.from_bytes(os.urandom(4), "little")
    device = "cpu" if ordinal is None else f"cuda:{ordinal}"
    torch, lacking = _framework("torch")
    numpy, _ = _framework("numpy") if torch is None and ordinal is None else (None, "")
    if torch is None and numpy is None:
        raise NotRunError(
            f"its inputs are made by torch{' or NumPy' * (ordinal is None)} ({lacking}): pip install torch"
        )
    if torch is None:
        variant = _plainest(payload, ("decode",), ("fp32",))
        problem = _numpy_decode(variant, numpy, seed)
    else:
        if ordinal is not None and not torch.cuda.is_available():
            raise NotRunError(f"torch {torch.__version__} finds no CUDA device: pip install a torch that has CUDA")
        variant = _plainest(payload, ("decode", "merge_states"), tuple(DTYPES))
        problem = (_decode if variant.op == "decode" else _merge_states)(variant, torch, seed)
    on_device = {
        name: value if ordinal is None or isinstance(value, float) else value.to(device)
        for name, value in problem.arguments.items()
    }
    results = bound(payload, variant, problem.config)(**on_device)
    named = zip(("out", "lse"), results, problem.wanted, strict=True)
    error = max(_error(name, result, wanted, seed) for name, result, wanted in named)
    inputs = "NumPy" if numpy else "torch"
    return f"{variant.name} on {device}: maximum error {error:.1e} against the reference ({inputs} inputs)"


def _framework(name: str) -> tuple[Any, str]:
    """A package, or None and why it cannot be imported."""
    try:
        return import_module(name), ""
    except (ImportError, OSError) as error:
        return None, str(error)


def _plainest(payload: Payload, ops: Sequence[str], dtypes: Sequence[str]) -> Variant:
    """The first variant of the first op that reads and writes one element type only."""
    for op in ops:
        for dtype in dtypes:
            for variant in payload.registry.variants:
                stated = {trait: value for trait, value in variant.baked.items() if value != DEFAULTS.get(trait)}
                types = {value for trait, value in stated.items() if trait.endswith("_dtype")}
                if variant.op == op and types == {dtype}:
                    return variant
    raise NotRunError(f"it has no variant of {' or '.join(ops)} in {' or '.join(dtypes)} alone")


def _extent(variant: Variant, field: str, wish: int) -> int:
    """A number that the variant accepts, the wish where it can be."""
    domain = variant.domain(field)
    if domain is None or wish in domain:
        return wish
    return domain.min if isinstance(domain, Range) else max(value for value in domain.values if isinstance(value, int))


def _decode(variant: Variant, torch: Any, seed: int) -> _Problem:
    from mla_kernels import reference

    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, DTYPES[str(variant.baked["q_dtype"])])
    page_size, num_heads = _extent(variant, "page_size", 64), _extent(variant, "num_heads", 16)
    pages = -(-LENGTH // page_size)
    arguments = {
        "q": torch.randn(1, 1, num_heads, HEAD_DIM, dtype=torch.float32, generator=generator).to(dtype),
        "kv_cache": torch.randn(pages, page_size, HEAD_DIM, dtype=torch.float32, generator=generator).to(dtype),
        "block_table": torch.randperm(pages, generator=generator).int()[None],
        "seq_lens": torch.tensor([LENGTH], dtype=torch.int32),
        "softmax_scale": SCALE,
    }
    config: dict[str, Value] = {"kv_layout": "paged", "page_size": page_size, "num_heads": num_heads, "q_len": 1}
    return _Problem(config, arguments, reference.decode(**arguments))


def _merge_states(variant: Variant, torch: Any, seed: int) -> _Problem:
    from mla_kernels import reference

    generator = torch.Generator().manual_seed(seed)
    num_heads, head_dim = _extent(variant, "num_heads", 16), _extent(variant, "head_dim", LATENT)
    o = torch.randn(STATES, 1, num_heads, head_dim, dtype=torch.float32, generator=generator)
    arguments = {
        "o": o.to(getattr(torch, DTYPES[str(variant.baked["in_dtype"])])),
        "lse": torch.randn(STATES, 1, num_heads, dtype=torch.float32, generator=generator),
    }
    config: dict[str, Value] = {"num_heads": num_heads, "head_dim": head_dim}
    return _Problem(config, arguments, reference.merge_states(**arguments))


def _numpy_decode(variant: Variant, numpy: Any, seed: int) -> _Problem:
    """The decode of float32, with its reference, for an environment without torch."""
    random = numpy.random.default_rng(seed)
    page_size, num_heads = _extent(variant, "page_size", 64), _extent(variant, "num_heads", 16)
    pages = -(-LENGTH // page_size)
    arguments = {
        "q": random.standard_normal((1, 1, num_heads, HEAD_DIM), "float32"),
        "kv_cache": random.standard_normal((pages, page_size, HEAD_DIM), "float32"),
        "block_table": random.permutation(pages).astype("int32")[None],
        "seq_lens": numpy.array([LENGTH], "int32"),
        "softmax_scale": SCALE,
    }
    keys = arguments["kv_cache"][arguments["block_table"][0]].reshape(-1, HEAD_DIM)[:LENGTH]
    weights = numpy.exp(SCALE * arguments["q"][0, 0].astype("float64") @ keys.T)  # logits are within +-20: no overflow
    total = weights.sum(-1)
    out = weights @ keys[:, :LATENT] / total[:, None]
    config: dict[str, Value] = {"kv_layout": "paged", "page_size": page_size, "num_heads": num_heads, "q_len": 1}
    return _Problem(config, arguments, (out[None, None], numpy.log(total)[None, :, None]))


def _error(name: str, result: Any, wanted: Any, seed: int) -> float:
    """The largest error of a result; one that is too large is told."""
    if tuple(result.shape) != tuple(wanted.shape):
        raise WrongResultError(f"{name} has shape {list(result.shape)}, the reference's is {list(wanted.shape)}")
    pairs = list(zip(result.flatten().tolist(), wanted.flatten().tolist(), strict=True))
    got, want = max(pairs, key=lambda pair: _excess(*pair))
    if _excess(got, want) > 1:
        raise WrongResultError(f"{name} holds {got:.6g} where the reference has {want:.6g} (inputs of seed {seed})")
    return float(max(abs(got - want) for got, want in pairs))


def _excess(got: float, want: float) -> float:
    """An error as a multiple of what is allowed."""
    excess = abs(got - want) / max(ABSOLUTE, RELATIVE * abs(want))
    return math.inf if math.isnan(excess) else excess
