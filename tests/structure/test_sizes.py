"""Hand-written code stays small: lines of a file, files of a folder, lines of a Python function."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.structure.imports import ROOT

FOLDERS = ("benchmarks", "ci", "codegen", "package", "templates", "tests")
CODE = {".c", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".j2", ".py", ".pyi", ".sh", ".txt"}
"""Suffixes of code; matrices, costs and recorded signatures are data."""
LINES, FILES, FUNCTION = 350, 16, 60

EXCEPTIONS: Mapping[str, str] = {
    "package/mla_kernels/api/lookup.py::lookup": "a public function of fourteen fields, half of it their documentation",
    "package/mla_kernels/compat/flash_mla.py::flash_mla_with_kvcache": "FlashMLA's and sgl-flash-mla's twenty-one "
    "arguments, documented one by one",
    "package/mla_kernels/compat/flashmla_sparse/indices.py::triton_convert_req_index_to_global_index": "vLLM's "
    "signature of eighteen arguments, documented one by one",
}
"""What may be larger, each with the reason: a file, a folder, or ``path::function``."""


def code() -> Iterator[Path]:
    """Every hand-written file of code; a link leads to a generated one."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix in CODE:
                yield path


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def too_large() -> dict[str, str]:
    """What exceeds a limit, and by how much it would."""
    found: dict[str, str] = {}
    for path in code():
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > LINES:
            found[name(path)] = f"{lines} lines of at most {LINES}"
        if path.suffix == ".py":
            for function, length in functions(text):
                if length > FUNCTION:
                    found[f"{name(path)}::{function}"] = f"{length} lines of at most {FUNCTION}"
    for folder, files in Counter(name(path.parent) for path in code()).items():
        if files > FILES:
            found[folder] = f"{files} files of at most {FILES}"
    return found


def functions(text: str) -> Iterator[tuple[str, int]]:
    """The functions of a module, and their lines from ``def`` to the last."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or 0) - node.lineno + 1


def test_nothing_is_too_large():
    found = {what: why for what, why in too_large().items() if what not in EXCEPTIONS}
    assert not found, "\n".join(f"{what}: {why}" for what, why in found.items())


def test_every_exception_is_needed():
    assert set(EXCEPTIONS) <= set(too_large())


def test_methods_and_inner_functions_are_counted():
    text = "class Some:\n    def method(self):\n        def inner():\n            pass\n        return inner\n"
    assert list(functions(text)) == [("method", 4), ("inner", 2)]
