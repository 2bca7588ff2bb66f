"""The checks of machine code notice a spill, a kernel without tensor cores, and a variant without a kernel."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from ci.measure import instructions

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("machine_code", ROOT / "package" / "tools" / "machine_code.py")
assert SPEC is not None
assert SPEC.loader is not None
machine_code = importlib.util.module_from_spec(SPEC)
sys.modules["machine_code"] = machine_code
SPEC.loader.exec_module(machine_code)
Kernel, launched, unclaimed = machine_code.Kernel, machine_code.launched, machine_code.unclaimed
ELEMENTS = [
    ("half_t", "half_t"),
    ("bfloat16_t", "bfloat16_t"),
    ("float_e4m3_t", "half_t"),
    ("float_e4m3_t", "bfloat16_t"),
]
DTYPE = {name: number for number, name in enumerate(("fp32", "fp16", "bf16", "e4m3", "fp8_ds_mla"))}


def variants() -> list[dict]:
    return json.loads((ROOT / "generated" / "sm100" / "registry.json").read_text())["variants"]


def kernel(name: str, cubin: str):
    return Kernel(f"{name}@{cubin}", name, cubin, 255, 1024, 0)


@pytest.fixture
def library() -> list:
    """The kernels of a whole sm100 library, as ``cuobjdump`` and ``c++filt`` name them."""
    mla = "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaKernelTmaWarpspecialized<cute::tuple<int>, "
    reduction = "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaReductionKernel<"
    found = []
    for element, out in ELEMENTS:
        for schedule in ("Individual", "Persistent"):
            for is_async in ("true", "false"):
                cubin = f"{element} {schedule} {is_async}"
                found.append(
                    kernel(
                        f"{mla}cutlass::{element}, float, cutlass::{out}, float, "
                        f"cutlass::fmha::kernel::Sm100Mla{schedule}TileScheduler, {is_async}> >(Params)",
                        cubin,
                    )
                )
                merges = kernel(f"{reduction}cutlass::{out}, float, float, 128ul, 512ul, 256> >(Params)", cubin)
                found += [merges] if merges not in found else []
    for out in ("half_t", "bfloat16_t"):
        found.append(
            kernel(f"{reduction}cutlass::{out}, float, float, 128ul, 512ul, 256> >(Params)", "sm100 merge_states")
        )
    for variant in variants():
        types = [f"(mla::DType){DTYPE[value]}" for trait, value in variant["baked"].items() if "dtype" in trait]
        folder = "sm100" if variant["baked"].get("schedule") == "reduction" else "cuda"
        if variant["op"] not in ("decode", "sparse_decode"):
            name = f"void mla::{folder}::{variant['op']}::run_kernel<{', '.join([*types, 'true'])}>(Problem)"
            found.append(kernel(name, f"{folder} {variant['op']}"))
    return [*found, kernel("void mla::sm100::rows::prepare_rows_kernel<uint4>(mla::sm100::RowShape)", "rows")]


def test_every_variant_has_kernels_and_every_kernel_a_variant(library):
    assert [variant["name"] for variant in variants() if not launched(variant, library)] == []
    assert unclaimed(variants(), library) == []


def test_a_kernel_belongs_to_variants_of_its_own_traits_only(library):
    for variant in variants():
        for found in launched(variant, library):
            if "run_kernel" in found.name:
                folder = "sm100" if variant["baked"].get("schedule") == "reduction" else "cuda"
                types = [f"(mla::DType){DTYPE[value]}" for name, value in variant["baked"].items() if "dtype" in name]
                assert found.name.startswith(f"void mla::{folder}::{variant['op']}::run_kernel<{', '.join(types)}"), (
                    variant
                )
            if "TileScheduler" in found.name:
                assert variant["baked"]["schedule"].capitalize() + "TileScheduler" in found.name
                assert f"{str(variant['baked']['load'] == 'cpasync').lower()}> >" in found.name
            if "Reduction" in found.name and variant["op"] != "merge_states":
                assert found.cubin_sha256 in {each.cubin_sha256 for each in launched(variant, library) if each != found}


def test_every_missing_kernel_is_missed(library):
    own = [found for found in library if "rows::" not in found.name and "Reduction" not in found.name]
    assert own
    for gone in own:
        rest = [found for found in library if found.name != gone.name]
        assert [variant for variant in variants() if not launched(variant, rest)], gone.name


def test_a_foreign_kernel_is_found(library):
    foreign = kernel("void mla::cuda::gather_kv::gather_kernel<(mla::DType)0, (mla::DType)0, true>(Arguments)", "x")
    assert unclaimed(variants(), [*library, foreign]) == [foreign]


def test_a_spill_is_found():
    name = "void mla::cuda::store_kv::store_kernel<(mla::DType)1, (mla::DType)1, true>(Arguments)"
    assert instructions.problems([instructions.Kernel(name, 90, 0, 144, 0)]) == [
        f"{name}: 144 bytes of stack: it spills"
    ]
    assert instructions.problems([instructions.Kernel(name, 90, 0, 0, 0)]) == []


def test_a_kernel_without_tensor_cores_is_found(library):
    name = library[0].name
    assert "Sm100FmhaMlaKernel" in name
    assert instructions.problems([instructions.Kernel(name, 255, 0, 0, 48)]) == []
    assert instructions.problems([instructions.Kernel(name, 255, 0, 0, 0)]) == [f"{name}: no tensor-core instruction"]


def test_serialised_products_are_found():
    name = "void mla::sm90::decode::attend<(mla::DType)2, (mla::DType)2>(mla::sm90::Params)"
    assert instructions.problems([instructions.Kernel(name, 128, 1024, 0, 44, 5)]) == []
    assert instructions.problems([instructions.Kernel(name, 128, 1024, 0, 44, 44)]) == [
        f"{name}: 44 wgmma instructions in 44 groups: the compiler has serialised them"
    ]


@pytest.mark.parametrize(("end", "groups"), [("", 0), (", gsb0", 1)])
def test_an_instruction_that_ends_a_group_is_counted(monkeypatch, end, groups):
    text = {
        "-sass": f"Function : k\n /*5620*/ HGMMA.64x64x16.F32.BF16 R24, R56, gdesc[UR4], R24{end} ;\n",
        "-res-usage": "Function k:\n REG:128 STACK:0 SHARED:1024",
    }
    monkeypatch.setattr(
        instructions, "_run", lambda tool, option="", *_, stdin="": "k" if tool == "c++filt" else text[option].strip()
    )
    (found,) = instructions.kernels(Path("library.so")).values()
    assert (found.tensor_core_instructions, found.wgmma_groups) == (1, groups)


def test_names_are_read_with_the_enumerators_of_csrc():
    common = ROOT / "package" / "csrc" / "common"
    text = (common / "dtype.h").read_text() + (common / "traits.h").read_text()
    declared = {
        name: tuple(body.replace(",", " ").split())
        for name, body in re.findall(r"enum class (\w+) : int32_t \{([^}]*)\}", text)
    }
    assert declared == machine_code.ENUMERATORS


def test_schedules_of_the_same_types_have_their_own_kernels():
    registry = json.loads((ROOT / "generated" / "sm90" / "registry.json").read_text())
    codes = [each for each in registry["variants"] if each["op"] == "decode" and each["baked"]["kv_dtype"] == "e4m3"]
    schedule = {name: number for number, name in enumerate(machine_code.ENUMERATORS["Schedule"])}
    found = [
        kernel(
            "void mla::sm90::decode::attend<(mla::DType)2, (mla::DType)3, (mla::DType)2, (mla::Load)1, "
            f"(mla::Schedule){schedule[each['baked']['schedule']]}, 1>(mla::sm90::Params)",
            "one",
        )
        for each in codes
    ]
    assert len(codes) == 2
    assert [launched(each, found) for each in codes] == [[own] for own in found]


def test_one_kernel_may_be_of_several_ops():
    """Sparse prefill launches the kernel that sparse decode compiles, of its own types."""
    registry = json.loads((ROOT / "generated" / "sm90" / "registry.json").read_text())
    sparse = [each for each in registry["variants"] if each["op"].startswith("sparse_")]
    numbers = {
        kind: {name: number for number, name in enumerate(names)} for kind, names in machine_code.ENUMERATORS.items()
    }

    def attends(q: str, kv: str):
        types = ", ".join(f"(mla::DType){numbers['DType'][name]}" for name in (q, kv, q))
        traits = f"(mla::Load){numbers['Load']['gather']}, (mla::Schedule){numbers['Schedule']['compute']}"
        params = "mla::sm90::sparse::SelectedParams"
        return kernel(f"void mla::sm90::sparse::attend_selected<{types}, {traits}, 1>({params})", "one")

    found = {pair: attends(*pair) for pair in (("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "fp8_ds_mla"))}
    assert {each["op"] for each in sparse} == {"sparse_decode", "sparse_prefill"}
    for each in sparse:
        own = found[each["baked"]["q_dtype"], each["baked"]["kv_dtype"]]
        assert launched(each, list(found.values())) == [own], each["name"]
    assert unclaimed(sparse, list(found.values())) == []
