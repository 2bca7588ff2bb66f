"""The machine code of real objects is read: ``nox -s units`` compiles them and runs this file.

Its name keeps it out of ``nox -s tests``, which compiles nothing for a GPU.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import cuobjdump
import pytest
from cuobjdump import TENSOR_CORE
from variant_kernels import VariantKernels

from ci.measure.functions import of_library
from ci.measure.same_code import Comparison
from ci.rows import ROOT

SHARDS = ROOT / "dist" / "shards"
UNITS = sorted([*SHARDS.glob("*-units/decode_*.o"), *SHARDS.glob("sm90-units/sparse_decode_*.o")])
"""Objects that hold attention kernels; Blackwell's sparse decode launches those of its dense decode."""


def found(unit: Path) -> VariantKernels:
    payload = unit.parent.name.removesuffix("-units")
    registry = json.loads((ROOT / "generated" / payload / "registry.json").read_text())
    return VariantKernels(registry, cuobjdump.read(unit).kernels)


def test_there_are_units_of_every_payload():
    assert {unit.parent.name for unit in UNITS} == {"sm90-units", "sm100-units"}, "run: nox -s units"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_real_kernel_that_lost_its_tensor_cores_is_found_by_name(unit):
    whole = found(unit)
    assert list(whole.without_tensor_cores()) == []
    own = {kernel for variant in whole.variants if variant["tensor_cores"] for kernel in whole.own[variant["name"]]}
    assert own
    for lost in own:
        code = tuple(line for line in lost.instructions if not TENSOR_CORE.search(line))
        assert 0 < len(code) < len(lost.instructions)
        damaged = dataclasses.replace(lost, instructions=code)
        problems = list(VariantKernels(whole.registry, [damaged]).without_tensor_cores())
        assert problems
        assert all(problem.endswith(f"{lost.name}: no tensor-core instruction") for problem in problems)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_real_kernel_is_the_same_as_itself_and_as_no_other(unit):
    functions = of_library(unit)
    assert all(function.instructions and function.usage.startswith("REG:") for function in functions)
    assert Comparison.of(functions, functions).same
    changed = dataclasses.replace(functions[0], instructions=functions[0].instructions[:-1])
    assert len(Comparison.of(functions, [changed, *functions[1:]]).only_old) == 1
