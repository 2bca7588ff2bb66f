"""Numbers in tensors that lie outside what is there: the CPU refuses them, and a GPU takes them for absent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from tests.fuzz.memory import Array
from tests.fuzz.problems import ragged
from tests.fuzz.problems.case import Case, Maker

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)


def wild(make: Maker, case: Case) -> Case:
    """Put one number out of range into a legal case; some of its tensors are too small for that, and stay."""
    case.kind = "wild"
    if any(0 in array.shape for _, array in case.arrays()):
        return case
    make.random.choice(KINDS[case.op])(make, case)
    if case.label and make.device != "cpu" and case.verdict == "refuse":
        # By bounds that overlap, several requests write one token.
        case.arguments["check"] = checked = make.chance(0.3) or "cu_seqlens_q" in case.names
        case.verdict = "refuse" if checked else "accept"
    return case


def put(make: Maker, case: Case, name: str, place: tuple[int, ...], values: tuple[int, ...]) -> None:
    """Write one of the values to a place of an argument."""
    array = case.arguments[name]
    assert isinstance(array, Array)
    value = make.random.choice(values)
    array.values = np.array(array.values, np.int64)
    array.values[place] = value
    case.verdict, case.names, case.label = "refuse", (name,), f"{name} out of range"


def somewhere(make: Maker, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A random place in a tensor."""
    return tuple(make.random.randrange(n) for n in shape)


def lengths(make: Maker, case: Case) -> None:
    """A length that is negative, or more than the table has pages for."""
    table, cache = case.arguments.get("block_table"), first(case.arguments["kv_cache"])
    capacity = cache.shape[1] * (1 if table is None else table.shape[1])
    b = make.random.randrange(case.arguments["seq_lens"].shape[0])
    if capacity < INT_MAX:
        put(make, case, "seq_lens", (b,), (-1, INT_MIN, INT_MAX, capacity + 1))


def query_bounds(make: Maker, case: Case) -> None:
    """A bound of queries that does not ascend or lies past the tokens, or a request of more than ``max_q_len``."""
    if "cu_seqlens_q" not in case.arguments:
        return make.random.choice((lengths, pages))(make, case)
    known = [int(bound) for bound in case.arguments["cu_seqlens_q"].values]
    most = max((end - begin for begin, end in pairwise(known)), default=0)
    if most > 1 and make.chance(0.3):
        case.arguments["max_q_len"] = most - 1
        case.notes["dims"] = (case.notes["dims"][0], most - 1, case.notes["dims"][2])
        case.verdict, case.names, case.label = "refuse", ("cu_seqlens_q",), "max_q_len below the tokens of a request"
        return None
    tokens = first(case.arguments["q"]).shape[1]
    place = make.random.randrange(len(known))
    below = known[place - 1] - 1 if place else -1
    return put(make, case, "cu_seqlens_q", (place,), (below, -1, INT_MIN, tokens + 1, INT_MAX))


def token_lengths(make: Maker, case: Case) -> None:
    """A token that sees a negative number of keys, or more than its request has or the table has pages for."""
    given = case.arguments
    if "token_seq_lens" not in given:
        return make.random.choice((lengths, pages))(make, case)
    batch, q_len = given["token_seq_lens"].shape
    known = zip(given["seq_lens"].values, ragged.spans(given, batch, q_len), strict=True)
    tokens = [(int(n), token) for n, span in known for token in range(*span)]
    if not tokens:
        return lengths(make, case)
    n, token = make.random.choice(tokens)
    return put(make, case, "token_seq_lens", divmod(token, q_len), (-1, INT_MIN, n + 1, n + 1, INT_MAX))


