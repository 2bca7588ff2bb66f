"""The program that measures lookups, tried out: it searches what registries serve, and writes what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import mla_kernels as mla
from mla_kernels.payloads.registry import Registry

from benchmarks import lookup

GENERATED = Path(__file__).parents[2] / "generated"
REGISTRIES = [Registry.parse(json.loads(path.read_text())) for path in sorted(GENERATED.glob("*/registry.json"))]


def test_every_config_of_a_model_that_is_served_is_searched():
    (host,) = (registry for registry in REGISTRIES if registry.arch == "cpu")
    taken = lookup.searching([host], 1)
    served = [config for config in lookup.configs("cpu") if is_served(config)]
    assert len(taken) == len(served) > 20
    assert all(seconds > 0 for seconds in taken)
    assert len(lookup.searching(REGISTRIES, 1)) > len(taken)
    assert lookup.searching([], 1) == []


def is_served(config: dict) -> bool:
    try:
        return bool(mla.lookup(**config))
    except mla.MlaError:
        return False


def test_indices_are_made_in_a_process_that_is_given_the_files():
    command = [lookup.sys.executable, "-c", lookup.READ, *map(str, sorted(GENERATED.glob("*/registry.json")))]
    assert 0 < lookup.printed(command) < 60


def test_the_page_has_what_was_measured():
    document = {
        "rounds": 7,
        "facts": {"commit": "abc", "date": "2026-11-26"},
        "rows": [{"commit": "abc", "variants": 325, "read, ms": 12.3}],
        "installed": [{"with 153 variants installed": "a cached lookup", "us": 0.5}],
    }
    said = lookup.page(document)
    for text in (
        "| commit | abc |",
        "best of 7 processes",
        "| abc | 325 | 12.3 |",
        "| a cached lookup | 0.5 |",
    ):
        assert text in said


def test_a_row_has_the_best_of_processes(monkeypatch):
    taken = iter([0.5, 2.0, 3.0, 0.25, 4.0, 1.0])
    monkeypatch.setattr(lookup, "printed", lambda _: next(taken))
    monkeypatch.setattr(lookup, "generator", lambda *_: next(taken))
    checkout = lookup.Checkout("abc", GENERATED.parent, tuple(sorted(GENERATED.glob("*/registry.json"))))
    (row,) = lookup.measure([checkout], rounds=2, repeats=1)
    assert (row["read, ms"], row["check, s"], row["generate, s"]) == (250, 2, 1)
    assert row["variants"] == sum(len(registry.variants) for registry in REGISTRIES)
    assert row["slowest search, us"] >= row["search, us"] > 0


def test_the_installed_package_is_measured_from_its_import_on():
    imported, first, cached = (row["us"] for row in lookup.installed(1))
    assert min(imported, first) > 100 * cached > 0
