"""Functions of two libraries are paired by their instructions: what was moved and renamed is equal, nothing else is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cuobjdump
import pytest
from cuobjdump import Cubin, DeviceCode, Kernel

from ci.measure import same_code
from ci.measure.functions import Function, gpu_functions, of_library
from ci.measure.same_code import Comparison

KERNEL = """
		Function : {symbol}
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                   /* 0x00000a00ff017b82 */
                                                                            /* 0x000fe20000000800 */
        /*0010*/               @P0 {opcode} R2, R3, R4 ;                    /* 0x0000000000027224 */
                                                                            /* {wait} */
        /*0020*/                   MOV R20, 32@lo({label}) ;   /* {address} */
                                                                            /* 0x000fe20000000f00 */
        /*0030*/                   BRA 0x10 ;                                /* 0xfffffffc00fc7947 */
                                                                            /* 0x000fc0000383ffff */
"""
PLAIN = {
    "symbol": "_ZN3old6kernelEv",
    "name": "old::kernel()",
    "opcode": "IMAD",
    "wait": "0x000fe200078e02ff",
    "label": "`(_ZN3old4nameE)",
    "address": "0x0000100000147802",
}
RENAMED = {
    "symbol": "_ZN3new5otherEv",
    "name": "new::other()",
    "label": "`(_ZN3new4nameE)",
    "address": "0x0000200000147802",
}
USAGE = "REG:{registers} STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:560"


def kernels(*changes: dict[str, str], registers: int = 64) -> list[Function]:
    """Kernels, each of a cubin of its own."""
    cubins = []
    for stated in ({**PLAIN, **change} for change in changes):
        code = cuobjdump.instructions("Fatbin elf code:\n" + KERNEL.format(**stated))[stated["symbol"]]
        kernel = Kernel(stated["symbol"], stated["name"], "", USAGE.format(registers=registers), code)
        cubins.append(Cubin("sm_90a", b"", (kernel,)))
    return gpu_functions(DeviceCode(tuple(cubins)))


def test_a_listing_is_read():
    (kernel,) = kernels({})
    assert kernel.name == "old::kernel()"
    assert kernel.usage == "REG:64 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:560"
    assert kernel.instructions == (
        "LDC R1, c[0x0][0x28] ; 0x00000a00ff017b82 0x000fe20000000800",
        "@P0 IMAD R2, R3, R4 ; 0x0000000000027224 0x000fe200078e02ff",
        "MOV R20, 32@lo(symbol) ; symbol",
        "BRA 0x10 ; 0xfffffffc00fc7947 0x000fc0000383ffff",
    )


def test_names_of_kernels_and_of_what_they_refer_to_do_not_count():
    found = Comparison.of(kernels({}), kernels(RENAMED))
    assert found.same
    assert found.counts() == "1 equal, 0 only in the old library, 0 only in the new one"


@pytest.mark.parametrize(
    ("change", "registers", "told"),
    [
        ({"opcode": "FMUL"}, 64, "opcodes: +1 FMUL, -1 IMAD"),
        ({"wait": "0x000fe400078e02ff"}, 64, "1 instructions are encoded otherwise"),
        ({}, 72, "resources: REG:64"),
    ],
)
def test_another_opcode_wait_or_register_count_is_a_difference(change, registers, told):
    (old,), (new,) = kernels({}), kernels(RENAMED | change, registers=registers)
    found = Comparison.of([old], [new])
    assert not found.same
    assert told in same_code.difference(old, new)
    assert "old::kernel()\n  -> new::other()" in same_code.difference(old, new)


def test_equal_functions_are_counted_as_often_as_they_occur():
    found = Comparison.of(kernels({}, {}), kernels({}))
    assert (len(found.equal), len(found.only_old), len(found.only_new)) == (1, 1, 0)
    assert list(found.likely_pairs()) == [(found.only_old[0], None)]


def test_what_differs_is_paired_by_name_then_by_likeness():
    old = kernels({"name": "a()"}, {"name": "b()", "opcode": "FADD"})
    new = kernels({"name": "a()", "opcode": "FADD", "wait": "0x0"}, {"name": "c()", "opcode": "FMUL"})
    pairs = {(one.name, other.name) for one, other in Comparison.of(old, new).likely_pairs() if one and other}
    assert pairs == {("a()", "a()"), ("b()", "c()")}


SOURCE = """
float {name}(const float* x, int n) {{
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * {factor} + {name}_other(i);
  return sum;
}}
"""


def compiled(folder: Path, name: str, *, factor: str = "x[0]", first: bool = False) -> Path:
    """A stripped library for the CPU, of a function that calls another and one with packed floats."""
    folder.mkdir()
    other = f'__attribute__((visibility("hidden"))) int {name}_other(int);\n'
    packed = (
        f"void {name}_scale(float* x) {{ for (int i = 0; i < 4; ++i) x[i] = x[i] * {factor.replace('0', '7')}; }}\n"
    )
    text = [other, SOURCE.format(name=name, factor=factor), packed]
    if first:
        text.insert(0, f"int {name}_more(int x) {{ return x / 10; }}\n")
    (folder / "code.c").write_text("".join(text))
    (folder / "other.c").write_text(f"int {name}_other(int x) {{ return x * 3; }}\n")
    command = ["gcc", "-O3", "-fPIC", "-shared", "-s", "-o", "lib.so", "code.c", "other.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "lib.so"


def test_functions_of_a_cpu_are_found_in_a_stripped_library_wherever_they_lie(tmp_path):
    old, new = compiled(tmp_path / "a", "one"), compiled(tmp_path / "b", "two", first=True)
    found = Comparison.of(of_library(old), of_library(new))
    assert not found.only_old
    assert len(found.only_new) == 1, "the function that was added"
    assert any(function.instruction_set == "baseline" for function in found.equal)
    assert same_code.required(found).same


def test_a_changed_function_of_packed_floats_counts_and_any_other_is_only_told(tmp_path, monkeypatch, capsys):
    old, new = compiled(tmp_path / "a", "one"), compiled(tmp_path / "b", "one", factor="x[1]")
    monkeypatch.setattr("sys.argv", ["same_code", str(old), str(old)])
    assert same_code.main() == 0
    monkeypatch.setattr("sys.argv", ["same_code", str(old), str(new)])
    assert same_code.main() == 1
    assert "1 only in the old library, 1 only in the new one" in capsys.readouterr().out
