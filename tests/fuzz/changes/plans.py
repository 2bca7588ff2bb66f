"""Plans that no ``plan`` wrote: a launch refuses them, or computes the right answer all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.memory import Array, Space
from tests.fuzz.model import Answer
from tests.fuzz.problems import attention
from tests.fuzz.problems.case import Case, Maker, Variant

EXTREMES = (2**31 - 1, 2**31 - 1, 2**31 - 2, -(2**31), 2**30, 65, 64, 2, 1, 0, -1)

HEADER = 6
"""The words before those of the requests, most of which a launch compares with its own."""


def forgery(make: Maker) -> Callable[[np.ndarray], None]:
    """A change of some words of a plan."""
    draw = make.random

    def forge(words: np.ndarray) -> None:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            first = min(HEADER, len(words) - 1) if draw.random() < 0.8 else 0
            i, other = draw.randrange(first, len(words)), draw.randrange(len(words))
            extreme = draw.choice(EXTREMES)
            near = int(words[i]) + draw.choice((-1, 1, 5))
            word = draw.choice((extreme, extreme, near, int(words[other])))
            words[i] = np.int64(word).astype(np.int32)

    return forge


def forged(make: Maker, variants: dict[str, list[Variant]]) -> Case:
    """A decode by a plan some of whose words were replaced."""
    case = attention.decode(make, make.random.choice(variants["decode"]), make.chance(0.75))
    case.kind, case.how, case.verdict, case.names = "plan", "planned", "either", ("plan",)
    case.label = "a plan with other words"
    case.notes["workspace"] = True
    forge = forgery(make)

    def change(buffer: Array) -> None:
        region = buffer.region
        assert region is not None
        content = region.arena.read(region.begin, len(region.before)).copy()
        size = buffer.span // 4 * 4
        forge(content[buffer.first : buffer.first + size].view(np.int32))
        region.arena.write(region.begin, content)

    case.notes["forge"] = change
    return case


def scheduled(make: Maker, variants: dict[str, list[Variant]]) -> Case:
    """A call of the adapter of FlashMLA, with metadata as it gives them or some words of them replaced."""
    plain = [row for row in variants["decode"] if row.form.element != "e4m3" and row.form.d_v == 512]
    while True:
        case = attention.decode(make, make.random.choice(plain), make.chance(0.7))
        given = case.arguments
        plain_tensors = not isinstance(given["q"], tuple) and not isinstance(given["kv_cache"], tuple)
        if plain_tensors and "block_table" in given and "cu_seqlens_q" not in given:
            break
    kept = ("q", "kv_cache", "block_table", "seq_lens", "softmax_scale", "causal")
    case.arguments = {name: given[name] for name in kept if name in given}
    case.arguments.setdefault("causal", True)
    case.kind, case.how, case.label = "compat", "compat", "flash_mla_with_kvcache"
    forge = forgery(make) if make.chance(0.6) and make.device == "cpu" else None
    if forge:
        case.verdict, case.label = "either", "flash_mla_with_kvcache with other words in its metadata"
        case.names = ("tile_scheduler_metadata",)
    answers = case.answers
    case.answers = lambda: flipped(answers())

    def call(arguments: dict[str, Any], space: Space) -> Any:
        from mla_kernels.compat import flash_mla

        q, cache, lengths = arguments["q"], arguments["kv_cache"], arguments["seq_lens"]
        metadata, splits = flash_mla.get_mla_metadata(lengths, q.shape[1] * q.shape[2], 1)
        if forge:
            words = metadata.detach().clone().cpu().numpy().reshape(-1)
            forge(words)
            shape = tuple(metadata.shape)
            room = Array("int32", shape, (shape[1], 1), words.reshape(shape), align=16)
            metadata = space.put(room)
        return lambda: flash_mla.flash_mla_with_kvcache(
            q, cache[:, :, None], arguments["block_table"], lengths, 512, metadata, splits,
            arguments["softmax_scale"], arguments["causal"],
        )  # fmt: skip

    case.notes["call"] = call
    return case


def flipped(answers: dict[str, Answer]) -> dict[str, Answer]:
    """FlashMLA's LSE of an empty row is +inf."""
    lse = answers["lse"]
    assert lse.want is not None
    lse.want = np.where(np.isneginf(lse.want), np.inf, lse.want)
    return answers
