"""The imports of ``mla_kernels`` go one way: no cycle, and from each level to those below it only."""

from __future__ import annotations

import ast

import pytest

from tests.structure.imports import PACKAGE, ROOT, cycles, graph, report

LEVELS = (
    ("_launcher",),
    ("errors", "version", "_types", "_formats", "_models"),
    ("formats", "scalars"),
    ("tensors", "reference_rows"),
    ("reference_rounding",),
    ("reference",),
    ("payloads",),
    ("devices",),
    ("kernels", "resolve"),
    ("api", "models"),
    ("__init__",),
    ("distributed",),
    ("compat",),
    ("backends", "diagnostics"),
    ("__main__",),
)
"""The folders and modules at the top of the package, lowest first; those of one level do not know each other."""
OUTSIDE = {"benchmarks", "ci", "codegen", "tests"}
"""Folders of the repository that no wheel holds."""


def level(module: str) -> int:
    """The number of a module's level."""
    top = (module.split(".")[1:] or ["__init__"])[0]
    return next(number for number, names in enumerate(LEVELS) if top in names)


def test_there_is_no_cycle():
    assert cycles(graph(PACKAGE)) == []


def test_every_import_goes_down():
    against = [
        f"{module} imports {imported}"
        for module, known in graph(PACKAGE).items()
        for imported in known
        if level(imported) >= level(module) and imported.split(".")[1:2] != module.split(".")[1:2]
    ]
    assert against == []


def test_the_package_imports_nothing_that_it_does_not_ship():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & OUTSIDE, path


@pytest.fixture
def package(tmp_path):
    """A package of three modules, two of which import each other, one only where a function is called."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "top.py").write_text("from toy import left\n")
    (folder / "left.py").write_text("from toy.right import name\n")
    (folder / "right.py").write_text("def call():\n    import toy.left\n")
    return folder


def test_a_cycle_is_found_wherever_an_import_stands(package):
    assert cycles(graph(package)) in (
        [("toy.left", "toy.right", "toy.left")],
        [("toy.right", "toy.left", "toy.right")],
    )
    assert "cycles: none" not in report(package)


def test_modules_chains_and_edges_are_counted(package):
    (package / "right.py").write_text("name = 1\n")
    assert report(package) == "4 modules (3 on the top level), longest chain 3, 2 edges, cycles: none"


def test_the_docs_name_the_levels():
    """CONTRIBUTING lists them in the same order."""
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = [listed.index(f"| `{name}/` |") for names in LEVELS for name in names if (PACKAGE / name).is_dir()]
    assert places == sorted(places)
