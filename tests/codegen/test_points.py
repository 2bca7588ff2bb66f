"""Points of the domains: ``add`` refuses each with a reason, or some are added and C++ has all; ``explain`` agrees."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from mla_kernels.payloads.index import Index
from mla_kernels.payloads.registry import Registry
from mla_kernels.resolve.addition import addition

from codegen import abi
from codegen.allow import refusal
from codegen.edit.add import add, complete
from codegen.edit.point import parse
from codegen.edit.remove import remove
from codegen.load import load
from codegen.model import choices
from codegen.render import _print, cpp, render
from codegen.schema import MatrixError
from codegen.validate import checked

ROOT = Path(__file__).parents[2]
MATRIX_OF_ROOT = load()
VARIANTS = checked(MATRIX_OF_ROOT)
SERVED = {(variant.op, variant.arch, frozenset(variant.baked)) for variant in VARIANTS}
OPS = [(op.name, arch) for op in abi.OPS for arch in MATRIX_OF_ROOT.archs]
COMMAND = "nox -s generate -- add "
MOST_ADDED, MOST_TOLD = 12, 1500
"""Points that are added and removed again, each a reading of the whole matrix, and points that are explained."""


def points(op):
    """Every combination of the traits of an op."""
    traits = abi.OP[op].traits
    for picks in product(*(choices(MATRIX_OF_ROOT.domains[trait]) for trait in traits)):
        yield dict(zip(traits, picks, strict=True))


@cache
def addable(op, arch):
    """The points of an op on an arch that ``add`` does not refuse; the others are refused with a reason."""
    found = []
    for point in points(op):
        try:
            found.append(complete(MATRIX_OF_ROOT, VARIANTS, op, arch, point))
        except MatrixError as error:
            (problem,) = error.problems
            assert problem == (
                f"the matrix holds this point already: {MATRIX_OF_ROOT.variant_name(arch, op, point)}"
                if (op, arch, frozenset(point.items())) in SERVED
                else f"it cannot be added: {refusal(MATRIX_OF_ROOT, op, arch, point)}"
            )
    return found


def texts(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(("op", "arch"), OPS)
def test_what_add_accepts_renders_and_remove_takes_it_out_again(real, op, arch):
    before, found = texts(real), addable(op, arch)
    found = random.Random(op).sample(found, min(len(found), MOST_ADDED))
    for point in found:
        names = add({"op": op, "arch": arch, **point}, real)
        assert MATRIX_OF_ROOT.variant_name(arch, op, point) in names
        assert len(names) == len({name.partition("_")[0] for name in names}), "one variant for each arch of a table"
        assert remove({"op": op, "arch": arch, **point}, real) == names
        assert texts(real) == before
    names = [name for point in found for name in add({"op": op, "arch": arch, **point}, real)]
    matrix = load(real)
    listing = render(matrix, checked(matrix))["VARIANTS.md"]
    assert [name for name in names if f"`{name}`" not in listing] == []


def compiled(folder, matrix, variants):
    """What a compiler says of the traits that the kernels of some variants must support."""
    path = folder / "allowed.h"
    path.write_text(_print("allowed.h.j2", cpp.allowed(matrix, variants)))
    flags = ["-std=c++17", "-Wall", "-Wextra", "-fsyntax-only"]
    folders = ["-I", str(ROOT / "package" / "csrc"), "-I", str(ROOT / "generated" / "include")]
    command = ["g++", *flags, *folders, "-include", str(path), "-x", "c++", "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_kernels_support_exactly_what_the_matrix_allows(tmp_path):
    assert compiled(tmp_path, MATRIX_OF_ROOT, VARIANTS) == ""


TABLES = {allow.where: allow for allow in MATRIX_OF_ROOT.allows if allow.boxes and abi.OP[allow.op].traits}
"""The tables that allow points, those of several archs once."""


@pytest.mark.parametrize("allow", TABLES.values(), ids=lambda allow: f"{allow.op}-{allow.where}")
def test_a_matrix_that_allows_more_or_less_does_not_compile(tmp_path, allow):
    """A row gains a value of its last trait, or loses all of its points; without any row the widths are unknown."""
    first, *rest = allow.boxes
    trait = [name for name in abi.OP[allow.op].traits if name not in MATRIX_OF_ROOT.unnamed(allow.op)][-1]
    left_out = [value for value in choices(MATRIX_OF_ROOT.domains[trait]) if value not in first.values[trait]]
    wider = replace(first, values={**first.values, trait: (*first.values[trait], *left_out)})
    others = [each for each in MATRIX_OF_ROOT.allows if each.where != allow.where]
    members = [variant for variant in VARIANTS if (variant.op, variant.folder) == (allow.op, allow.folder)]
    for boxes in ((wider, *rest) if left_out else (), rest):
        changed = replace(MATRIX_OF_ROOT, allows=(*others, replace(allow, boxes=tuple(boxes))))
        assert ("static assertion failed" if boxes else "error:") in compiled(tmp_path, changed, members)


@pytest.fixture(scope="module")
def registries():
    """What each payload's registry says, and an index of its variants."""
    found = {}
    files = render(MATRIX_OF_ROOT, VARIANTS)
    for arch in MATRIX_OF_ROOT.archs.values():
        registry = Registry.parse(json.loads(files[f"{arch.payload}/registry.json"]))
        ops = {op.name: Index([v for v in registry.variants if v.op == op.name]) for op in abi.OPS}
        found[arch.name] = registry, ops
    return found


def told(registries, op, arch, config):
    """The command and the reason that ``explain`` gives for a config, or nothing for one that is served."""
    registry, indices = registries[arch]
    wanted = {"arch": arch, **config}
    if indices[op].best(wanted):
        return "", ""
    return addition(op, wanted, [variant for variant, _ in indices[op].nearest(wanted, 8)], registry)


def configs(op, arch):
    """Points, every variant with numbers at and beside the ends of what it accepts, and parts of points."""
    draw, every = random.Random(f"{op} {arch}"), [*points(op)]
    for point in draw.sample(every, min(len(every), MOST_TOLD)):
        yield point
        for _ in range(2):
            yield {trait: value for trait, value in point.items() if draw.random() < 0.5}
    for variant in VARIANTS:
        if (variant.op, variant.arch) == (op, arch):
            for field, accepted in variant.accepts:
                values = ("contiguous", "paged") if field == "kv_layout" else numbers(accepted)
                for value in values:
                    yield {**dict(variant.baked), field: value}
                    yield {field: value}


def numbers(accepted):
    ends = choices(accepted) or (accepted.min, accepted.min + accepted.multiple_of, accepted.max or 4096)
    return sorted({max(0, int(end) + step) for end in ends for step in (-1, 0, 1)} | {2, 8, 24, 48})


@pytest.mark.parametrize(("op", "arch"), OPS)
def test_what_explain_prints_succeeds_or_says_why_not(real, registries, op, arch):
    before, tried = texts(real), set()
    for config in configs(op, arch):
        command, reason = told(registries, op, arch, config)
        if reason:
            assert reason == refusal(MATRIX_OF_ROOT, op, arch, config)
        elif command and command not in tried:
            tried.add(command)
            names = add(parse(command.removeprefix(COMMAND).split()), real)
            matrix = load(real)
            added = [variant for variant in checked(matrix) if variant.name in names]
            assert any(
                all(value in {**{k: (v,) for k, v in variant.baked}, **dict(variant.accepts)}[field]
                    for field, value in config.items())
                for variant in added
            ), (command, config)  # fmt: skip
            for name, text in before.items():
                (real / name).write_text(text)
    assert tried or not addable(op, arch)
