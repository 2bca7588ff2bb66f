"""What two engines told of the same prompts, side by side."""

from __future__ import annotations

from tests.engines import tiny_model
from tests.engines.runs import TOKENS, Told

LIKE_ANOTHER = 1.5
"""How far from an engine's own backends ours may be, in the mean, where 1 is how far these are from each other."""
LIKE_ANOTHER_SELECTION = 3
"""The same for sparse models, whose indexer selects other tokens where rounding differs.

In vLLM on an H200, a kernel whose outputs are 10% too large was 6.6 times as far.
"""


def served(found: Told) -> Told:
    """What a run told, which must have served every request."""
    assert found.status == 0, found.printed
    assert found.requests
    assert {len(tokens) for tokens in found.tokens} == {TOKENS}
    return found


def apart(a: Told, b: Told) -> list[float]:
    """Differences of log-probabilities of every token that both runs have among the likeliest, until tokens differ."""
    found = []
    for one, other in zip(a.requests, b.requests, strict=True):
        for step, (mine, theirs) in enumerate(zip(one["likeliest"], other["likeliest"], strict=True)):
            found += [abs(mine[token] - theirs[token]) for token in mine.keys() & theirs.keys()]
            if one["tokens"][step] != other["tokens"][step]:
                break
    return found


def alike(a: Told, b: Told) -> int:
    """How many tokens come before the first that differs, of all requests together."""
    pairs = [zip(mine, theirs, strict=True) for mine, theirs in zip(a.tokens, b.tokens, strict=True)]
    return sum(next((step for step, (one, other) in enumerate(pair) if one != other), TOKENS) for pair in pairs)


def require_launches(found: Told, start: str, layers: int = tiny_model.LAYERS) -> None:
    """Demand that every layer of a step, or of a graph that was captured, was this package's."""
    assert found.launches
    assert len(found.launches) % layers == 0
    assert {line.split()[0].startswith(start) for line in found.launches} == {True}
