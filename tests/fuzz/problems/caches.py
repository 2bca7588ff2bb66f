"""Random problems of the ops around attention, all of them legal."""

from __future__ import annotations

import inspect
from typing import Any

import mla_kernels as mla
import numpy as np

from tests.fuzz.elements import ROUNDING, decoded
from tests.fuzz.formats import stored_rows, tokens_of
from tests.fuzz.model import Answer, gathered, global_slots, merged
from tests.fuzz.problems.attention import PAGE_SIZES
from tests.fuzz.problems.case import Case, Maker, Variant, told, whole

TAKES_POWERS = "power_of_two_scales" in inspect.signature(mla.store_kv).parameters
"""Older releases do not, and can be fuzzed too."""


def count(make: Maker, choices: tuple[int, ...]) -> int:
    """One of some numbers, and rarely 0."""
    return 0 if make.chance(0.02) else make.random.choice(choices)


def merge_states(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Merge partial results."""
    states, tokens = make.random.choice((0, 1, 1, 1, 2, 2, 3, 7)), count(make, (1, 2, 5, 33 if long else 3))
    heads, width = make.random.choice((1, 2, 3, 8)), make.random.choice((1, 3, 32, 64, 512, 512, 520))
    dims = (states, tokens, heads)
    lse = make.numbers(dims, 3.0)
    if make.chance(0.4):
        lse = np.where(make.integers(0, 4, dims) == 0, make.random.choice((np.inf, -np.inf)), lse)
    traits = variant.traits
    arguments: dict[str, Any] = {
        "o": make.floats(traits["in_dtype"], (*dims, width), "sss."),
        "lse": make.array("fp32", dims, "sss", lse),
    }
    if make.chance(0.4):
        arguments["counts"] = make.array("int32", (tokens,), "s", make.integers(0, states + 1, (tokens,)))
    if make.chance(0.8):
        arguments["out"] = make.output(traits["out_dtype"], (tokens, heads, width), "ss.")
    elif traits["out_dtype"] != traits["in_dtype"]:
        arguments["out_dtype"] = traits["out_dtype"]
    if make.chance(0.7):
        arguments["out_lse"] = make.output("fp32", (tokens, heads), "ss")
    elif make.chance(0.3):
        arguments["out_lse"] = False
    case = Case("merge_states", variant, arguments, dict)
    case.answers = lambda: merge_answers(case)
    return case


def merge_answers(case: Case) -> dict[str, Answer]:
    """What a merge gives."""
    given, traits = case.arguments, case.variant.traits
    counts = given.get("counts")
    o = decoded(given["o"].values, traits["in_dtype"])
    lse = np.asarray(given["lse"].values, np.float64)
    out, spread, total = merged(o, lse, None if counts is None else counts.values)
    tiny = 2.0**-24 if traits["out_dtype"] == "fp16" else 1e-30
    bound = spread * 2.0**-18 + np.abs(out) * 2 * ROUNDING[traits["out_dtype"]] + tiny
    with np.errstate(invalid="ignore"):
        return {
            "out": Answer(out, bound, traits["out_dtype"]),
            "out_lse": Answer(total, 2e-6 + np.abs(total) * 2.0**-20),
        }


def store_kv(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Write rows to slots of their own."""
    traits = variant.traits
    tokens = count(make, (1, 2, 3, 9, 100 if long else 5))
    page_size = variant.pick(make.random, "page_size", PAGE_SIZES)
    pages = make.random.choice((1, 2, 3)) + tokens // page_size
    slots = np.array(make.random.sample(range(pages * page_size), min(tokens, pages * page_size)), np.int64)
    tokens = len(slots)
    if tokens and make.chance(0.4):
        slots[make.random.randrange(tokens)] = make.random.choice((-1, -(2**63), -5))
    kv_dtype, form = traits["kv_dtype"], variant.form
    cache = make.cache(form, (pages, page_size), "ss", 0.35)
    none = not form.rope and make.chance(0.8)
    arguments: dict[str, Any] = {
        "latent": make.floats(traits["in_dtype"], (tokens, form.latent), "s."),
        "rope": None if none else make.floats(traits["in_dtype"], (tokens, form.rope), "s."),
        "kv_cache": cache,
        "slot_mapping": make.array("int64", (tokens,), ".", slots),
    }
    if tokens and make.chance(0.2):
        zeros = arguments["latent"]
        zeros.values = zeros.values.copy()
        zeros.values[0, :128] = 0
    if kv_dtype == "e4m3":
        shape = make.random.choice(((1,), (1,), ()))
        scale = np.full(shape, make.random.choice((0.01, 0.00173, 1.0)), np.float32)
        arguments["scale"] = make.array("fp32", shape, "." * len(shape), scale)
    if kv_dtype == "fp8_ds_mla" and make.chance(0.4) and TAKES_POWERS:
        arguments["power_of_two_scales"] = make.random.choice((True, False))
    arguments |= told(make, variant)
    case = Case("store_kv", variant, arguments, dict)
    case.answers = lambda: {"kv_cache": Answer(check=lambda bits: store_fault(case, bits))}
    return case


def store_fault(case: Case, bits: np.ndarray) -> str:
    """Say what is wrong with a cache after the call: rows that were not written must be as they were."""
    given, traits = case.arguments, case.variant.traits
    form = case.variant.form
    flat, old = tokens_of(bits, form), tokens_of(whole(given["kv_cache"]), form)
    slots = given["slot_mapping"].values
    tokens = np.flatnonzero((slots >= 0) & (slots < len(flat)))
    untouched = np.ones(len(flat), bool)
    untouched[slots[tokens]] = False
    if not np.array_equal(flat[untouched], old[untouched]):
        return "a row that no slot names was written"
    source = given["latent"].values[tokens]
    if given["rope"] is not None:
        source = np.concatenate([source, given["rope"].values[tokens]], axis=1)
    written = flat[slots[tokens]]
    if traits["kv_dtype"] == traits["in_dtype"]:
        return "" if np.array_equal(written, source) else "a copied row differs from its token"
    scale = given.get("scale")
    number = 1.0 if scale is None else float(scale.values.reshape(-1)[0])
    powers = bool(given.get("power_of_two_scales", False))
    numbers = decoded(source, traits["in_dtype"])
    return stored_rows(numbers, written, form, number, powers)


def gather_kv(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Read rows."""
    traits = variant.traits
    rows = count(make, (1, 2, 5, 17, 120 if long else 3))
    page_size = variant.pick(make.random, "page_size", PAGE_SIZES)
    pages = make.random.choice((1, 2, 3))
    out_dtype, form = traits["out_dtype"], variant.form
    cache = make.cache(form, (pages, page_size), "ss", 0.3)
    low = -max(1, pages * page_size // 5)
    arguments: dict[str, Any] = {
        "kv_cache": cache,
        "indices": make.array("int32", (rows,), ".", make.integers(low, pages * page_size, (rows,))),
    }
    if make.chance(0.75):
        widths = (form.latent, form.rope) if form.rope and make.chance(0.3) else (form.d_qk,)
        outputs = tuple(make.output(out_dtype, (rows, width), "s.") for width in widths)
        arguments["out"] = outputs if len(outputs) == 2 else outputs[0]
    else:
        arguments["out_dtype"] = out_dtype
    arguments |= told(make, variant)
    if traits["kv_dtype"] == "e4m3":
        arguments["kv_scale"] = make.random.choice((0.01, 0.00173, 1.0))
    case = Case("gather_kv", variant, arguments, dict)
    case.answers = lambda: {"out": gather_answer(case)}
    return case


def gather_answer(case: Case) -> Answer:
    """The rows; indices past the cache are absent."""
    given, traits = case.arguments, case.variant.traits
    rows = tokens_of(whole(given["kv_cache"]), case.variant.form)
    slots = given["indices"].values
    absent = (slots < 0) | (slots >= len(rows))
    factor = float(np.float32(given.get("kv_scale", 1.0)))
    return gathered(rows[np.where(absent, 0, slots)], case.variant.form, traits["out_dtype"], factor, absent)


def to_global_indices(make: Maker, variant: Variant, long: bool = False) -> Case:
    """Translate positions; any position and any page is legal."""
    tokens, topk = count(make, (1, 2, 5)), make.random.choice((0, 1, 7, 64, 3000 if long else 33))
    requests, width = make.random.choice((1, 2, 4)), make.random.choice((0, 1, 3, 9))
    page_size = make.random.choice((*PAGE_SIZES, 1000, 2**31 - 1, 2**31, 2**40))
    table = make.integers(-2, 40, (requests, width))
    if make.chance(0.2) and table.size:
        table[0, 0] = make.random.choice((2**31 - 1, -(2**31), 2**25))
    most = max(2, min(2**31, int(width * page_size * 1.3)))
    positions = make.integers(-max(1, most // 8), most, (tokens, topk))
    arguments: dict[str, Any] = {
        "req_id": make.array("int32", (tokens,), ".", make.integers(0, requests, (tokens,))),
        "block_table": make.array("int32", (requests, width), "s.", table),
        "token_indices": make.array("int32", (tokens, topk), "s.", np.clip(positions, -(2**31), 2**31 - 1)),
        "page_size": page_size,
    }
    if make.chance(0.7):
        arguments["out"] = make.output("int32", (tokens, topk), "s.")
    case = Case("to_global_indices", variant, arguments, dict)
    case.answers = lambda: {"out": slots_answer(case)}
    return case


def slots_answer(case: Case) -> Answer:
    """The slots, exactly."""
    given = case.arguments
    requests, table = given["req_id"].values, given["block_table"].values
    want = global_slots(requests, table, given["token_indices"].values, min(given["page_size"], 2**31))
    return Answer(want, 0.0, "int32")
