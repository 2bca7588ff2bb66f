"""How units are cut into parts of about equal cost, and when parts make a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.build import shards
from ci.build.report import Unit, projected
from ci.build.shards import Part, Shard, problems, save, split
from ci.build.stage import Stage
from ci.rows import rows

COSTS = st.dictionaries(st.text("abcdef_", min_size=1), st.floats(0.1, 1000), max_size=40)
HERE = Stage(Path("/stage"), "a" * 40, dirty=False, epoch=0)


@given(COSTS, st.integers(1, 9))
def test_every_unit_is_in_one_part(costs, count):
    parts = split(list(costs), costs, count)
    assert len(parts) == count
    assert sorted(name for part in parts for name in part) == sorted(costs)


@given(COSTS, st.integers(1, 9))
def test_parts_are_as_even_as_a_greedy_cut_promises(costs, count):
    loads = [sum(costs[name] for name in part) for part in split(list(costs), costs, count)]
    best = max([sum(costs.values()) / count, *costs.values()])
    assert max(loads) <= best * (4 / 3 + 1e-9) + 1e-9 or max(loads) <= sum(costs.values()) / count + max(costs.values())


@given(COSTS, st.integers(1, 9), st.randoms())
def test_the_cut_does_not_depend_on_the_order(costs, count, random):
    names = list(costs)
    random.shuffle(names)
    assert split(names, costs, count) == split(list(costs), costs, count)


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/0"])
def test_what_is_no_shard(text):
    with pytest.raises(ValueError, match="is not I/N"):
        Shard.parse(text)


def test_a_new_unit_costs_what_units_of_its_payload_cost(tmp_path, monkeypatch):
    (tmp_path / "costs.json").write_text('{"sm100": {"a": 80.0, "b": 2.0, "c": 90.0}}')
    monkeypatch.setattr(shards, "COSTS", tmp_path / "costs.json")
    row = next(row for row in rows() if row.payload == "sm100")
    assert shards.costs(row, ["a", "new"]) == {"a": 80.0, "new": 80.0}


def test_one_unit_of_each_op_leaves_out_what_every_cuda_arch_shares(tmp_path, monkeypatch):
    (tmp_path / "costs.json").write_text('{"sm100": {"decode_dear": 80.0, "decode_cheap": 70.0, "store_kv": 1.0}}')
    monkeypatch.setattr(shards, "COSTS", tmp_path / "costs.json")
    folder = tmp_path / "generated" / "sm100"
    folder.mkdir(parents=True)
    for name, header in (
        ("decode_dear.cu", "sm100/decode/decode.cuh"),
        ("decode_cheap.cu", "sm100/decode/decode.cuh"),
        ("merge_states_new.cu", "sm100/merge_states/merge_states.cuh"),
        ("store_kv.cu", "cuda/store_kv/store_kv.cuh"),
        ("registry.cpp", "sm100/decode/decode.h"),
    ):
        (folder / name).write_text(f'#include "{header}"\n')
    row = next(row for row in rows() if row.payload == "sm100")
    assert shards.one_of_each_op(row, tmp_path) == ["decode_cheap", "merge_states_new"]


def part(index: int, count: int, *units: str, commit: str = HERE.commit) -> Part:
    return Part(Shard(index, count), units, commit)


def test_parts_of_one_build_make_a_whole():
    assert problems([part(1, 2, "a", "c"), part(2, 2, "b")], HERE, ["a", "b", "c"]) == []


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([], "there are none"),
        ([part(1, 2, "a", "b")], "there are parts 1/2;"),
        ([part(1, 2, "a"), part(2, 3, "b")], "there are parts 1/2, 2/3;"),
        ([part(1, 2, "a"), part(2, 2, "b", commit="b" * 40)], f"part 2/2 is of commit {'b' * 40}, the sources are of"),
        ([part(1, 2, "a"), part(2, 2, "b", commit=HERE.commit + "-dirty")], "-dirty, the sources are of"),
        ([part(1, 2, "a"), part(2, 2)], "missing, twice or unknown: b"),
        ([part(1, 2, "a", "b"), part(2, 2, "b")], "missing, twice or unknown: b"),
        ([part(1, 2, "a", "b"), part(2, 2, "c")], "missing, twice or unknown: c"),
    ],
)
def test_parts_that_are_no_whole(parts, problem):
    assert problem in "\n".join(problems(parts, HERE, ["a", "b"]))


def test_what_a_part_says_is_read_back(tmp_path):
    stated = part(2, 3, "a", "b")
    save(stated, tmp_path)
    assert Part.load(tmp_path / "shard.json") == stated


def test_a_projection_repeats_measured_units_and_shares_them_out():
    units = [Unit(variants=1, seconds=60.0, peak_mb=0, object_bytes=0), Unit(2, 120.0, 0, 0)]
    assert projected(units, 300, 1) == pytest.approx(100 * 180)
    assert projected(units, 300, 10) == pytest.approx(10 * 180, rel=0.05)
    assert projected(units, 300, 10_000) == 120