def pages(make: Maker, case: Case) -> None:
    """A page that the cache has not, among those that a request uses."""
    table, cache = case.arguments.get("block_table"), first(case.arguments["kv_cache"])
    known = case.arguments["seq_lens"].values
    used = [b for b in range(len(known)) if known[b] > 0]
    if table is None or not used:
        return lengths(make, case)
    b = make.random.choice(used)
    i = make.random.randrange(-(-int(known[b]) // cache.shape[1]))
    return put(make, case, "block_table", (b, i), (-1, INT_MIN, INT_MAX, cache.shape[0], cache.shape[0] + 5))


def indices(make: Maker, case: Case) -> None:
    """An index past the cache, among those that count."""
    prefix = "extra_" if "extra_indices" in case.arguments and make.chance(0.4) else ""
    array = case.arguments[f"{prefix}indices"]
    cache = first(case.arguments[prefix + ("kv" if case.op == "sparse_prefill" else "kv_cache")])
    slots = cache.shape[0] * (cache.shape[1] if len(cache.shape) == 3 else 1)
    if array.shape[-1] == 0:
        return
    counts = case.arguments.get(f"{prefix}topk_length")
    *outer, i = somewhere(make, array.shape)
    if counts is not None:
        count = int(counts.values[tuple(outer[: counts.values.ndim])])
        if count == 0:
            return
        i %= count
    put(make, case, f"{prefix}indices", (*outer, i), (slots, slots + 3, INT_MAX))


def counts(make: Maker, case: Case) -> None:
    """A count that is negative, or more than there are indices."""
    names = [name for name in ("topk_length", "extra_topk_length") if name in case.arguments]
    if not names:
        return indices(make, case)
    name = make.random.choice(names)
    topk = case.arguments[name.replace("topk_length", "indices")].shape[-1]
    return put(make, case, name, somewhere(make, case.arguments[name].shape), (-1, topk + 1, INT_MIN, INT_MAX))


def states(make: Maker, case: Case) -> None:
    """A count of states that is negative or too large, or an LSE that is NaN."""
    if "counts" in case.arguments and make.chance(0.5):
        most = case.arguments["o"].shape[0]
        return put(make, case, "counts", somewhere(make, case.arguments["counts"].shape), (-1, most + 1, INT_MIN))
    lse = case.arguments["lse"]
    lse.values = np.array(lse.values)
    lse.values[somewhere(make, lse.shape)] = np.nan
    case.label = "an lse of NaN"
    return None


def slots(make: Maker, case: Case) -> None:
    """A slot past the cache, or a scale that nothing can be divided by."""
    if "scale" in case.arguments and make.chance(0.4) and make.device == "cpu":
        scale = case.arguments["scale"]
        value = make.random.choice((0.0, -1.0, np.nan, np.inf))
        scale.values = np.full(scale.shape, value, np.float32)
        case.verdict, case.names, case.label = "refuse", ("scale",), "scale out of range"
        return
    cache, mapping = first(case.arguments["kv_cache"]), case.arguments["slot_mapping"]
    most = cache.shape[0] * cache.shape[1]
    place = somewhere(make, mapping.shape)
    put(make, case, "slot_mapping", place, (most, most + 7, 2**31, 2**62, 2**63 - 1))


def rows(make: Maker, case: Case) -> None:
    """A row past the cache."""
    cache = first(case.arguments["kv_cache"])
    most = cache.shape[0] * cache.shape[1]
    put(make, case, "indices", somewhere(make, case.arguments["indices"].shape), (most, most + 1, INT_MAX))


def requests(make: Maker, case: Case) -> None:
    """A request that the table has not."""
    most = case.arguments["block_table"].shape[0]
    put(make, case, "req_id", somewhere(make, case.arguments["req_id"].shape), (-1, most, INT_MIN, INT_MAX))


def first(value: object) -> Array:
    """The latent of a pair, or the one array."""
    one = value[0] if isinstance(value, tuple) else value
    assert isinstance(one, Array)
    return one


KINDS: dict[str, tuple[Callable[[Maker, Case], None], ...]] = {
    "decode": (lengths, pages, query_bounds, query_bounds, token_lengths, token_lengths),
    "sparse_decode": (indices, counts),
    "sparse_prefill": (indices, counts),
    "merge_states": (states,),
    "store_kv": (slots,),
    "gather_kv": (rows,),
    "to_global_indices": (requests,),
}
