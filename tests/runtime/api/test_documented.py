"""Every parameter of a public function stands in its docstring by its own name, as the API pages render it."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import mla_kernels as mla
import pytest
from mla_kernels import reference
from mla_kernels.kernels.ops import DecodeKernel
from mla_kernels.resolve.explanation import Candidate, Explanation

OPS = ("decode", "sparse_decode", "sparse_prefill", "merge_states", "store_kv", "gather_kv", "to_global_indices")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{op: getattr(mla, op) for op in OPS},
    **{f"reference.{op}": getattr(reference, op) for op in OPS},
    **{name: getattr(mla, name) for name in ("lookup", "variants", "explain")},
    **{
        f"DecodeKernel.{name}": getattr(DecodeKernel, name)
        for name in ("plan", "plan_size", "workspace_size", "prepare")
    },
}
CLASSES = {"Plan": mla.Plan, "Explanation": Explanation, "Candidate": Candidate}


def entries(doc: str, section: str) -> dict[str, str]:
    """The entries of a section of a numpy docstring: what stands before and after the colon."""
    _, _, rest = inspect.cleandoc(doc).partition(f"{section}\n{'-' * len(section)}\n")
    lines = re.split(r"\n\n\w+\n-+\n", rest)[0].splitlines()
    return dict(line.partition(" : ")[::2] for line in lines if line and not line.startswith(" "))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters(name):
    parameters = [parameter for parameter in inspect.signature(FUNCTIONS[name]).parameters if parameter != "self"]
    fields = parameters == ["config", "fields"]  # explain takes the fields as one mapping or by name
    documented = entries(FUNCTIONS[name].__doc__ or "", "Parameters")
    assert sorted(entry.lstrip("*") for entry in documented) == sorted(parameters[:1] if fields else parameters)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in OPS])
def test_every_parameter_of_an_op_states_its_type(name):
    for parameter, kind in entries(FUNCTIONS[name].__doc__ or "", "Parameters").items():
        assert kind, parameter


@pytest.mark.parametrize("name", [name for name, each in CLASSES.items() if "Attributes" in (each.__doc__ or "")])
def test_attributes(name):
    fields = {field.name for field in dataclasses.fields(CLASSES[name]) if field.init}
    assert {*entries(CLASSES[name].__doc__ or "", "Attributes")} == fields


def test_the_softmax_scale_of_deepseek_v3():
    """YaRN's ``factor`` is 40 and ``mscale_all_dim`` 1 in its configuration."""
    doc = " ".join((mla.decode.__doc__ or "").split())
    assert "``m = 0.1 * mscale_all_dim * ln(factor) + 1``" in doc
    m = 0.1 * 1.0 * math.log(40) + 1
    assert f"{192**-0.5 * m**2:.4f}, ``192 ** -0.5 * {m:.4f} ** 2``" in doc
