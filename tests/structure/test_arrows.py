"""The arrows of the design: who may import and include whom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "package" / "mla_kernels"
CSRC = ROOT / "package" / "csrc"


def imports(folder: Path) -> dict[str, set[str]]:
    """Top-level packages that each module of ``folder`` imports anywhere."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        names = found.setdefault(path.relative_to(ROOT).as_posix(), set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").split(".")[0])
    return found


def includes(folder: Path) -> dict[str, set[str]]:
    """What each C++ file of ``folder`` includes with quotes."""
    return {
        path.relative_to(ROOT).as_posix(): set(re.findall(r'#include "([^"]+)"', path.read_text()))
        for path in folder.rglob("*")
        if path.suffix in {".h", ".cpp", ".cu", ".cuh"}
    }


def test_codegen_imports_neither_package_nor_torch():
    for path, names in imports(ROOT / "codegen").items():
        assert not names & {"mla_kernels", "torch", "numpy"}, path


def test_the_package_never_imports_codegen():
    for path, names in imports(PACKAGE).items():
        assert "codegen" not in names, path


def test_csrc_includes_only_named_generated_headers():
    include = ROOT / "generated" / "include"
    generated = {path.relative_to(include).as_posix() for path in include.rglob("*.h")}
    for path, names in includes(CSRC).items():
        launcher = path.startswith("package/csrc/launcher/")
        allowed = {"mla/abi.h", "mla/formats.h", "mla/bindings.h" if launcher else "mla/conversions.h"}
        if path in ("package/csrc/common/traits.h", "package/csrc/common/dtype.h"):
            allowed.add("mla/traits.h")
        assert names & generated <= allowed, path


def test_only_sm100_sees_the_example_of_cutlass():
    for path, names in includes(CSRC).items():
        example = {name for name in names if name.startswith("kernel/sm100_fmha")}
        assert not example or path.startswith("package/csrc/sm100/"), path
        assert not any(name.startswith(("tests/", "cutlass/")) for name in names) or path.startswith(
            "package/csrc/sm"
        ), path


def test_shared_cuda_ops_know_no_arch():
    for path, names in includes(CSRC / "cuda").items():
        assert not any(name.startswith(("sm90/", "sm100/", "cpu/")) for name in names), path


def test_payload_code_knows_neither_python_nor_torch():
    for path, names in includes(CSRC).items():
        text = (ROOT / path).read_text()
        if not path.startswith("package/csrc/launcher/"):
            assert "Python.h" not in text, path
        assert not any(name.startswith(("torch/", "ATen/")) for name in names), path


def test_hoppers_folders_include_only_those_below_them():
    levels = ["common", "scheduler", "params", "combine", "mainloop", "sparse_decode", "decode", "sparse_prefill"]
    for path, names in includes(CSRC / "sm90").items():
        own = path.split("/")[3]
        for name in names:
            if name.startswith("sm90/"):
                assert levels.index(name.split("/")[1]) <= levels.index(own), f"{path} includes {name}"
    sparse = [names for path, names in includes(CSRC / "sm90").items() if "/sparse_" in path]
    assert sparse
    assert not any(name.startswith("sm90/decode/") for names in sparse for name in names)
    dense = [names for path, names in includes(CSRC / "sm90" / "decode").items()]
    assert not any(name.startswith("sm90/sparse_") for names in dense for name in names)


def test_the_launcher_compiles_alike_with_every_python() -> None:
    """Macros that count references or check types differ between the headers of one stable ABI."""
    differing = re.compile(r"\bPy_X?(?:INCREF|DECREF|NewRef)\b|\bPy_RETURN_\w+|\bPy(?:Float|CFunction)_Check\b")
    sources = sorted((ROOT / "package" / "csrc" / "launcher").rglob("*.[ch]*"))
    found = [f"{path.name}: {match}" for path in sources for match in differing.findall(path.read_text())]
    assert len(sources) > 15
    assert not found
