"""What ``check=True`` verifies on a GPU: the values of integer tensors, which a launch there does not read on the host.

The host's payload refuses the same values in every launch, and in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from mla_kernels.errors import ValueRangeError
from mla_kernels.tensors import Tensor, first

Problem = Mapping[str, Any]


def verify(op: str, problem: Problem) -> None:
    """Synchronise, and refuse lengths, pages, slots and counts out of range.

    Parameters
    ----------
    op : str
    problem : Mapping
        The op's arguments by name. Where a tensor that an op needs is None, nothing is verified: the launch refuses it.

    Raises
    ------
    ValueRangeError
        Names the first element that is out of range, and what is accepted.
    """
    if all(problem.get(name) is not None for name in _NEEDED[op]):
        _CHECKS[op](problem)


def _decode(problem: Problem) -> None:
    lengths = _values(problem["seq_lens"])
    if problem.get("cu_seqlens_q") is not None:
        _bounds(_values(problem["cu_seqlens_q"]), first(problem["q"]).shape[1], problem["max_q_len"])
    pages, page_size = first(problem["kv_cache"]).shape[:2]
    table = problem.get("block_table")
    width = 1 if table is None else table.shape[1]
    contiguous = " (one page of kv_cache, because block_table is None)"
    reason = contiguous if table is None else _of_pages(width, page_size)
    for b, length in enumerate(lengths):
        _within(f"seq_lens[{b}]", length, 0, width * page_size, reason)
    if problem.get("token_seq_lens") is not None:
        _token_lengths(problem, lengths)
    if table is None:
        return
    for b, (length, row) in enumerate(zip(lengths, _values(table), strict=True)):
        for i, page in enumerate(row[: -(-length // page_size)]):
            _below_count(f"block_table[{b}, {i}]", page, pages, "page, because kv_cache has none")


def _token_lengths(problem: Problem, lengths: list[int]) -> None:
    """Refuse tokens that see more keys than their request has; those of no request may say anything."""
    stated = _values(problem["token_seq_lens"])
    bounds = None if problem.get("cu_seqlens_q") is None else _values(problem["cu_seqlens_q"])
    for r, length in enumerate(lengths):
        b, begin, end = (r, 0, len(stated[r])) if bounds is None else (0, *bounds[r : r + 2])
        for s in range(begin, end):
            _within(f"token_seq_lens[{b}, {s}]", stated[b][s], 0, length, f", seq_lens[{r}]")


def _bounds(bounds: list[int], tokens: int, most: int) -> None:
    """Refuse bounds of requests that are not in order, past the tokens, or too far apart."""
    reason = f" (max_q_len is {most}, and q has {tokens} tokens)"
    _within("cu_seqlens_q[0]", bounds[0], 0, tokens, reason)
    for r, (begin, end) in enumerate(pairwise(bounds), start=1):
        _within(f"cu_seqlens_q[{r}]", end, begin, min(tokens, begin + most), reason)


def _sparse(problem: Problem) -> None:
    for prefix in ("", "extra_"):
        cache = problem.get(f"{prefix}kv_cache", problem.get(f"{prefix}kv"))
        indices = problem.get(f"{prefix}indices")
        if cache is None or indices is None:
            continue
        shape = first(cache).shape
        slots = shape[0] * shape[1] if len(shape) == 3 else shape[0]
        _below(f"{prefix}indices", indices, slots)
        counts = problem.get(f"{prefix}topk_length")
        if counts is not None:
            _each(f"{prefix}topk_length", counts, 0, indices.shape[-1])


def _merge_states(problem: Problem) -> None:
    if problem.get("counts") is not None:
        _each("counts", problem["counts"], 0, problem["o"].shape[0])


def _store_kv(problem: Problem) -> None:
    pages, page_size = first(problem["kv_cache"]).shape[:2]
    _below("slot_mapping", problem["slot_mapping"], pages * page_size, _of_pages(pages, page_size))
    scale = problem.get("scale")
    if scale is not None:
        (value,) = _flat(_values(scale))
        if not 0 < value < float("inf"):
            raise ValueRangeError("scale", f"{value:g}", "a positive number")


def _gather_kv(problem: Problem) -> None:
    pages, page_size = first(problem["kv_cache"]).shape[:2]
    _below("indices", problem["indices"], pages * page_size, _of_pages(pages, page_size))


def _to_global_indices(problem: Problem) -> None:
    requests = problem["block_table"].shape[0]
    for i, request in enumerate(_flat(_values(problem["req_id"]))):
        _below_count(f"req_id[{i}]", request, requests, "request, because block_table has none")


_NEEDED: dict[str, tuple[str, ...]] = {
    "decode": ("q", "kv_cache", "seq_lens"),
    "sparse_decode": (),
    "sparse_prefill": (),
    "merge_states": ("o",),
    "store_kv": ("kv_cache", "slot_mapping"),
    "gather_kv": ("kv_cache", "indices"),
    "to_global_indices": ("block_table", "req_id"),
}
_CHECKS: dict[str, Callable[[Problem], None]] = {
    "decode": _decode,
    "sparse_decode": _sparse,
    "sparse_prefill": _sparse,
    "merge_states": _merge_states,
    "store_kv": _store_kv,
    "gather_kv": _gather_kv,
    "to_global_indices": _to_global_indices,
}


def _values(tensor: Tensor) -> Any:
    """The elements on the host, as lists."""
    return tensor.tolist()  # torch, CuPy and JAX copy to the host


def _flat(values: Any) -> list[Any]:
    return [each for one in values for each in _flat(one)] if isinstance(values, list) else [values]


def _within(name: str, value: int, least: int, most: int, reason: str = "") -> None:
    if not least <= value <= most:
        raise ValueRangeError(name, str(value), f"{least} to {most}{reason}")


def _below_count(name: str, value: int, count: int, none: str) -> None:
    """Refuse the number of a page or a request that is not there."""
    if not 0 <= value < count:
        raise ValueRangeError(name, str(value), f"0 to {count - 1}" if count else f"no {none}")


def _each(name: str, tensor: Tensor, least: int, most: int) -> None:
    for i, value in enumerate(_flat(_values(tensor))):
        _within(f"{name}[{i}]", value, least, most)


def _of_pages(pages: int, page_size: int) -> str:
    return f" ({pages} pages of {page_size} tokens)"


def _below(name: str, tensor: Tensor, limit: int, reason: str = "") -> None:
    """Refuse slots beyond a cache; negative ones stand for no row."""
    for i, slot in enumerate(_flat(_values(tensor))):
        if slot >= limit:
            raise ValueRangeError(f"{name}[{i}]", str(slot), f"slots below {limit}{reason}, or negative for none")
