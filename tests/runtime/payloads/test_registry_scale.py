"""A registry of 10,000 rows answers exactly what a search row by row would."""

from __future__ import annotations

import random

import pytest
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry, Variant

ROWS = 10_000
DTYPES = ("fp32", "fp16", "bf16", "e4m3")


def document() -> dict:
    draw = random.Random(0)
    rows = [
        {
            "name": f"v{number:05}",
            "op": "decode",
            "arch": draw.choice(("cpu", "sm90a")),
            "priority": draw.randrange(3),
            "baked": {
                "q_dtype": draw.choice(DTYPES),
                "kv_dtype": draw.choice(DTYPES),
                "schedule": f"s{draw.randrange(40)}",
            },
            "accepts": {
                "page_size": draw.choice([[64], [16, 32, 64], {"min": 1}, {"min": 16, "max": 256, "multiple_of": 16}]),
                "q_len": draw.choice([{"min": 1}, {"min": 1, "max": 4}]),
            },
        }
        for number in range(ROWS)
    ]
    return {
        "payload": "toy",
        "arch": {"name": "cpu", "device": "cpu"},
        "abi_hash": "",
        "traits": {},
        "accepted": {},
        "domains": {},
        "allow": [],
        "variants": rows,
    }


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.parse(document())


@pytest.fixture(scope="module")
def index(registry) -> Index:
    return Index(registry.variants)


def configs() -> list[dict]:
    draw = random.Random(1)
    drawn = []
    for _ in range(200):
        config = {
            "arch": draw.choice(("cpu", "sm90a")),
            "q_dtype": draw.choice(DTYPES),
            "kv_dtype": draw.choice(DTYPES),
            "schedule": f"s{draw.randrange(42)}",
            "page_size": draw.choice((1, 16, 48, 64, 512)),
            "q_len": draw.choice((1, 4, 5)),
        }
        drawn.append({field: value for field, value in config.items() if draw.random() < 0.7})
    return drawn


def misses(variant: Variant, config: dict) -> list[str]:
    return [field for field, value in config.items() if value not in variant.domain(field)]


def preferred(matching: list[Variant], config: dict) -> tuple[Variant, ...]:
    """Variants that limit ``q_len`` come after those that do not, where a config of an arch leaves it open."""
    is_open = "arch" in config and "q_len" not in config
    unlimited = any(variant.accepts["q_len"].max is None for variant in matching)
    return tuple(sorted(matching, key=lambda v: is_open and unlimited and v.accepts["q_len"].max is not None))


def test_registry_keeps_every_row_and_shares_domains(registry):
    assert len(registry.variants) == ROWS
    assert len({id(domain) for variant in registry.variants for domain in variant.accepts.values()}) <= 6


def test_matches_are_those_of_a_linear_search(index):
    order = sorted(index.variants, key=lambda variant: (-variant.priority, variant.name))
    found = 0
    for config in configs():
        expected = preferred([variant for variant in order if not misses(variant, config)], config)
        assert index.matching(config) == expected
        assert index.best(config) == (expected[0] if expected else None)
        found += bool(expected)
    assert 0 < found < len(configs())


def test_nearest_are_those_of_a_linear_search(index):
    order = sorted(index.variants, key=lambda variant: (-variant.priority, variant.name))
    for config in configs()[:40]:
        missing = [(variant, misses(variant, config)) for variant in order]
        near = sorted((pair for pair in missing if pair[1]), key=lambda pair: len(pair[1]))[:8]
        assert index.nearest(config, 8) == tuple((variant, fields[0]) for variant, fields in near)
