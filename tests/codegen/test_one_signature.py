"""An argument that is added in one place, a row of an op, reaches everything that has a signature."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAUSAL = """        Scalar(
            "causal",
"""
CAP = 'Scalar("logits_soft_cap", "float", "finite", 0.0, doc="Logits stay below it; 0 for no cap.")'
OUT = """        Tensor("out", "out_dtype", *PER_QUERY, "d_v", role="output", doc="0 where a token sees no key."),
"""
BIAS = 'Tensor("bias", "float32", ("batch", "q_len"), ("b", "s"), optional=True, keyword=True)'
LAUNCH = """
import sys
from types import ModuleType, SimpleNamespace

from codegen import abi

launcher = ModuleType("mla_kernels._launcher")
launcher.OPS = {op.name: tuple(argument.name for argument in op.arguments) for op in abi.OPS}
sys.modules[launcher.__name__] = launcher
from mla_kernels.kernels.ops import DecodeKernel
from mla_kernels.payloads.registry import Variant

taken = []
native = SimpleNamespace(launch=lambda *arguments: taken.extend(arguments))
kernel = DecodeKernel(Variant("any", "decode", "cpu", "any", 0, {}, {}), {}, lambda limits: native, {})
kernel(1, 2, None, 3, out=4, lse=5, softmax_scale=6.0, **{NAME: 7.0})
assert dict(zip(launcher.OPS["decode"], taken))[NAME] == 7.0, taken
"""


class Copy:
    """A copy of the generator and of the package's Python, in which an op gets an argument more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("codegen", "templates", "licenses", "generated", "package/mla_kernels"):
            skip = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=skip)
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copy(ROOT / name, folder)

    def change(self, old: str, new: str) -> None:
        path = self.folder / "codegen" / "ops" / "attention.py"
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def add(self, row: str, before: str) -> None:
        self.change(before, f"        {row},\n{before}")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": f"{self.folder}:{self.folder / 'package'}", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def read(self, name: str) -> str:
        return (self.folder / "generated" / name).read_text()


@pytest.fixture
def copy(tmp_path) -> Copy:
    return Copy(tmp_path)


def body(text: str, start: str, end: str) -> str:
    """The part of a text from one mark to the next."""
    return text[text.index(start) :].partition(end)[0]


def test_a_scalar_of_decode_reaches_every_signature(copy):
    before = copy.read("include/mla/abi.h")
    copy.add(CAP, before=CAUSAL)
    done = copy.run("-m", "codegen", "generate")
    assert done.returncode == 0, done.stderr
    name = "logits_soft_cap"
    header = copy.read("include/mla/abi.h")
    assert f"  float {name};\n" in body(header, "typedef struct mla_decode_problem", "} mla_decode_problem")
    defined = re.compile(r'MLA_ABI_HASH "(\w+)"')
    assert defined.findall(header) != defined.findall(before)
    assert f"offsetof(mla_decode_problem, {name})" in copy.read("abi_layout.cpp")
    assert f'{{"{name}", Kind::float32, Check::finite' in copy.read("include/mla/bindings.h")
    assert f"        {name}: float,\n" in body(copy.read("python/_launcher.pyi"), "class DecodeLaunch", "/,")
    assert f'"float {name}, "' in body(copy.read("python/api/signatures.py"), '"decode": Signature(', ") -> ")
    public = body(copy.read("python/api/ops.py"), "def decode(", "\n\n\ndef ")
    assert f"    {name}: float = 0.0,\n" in public
    assert f"    {name} : float\n        Logits stay below it; 0 for no cap.\n" in public
    assert f'            "{name}": {name},\n' in public, "a graph gets it"
    assert f"        {name}={name},\n" in public, "the kernel gets it"
    assert copy.run("-m", "codegen", "check").returncode == 0


@pytest.mark.parametrize(
    ("name", "row", "before"), [("logits_soft_cap", CAP, CAUSAL), ("bias", BIAS, OUT)], ids=["scalar", "tensor"]
)
def test_its_value_arrives_where_the_launcher_expects_it(copy, name, row, before):
    copy.add(row, before)
    assert copy.run("-m", "codegen", "generate").returncode == 0
    done = copy.run("-c", LAUNCH.replace("NAME", repr(name)))
    assert done.returncode == 0, done.stderr


def test_the_struct_is_laid_out_as_python_says(copy):
    copy.add(CAP, before=CAUSAL)
    copy.run("-m", "codegen", "generate")
    command = ["g++", "-std=c++17", "-fsyntax-only", "-Iinclude", "abi_layout.cpp"]
    subprocess.run(command, cwd=copy.folder / "generated", check=True)


def test_what_is_told_as_another_op_must_be_added_to_both(copy):
    copy.change("    (*SCALES, MAX_SPLITS),\n", f"    (*SCALES, MAX_SPLITS, {CAP}),\n")
    refused = copy.run("-m", "codegen", "generate")
    assert refused.returncode == 1
    assert re.match(r"as_decode: nothing gives sparse_decode\.logits_soft_cap a value; add it to", refused.stderr)
    copy.change("    FLOAT_SCALES,\n    selects", f"    (*FLOAT_SCALES, {CAP}),\n    selects")
    done = copy.run("-m", "codegen", "generate")
    assert done.returncode == 0, done.stderr
    assert "  result.logits_soft_cap = problem.logits_soft_cap;\n" in copy.read("include/mla/conversions.h")
