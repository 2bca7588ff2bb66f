"""Tensors of the package have the type that its code states: a program may have set another default type of torch."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "package" / "mla_kernels"
BY_DEFAULT = {"empty", "eye", "full", "linspace", "ones", "rand", "randn", "tensor", "zeros"}


def test_every_new_tensor_of_torch_states_its_type():
    calls = [
        (f"{path.name}:{node.lineno}", {keyword.arg for keyword in node.keywords})
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"torch.{name}" for name in BY_DEFAULT}
    ]
    assert len(calls) > 20
    assert [where for where, keywords in calls if "dtype" not in keywords] == []
