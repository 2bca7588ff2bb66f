"""Random problems of attention, all of them legal."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.elements import decoded, rounded_rows
from tests.fuzz.formats import Packed, rows_decoded, tokens_of
from tests.fuzz.memory import Array
from tests.fuzz.model import Answer, Precision, Rows, attend
from tests.fuzz.problems import ragged
from tests.fuzz.problems.case import Case, Maker, Variant, told, whole

HEADS = (1, 1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 32, 64, 128)
PAGE_SIZES = (1, 2, 3, 5, 7, 8, 16, 16, 32, 48, 61, 64, 64, 128)
SCALES = (192**-0.5, 192**-0.5, 192**-0.5, 576**-0.5, 1.0, 0.001, 0.0, -0.05)
KV_SCALES = (0.005, 0.00173, 1 / 256)

MOST_SPLITS = {"cpu": 2**40, "cuda": 48}
"""Partial results of more do not fit into the memory that a workspace has here."""


def scalars(make: Maker, variant: Variant) -> dict[str, Any]:
    """The factors of attention."""
    found: dict[str, Any] = {"softmax_scale": make.random.choice(SCALES)}
    if variant.traits["kv_dtype"] == "e4m3":
        found["kv_scale"] = make.random.choice(KV_SCALES)
    if make.chance(0.3):
        found["out_scale"] = make.random.choice((2.0, 0.5, -1.0, 0.0, 1))
    return found


def query_dims(make: Maker, variant: Variant) -> tuple[int, int, int]:
    """Batch, q_len and heads; the rows of them all are few."""
    batch = 0 if make.chance(0.02) else make.random.choice((1, 1, 2, 2, 3, 4))
    q_len = variant.pick(make.random, "q_len", (1, 1, 1, 2, 2, 3, 5))
    heads = variant.pick(make.random, "num_heads", HEADS)
    if batch * q_len * heads > 160:
        batch, q_len = 1, variant.pick(make.random, "q_len", (1,))
    return batch, q_len, heads


def queries(make: Maker, variant: Variant, outer: tuple[int, ...]) -> Array | tuple[Array, Array]:
    """Q in one tensor or two; rarely one row that the whole batch shares, by a stride of 0."""
    form = variant.form
    q = make.packed(variant.traits["q_dtype"], form, outer, "s" * len(outer), form.rope > 0 and make.chance(0.3))
    if outer[0] > 1 and make.chance(0.12):
        for part in q if isinstance(q, tuple) else (q,):
            assert part.values is not None
            part.values = np.broadcast_to(part.values[:1], part.values.shape)
            part.strides = (0, *part.strides[1:])
    return q


def outputs(make: Maker, variant: Variant, outer: tuple[int, ...], per_head: tuple[int, ...]) -> dict[str, Any]:
    """``out`` and ``lse``, given or not."""
    found: dict[str, Any] = {}
    letters = "s" * len(outer)
    if make.chance(0.85):
        found["out"] = make.output(variant.traits["out_dtype"], (*outer, variant.form.d_v), letters + ".")
    if make.chance(0.8):
        found["lse"] = make.output("fp32", per_head, letters)
    elif make.chance(0.3):
        found["lse"] = make.random.choice((False, True))
    return found


def pool(make: Maker, form: Packed, pages: int, page_size: int) -> Array | tuple[Array, Array]:
    """A paged cache."""
    return aligned(make, make.cache(form, (pages, page_size), "ss", 0.3))


def aligned(make: Maker, rows: Array | tuple[Array, Array]) -> Array | tuple[Array, Array]:
    """Rows of a cache, which GPUs read by 16 bytes."""
    if make.device != "cpu":
        for part in rows if isinstance(rows, tuple) else (rows,):
            part.align = 16
    return rows


def decode(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Dense decode, of paged or contiguous caches."""
    domain = variant.accepts["kv_layout"].values
    paged = "contiguous" not in domain or make.chance(0.75)
    is_ragged = ragged.is_drawn(make, variant, paged)
    batch, q_len, heads = ragged.dims(make, variant, HEADS) if is_ragged else query_dims(make, variant)
    if long:
        batch, heads = min(batch, 2), min(heads, 8)
    arguments: dict[str, Any] = {}
    outer = (batch, q_len)
    if is_ragged:
        arguments, tokens = ragged.bounds(make, batch, q_len)
        outer = (1, tokens)
    page_size = variant.pick(make.random, "page_size", PAGE_SIZES)
    most = 3000 if long else make.random.choice((6, 40, 90, 150))
    capacity = -(-most // page_size) * page_size if paged else max(page_size, min(most, 200))
    if not paged:
        capacity = variant.pick(make.random, "page_size", tuple(range(page_size, capacity + 1)))
    lengths = [make.random.choice((0, 1, q_len, capacity, make.random.randrange(capacity + 1))) for _ in range(batch)]
    if long:
        lengths = [make.random.randrange(1100, 3001) if i == 0 else n % 1200 for i, n in enumerate(lengths)]
        longest = max(lengths, default=1)
        room = tuple(range(longest, longest + 128))
        capacity = max(capacity, longest) if paged else variant.pick(make.random, "page_size", room)
    lengths = [min(n, capacity) for n in lengths]
    arguments["q"] = queries(make, variant, (*outer, heads))
    if paged:
        width = -(-max(lengths, default=0) // page_size) + make.random.choice((0, 0, 1, 3))
        pages = batch * width + make.random.choice((0, 1, 2))
        order = make.random.sample(range(pages), batch * width)
        table = np.array(order, np.int64).reshape(batch, width)
        for row, n in zip(table, lengths, strict=True):
            row[-(-n // page_size) :] = make.random.choice((-1, -(2**31), 2**31 - 1, pages))
        arguments["kv_cache"] = pool(make, variant.form, pages, page_size)
        arguments["block_table"] = make.array("int32", (batch, width), "s.", table)
    else:
        arguments["kv_cache"] = pool(make, variant.form, batch + make.random.choice((0, 1)), capacity)
    arguments["seq_lens"] = make.array("int32", (batch,), ".", np.array(lengths))
    if make.chance(ragged.SHARE_OF_LENGTHS):
        arguments["token_seq_lens"] = ragged.token_lengths(make, arguments, lengths, outer)
    arguments |= scalars(make, variant) | outputs(make, variant, (*outer, heads), (outer[0], heads, outer[1]))
    arguments |= {"compute_dtype": "e4m3"} if variant.rounds else {}
    if is_ragged and make.chance(0.5):
        ragged.by_tokens(make, arguments.get("lse"))
    arguments |= dense_options(make)
    case = Case("decode", variant, arguments, dict, notes={"dims": (batch, q_len, heads)})
    case.answers = lambda: decode_answers(case, make.device)
    return case


def dense_options(make: Maker) -> dict[str, Any]:
    """Options of dense decode, each given or not."""
    found: dict[str, Any] = {}
    if make.chance(0.1):
        found["check"] = True
    if make.chance(0.5):
        found["causal"] = make.random.choice((True, False))
    if make.chance(0.3):
        found["max_splits"] = make.random.choice((0, 1, 2, 3, 7, 64, MOST_SPLITS[make.device]))
    if make.chance(0.2):
        found["batch_invariant"] = make.random.choice((True, False))
    return found


def decode_answers(case: Case, device: str) -> dict[str, Answer]:
    """What a decode gives; a length beyond what the table has is that much, and pages that are not there are absent."""
    given, traits, form = case.arguments, case.variant.traits, case.variant.form
    q = whole(given["q"])
    batch, q_len, heads, d_qk = q.shape
    in_e4m3 = case.variant.rounds
    precision = Precision.of(traits["q_dtype"], form, traits["out_dtype"], device, in_e4m3)
    factor, out_factor = factors(given)
    numbers = decoded(q, traits["q_dtype"]).reshape(batch * q_len * heads, d_qk)
    numbers = rounded_rows(numbers) if in_e4m3 else numbers
    rows = attend(numbers, numbers[:0], None, factor, out_factor, precision, form.d_v)
    nobodys = np.ones(batch * q_len, bool)
    for r, (begin, end) in enumerate(ragged.spans(given, batch, q_len)):
        if begin == end:
            continue
        keys, positions, n = request_keys(case, r)
        seen = ragged.seen(given, (begin, end), n)
        if seen is not None:
            seen = np.repeat(np.searchsorted(positions, seen), heads)
        place = slice(begin * heads, end * heads)
        rows.put(place, attend(numbers[place], keys, seen, factor, out_factor, precision, form.d_v))
        nobodys[begin:end] = False
    answers = assembled([rows], (batch, q_len, heads), form.d_v, traits["out_dtype"])
    if nobodys.any():
        answers["out"].untouched = nobodys.reshape(batch, q_len, 1, 1)
        answers["lse"].untouched = nobodys.reshape(batch, 1, q_len)
    return answers


def request_keys(case: Case, r: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The keys of a request that are there, their positions, and how many positions it has."""
    given = case.arguments
    cache, table = given["kv_cache"], given.get("block_table")
    page_size = (cache[0] if isinstance(cache, tuple) else cache).shape[1]
    stored = whole(cache)
    width = 1 if table is None else table.shape[1]
    n = max(0, min(int(given["seq_lens"].values[r]), width * page_size))
    positions = np.arange(n)
    pages = np.full(n, r) if table is None else table.values[r][positions // page_size]
    known = (pages >= 0) & (pages < len(stored))
    tokens = tokens_of(stored, case.variant.form)
    keys = rows_decoded(tokens[pages[known] * page_size + positions[known] % page_size], case.variant.form)
    return keys, positions[known], n


def factors(given: dict[str, Any]) -> tuple[float, float]:
    """The factors of logits and of outputs."""
    kv_scale = float(np.float32(given.get("kv_scale", 1.0)))
    return (
        float(np.float32(given["softmax_scale"])) * float(given.get("q_scale", 1.0)) * kv_scale,
        float(given.get("out_scale", 1.0)) * kv_scale,
    )


def assembled(parts: list[Rows], dims: tuple[int, int, int], d_v: int, out_dtype: str) -> dict[str, Answer]:
    """The answers of a batch, from its requests; LSE and the largest logits are by heads."""
    batch, q_len, heads = dims

    def per_head(name: str) -> np.ndarray:
        stacked = np.array([getattr(part, name) for part in parts]).reshape(batch, q_len, heads)
        return stacked.transpose(0, 2, 1)

    out = np.array([part.out for part in parts]).reshape(batch, q_len, heads, d_v)
    bound = np.array([part.out_bound for part in parts]).reshape(batch, q_len, heads, d_v)
    return {
        "out": Answer(out, bound, out_dtype),
        "lse": Answer(per_head("lse"), per_head("lse_bound")),
        "max_logits": Answer(per_head("top"), per_head("lse_bound")),
    }


def selection(make: Maker, outer: tuple[int, ...], topk: int, slots: int) -> Array:
    """Indices into ``slots``: some twice, some absent."""
    if slots == 0 or topk == 0:
        chosen = np.full((*outer, topk), -1, np.int64)
    else:
        low = -max(1, slots // 6) if make.chance(0.6) else 0
        chosen = make.integers(low, slots, (*outer, topk))
        if make.chance(0.1):
            chosen[chosen < 0] = -(2**31)
    return make.array("int32", (*outer, topk), "s" * len(outer) + ".", chosen)


def sparse(make: Maker, variant: Variant, names: tuple[str, str], outer: tuple[int, ...], long: bool) -> dict[str, Any]:
    """A cache, indices and counts, and often a second one of each."""
    found: dict[str, Any] = {}
    for prefix, name in zip(("", "extra_"), names, strict=True):
        if prefix and not make.chance(0.25):
            break
        topk = (
            make.random.choice((600, 1100))
            if long
            else variant.pick(make.random, "topk", (0, 1, 2, 5, 16, 33, 64, 65, 128))
        )
        if name.endswith("cache"):
            page_size = variant.pick(make.random, "page_size", PAGE_SIZES)
            pages = make.random.choice((1, 2, 3))
            found[name] = pool(make, variant.extra_form if prefix else variant.form, pages, page_size)
            slots = pages * page_size
        else:
            slots = make.random.choice((1, 3, 20, 64, 150))
            found[name] = aligned(make, make.cache(variant.form, (slots,), "s", 0.3))
        found[f"{prefix}indices"] = selection(make, outer, topk, slots)
        if make.chance(0.4):
            if len(outer) == 2 and make.chance(0.3):
                counts = make.integers(0, topk + 1, outer[:1])
            else:
                counts = make.integers(0, topk + 1, outer)
            letters = "s" * counts.ndim if counts.ndim == len(outer) else "."
            found[f"{prefix}topk_length"] = make.array("int32", counts.shape, letters, counts)
    return found


def sparse_decode(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Sparse decode."""
    batch, q_len, heads = query_dims(make, variant)
    if long:
        batch, q_len, heads = 1, 1, min(heads, 8)
    arguments: dict[str, Any] = {"q": queries(make, variant, (batch, q_len, heads))}
    arguments |= sparse(make, variant, ("kv_cache", "extra_kv_cache"), (batch, q_len), long) | told(make, variant)
    arguments |= scalars(make, variant) | outputs(make, variant, (batch, q_len, heads), (batch, heads, q_len))
    if make.chance(0.4):
        arguments["max_logits"] = make.output("fp32", (batch, heads, q_len), "sss")
    elif make.chance(0.3):
        arguments["return_max_logits"] = True
    if make.chance(0.3):
        arguments["max_splits"] = make.random.choice((0, 1, 2, 5, MOST_SPLITS[make.device]))
    return finished(make, Case("sparse_decode", variant, arguments, dict), heads)


def sparse_prefill(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Sparse prefill."""
    q_len, heads = make.random.choice((1, 2, 3, 5, 9)), variant.pick(make.random, "num_heads", HEADS)
    if q_len * heads > 160 or long:
        q_len, heads = 1, min(heads, 16)
    form = variant.form
    bare = make.device == "cpu" and form.d_qk == 576 and make.chance(0.08)
    q = make.floats(variant.traits["q_dtype"], (q_len, heads, form.latent), "ss.") if bare else None
    arguments: dict[str, Any] = {"q": q or queries(make, variant, (q_len, heads))}
    arguments |= sparse(make, variant, ("kv", "extra_kv"), (q_len,), long)
    for name in ("kv", "extra_kv") if bare and "kv" in arguments else ():
        if name in arguments:
            rows = whole(arguments[name])[:, : form.latent]
            arguments[name] = make.array(variant.traits["kv_dtype"], rows.shape, "s.", rows)
    arguments |= scalars(make, variant) | outputs(make, variant, (q_len, heads), (q_len, heads))
    if isinstance(arguments.get("lse"), bool):
        del arguments["lse"]
    if make.chance(0.4):
        arguments["max_logits"] = make.output("fp32", (q_len, heads), "ss")
    return finished(make, Case("sparse_prefill", variant, arguments, dict), heads)


def finished(make: Maker, case: Case, heads: int) -> Case:
    """Give a sparse case its sink and its answers."""
    if make.chance(0.3):
        sink = make.numbers((heads,), 2.0)
        if make.chance(0.2):
            sink = sink.copy()
            sink[0] = make.random.choice((np.inf, -np.inf))
        case.arguments["attn_sink"] = make.array("fp32", (heads,), ".", sink)
    case.answers = lambda: sparse_answers(case, make.device)
    return case


def selected(given: dict[str, Any], prefix: str, kv: str, place: tuple[int, ...], form: Packed) -> np.ndarray:
    """The keys that count for one token, in float64; indices past the cache are absent."""
    rows = tokens_of(whole(given[prefix + kv]), form)
    slots = given[f"{prefix}indices"].values[place]
    counts = given.get(f"{prefix}topk_length")
    if counts is not None:
        count = int(counts.values[place[: counts.values.ndim]])
        slots = slots[: max(0, count)]
    return rows_decoded(rows[slots[(slots >= 0) & (slots < len(rows))]], form)


def sparse_answers(case: Case, device: str) -> dict[str, Answer]:
    """What sparse attention gives."""
    given, traits = case.arguments, case.variant.traits
    q = whole(given["q"])
    kv = "kv" if case.op == "sparse_prefill" else "kv_cache"
    dims = q.shape[:3] if q.ndim == 4 else (1, *q.shape[:2])
    form = case.variant.form
    precision = Precision.of(traits["q_dtype"], form, traits["out_dtype"], device)
    factor, out_factor = factors(given)
    sink = given.get("attn_sink")
    sink = None if sink is None else np.asarray(sink.values, np.float64)
    parts = []
    for place in np.ndindex(q.shape[:-2]):
        keys = selected(given, "", kv, place, form)
        if given.get(f"extra_{kv}") is not None:
            extra = selected(given, "extra_", kv, place, case.variant.extra_form)
            keys = np.concatenate([keys, extra])
        numbers = decoded(q[place], traits["q_dtype"])
        parts.append(attend(numbers, keys, None, factor, out_factor, precision, form.d_v, sink))
    found = assembled(parts, dims, form.d_v, traits["out_dtype"])
    if q.ndim == 4:
        return found
    prompt = {name: Answer(a.want[0], a.bound[0], a.dtype) for name, a in found.items()}
    for name in ("lse", "max_logits"):
        prompt[name].want, prompt[name].bound = prompt[name].want.T, prompt[name].bound.T
    return prompt
