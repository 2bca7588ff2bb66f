"""The launcher's stub names what the launcher has, and nothing public that it has not."""

from __future__ import annotations

import ast
from pathlib import Path

from mla_kernels import _launcher

STUB = ast.parse(Path(_launcher.__file__).with_name("_launcher.pyi").read_text(encoding="utf-8"))


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def defined(body: list[ast.stmt]) -> set[str]:
    """The public names that exist when a program runs."""
    found = []
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            checked_only = any(
                isinstance(each, ast.Name) and each.id == "type_check_only" for each in node.decorator_list
            )
            found += [] if checked_only else [node.name]
    return public(found)


def test_the_module_has_the_names_of_its_stub():
    assert defined(STUB.body) == public(vars(_launcher))


def test_each_class_has_the_members_of_its_stub():
    classes = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
    for name in ("Payload", "Kernel"):
        assert defined(classes[name].body) == public(vars(getattr(_launcher, name))), name
