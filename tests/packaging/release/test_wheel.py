"""What the built wheel holds and how its libraries bind."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path

import mla_kernels
import pytest

PACKAGE = Path(mla_kernels.__file__).parent
PAYLOAD = PACKAGE / "payloads" / "cpu" / "libmla_cpu.so"
LAUNCHER = PACKAGE / "_launcher.abi3.so"


def dynamic(path: Path, *flags: str) -> str:
    return subprocess.run(["readelf", *flags, "--wide", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", [PAYLOAD, LAUNCHER], ids=lambda path: path.name)
def test_libraries_need_neither_torch_nor_python_nor_cuda(path):
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic(path, "-d"))
    assert needed
    assert all(re.match(r"lib(stdc\+\+|m|gcc_s|c|pthread|dl)\.so|ld-linux", name) for name in needed), needed


@pytest.mark.parametrize("path", [PAYLOAD, LAUNCHER], ids=lambda path: path.name)
def test_libraries_hold_no_path_of_their_build(path):
    """A run path that was blanked out is a row of zeros among the strings, as long as the path was."""
    (section,) = re.findall(r" \.dynstr +STRTAB +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", dynamic(path, "--sections"))
    at, size = (int(number, 16) for number in section)
    assert b"\0\0" not in path.read_bytes()[at : at + size]


def test_the_payload_exports_the_c_abi_and_its_instruction_set():
    """``mla_cpu_isa`` is what ``mla-kernels info`` asks; nothing else is exported."""
    exported = {
        line.split()[-1].split("@")[0]
        for line in dynamic(PAYLOAD, "--dyn-syms").splitlines()
        if re.search(r"\b(GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+\d+", line)
    }
    header = (Path(__file__).parents[3] / "generated" / "include" / "mla" / "abi.h").read_text()
    assert exported == {*re.findall(r"MLA_EXPORT [^;]*?(mla_\w+)\(", header), "mla_cpu_isa"}


def test_the_wheel_is_abi3_typed_and_licensed():
    distribution = metadata.distribution("mla-kernels")
    wheel = distribution.read_text("WHEEL") or ""
    assert re.search(r"^Tag: cp310-abi3-", wheel, re.MULTILINE)
    files = {str(path) for path in distribution.files or ()}
    assert {"mla_kernels/py.typed", "mla_kernels/_launcher.pyi", "mla_kernels/payloads/cpu/registry.json"} <= files
    assert any(path.endswith("licenses/LICENSE") for path in files)
    assert not [path for path in files if path.startswith(("codegen", "tests", "generated")) or path.endswith(".cpp")]


def test_torch_is_an_extra():
    requires = metadata.requires("mla-kernels") or []
    assert [line for line in requires if "extra ==" not in line] == []


GENERATED = Path(__file__).parents[3] / "generated" / "python"


@pytest.mark.parametrize("name", sorted(str(path.relative_to(GENERATED)) for path in GENERATED.rglob("*.py*")))
def test_rendered_modules_are_in_the_wheel_where_they_are_in_generated(name):
    assert (PACKAGE / name).read_text() == (GENERATED / name).read_text()


def test_the_readme_of_an_index_has_whole_addresses():
    """A page of an index has no repository around it, so that a relative link leads nowhere."""
    readme = metadata.distribution("mla-kernels").metadata.get_payload()
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", readme)
    assert len(targets) > 10
    assert not [target for pair in targets if not (target := "".join(pair)).startswith(("https://", "#"))]
