"""The checks of machine code notice a spill, a kernel without tensor cores, and a variant without a kernel."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import cuobjdump
import manifest
import pytest
import variant_kernels
from cuobjdump import Kernel
from variant_kernels import VariantKernels

from ci.measure import instructions

ROOT = Path(__file__).parents[3]
REGISTRIES = {
    project.parent.name: json.loads(project.with_name("registry.json").read_text())
    for project in sorted(ROOT.glob("generated/*/pyproject.toml"))
}
CUTLASS_TYPE = {"fp16": "half_t", "bf16": "bfloat16_t", "e4m3": "float_e4m3_t"}

LISTING = """
		Function : kernel
	.headerflags	@"EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                                     /* 0x00000a00ff017b82 */
                                                                                              /* 0x000fe20000000800 */
        /*5e80*/                   HGMMA.{shape} R24, R128, gdesc[UR16], RZ, !UPT ;           /* 0x00e0001080187df0 */
                                                                                              /* 0x000fe2000c7018ff */
        /*5eb0*/                   HGMMA.{shape} R24, R124, gdesc[UR16], R24 ;                /* 0x00e000107c187df0 */
                                                                                              /* 0x000fe20008701818 */
        /*6030*/                   HGMMA.{shape} R24, R68, gdesc[UR16], R24, gsb0 ;           /* 0x00e0001044187df0 */
                                                                                              /* 0x000fe60008001818 */
        /*6040*/              @!P0 BRA 0xa340 ;                                               /* 0x0000009800a88947 */
                                                                                              /* 0x000fea0003800000 */
"""
"""Lines of the machine code of Hopper's kernels, shortened."""

BLACKWELL = """
		Function : kernel
	.headerflags	@"EF_CUDA_SM100 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM100)"
        /*7b60*/                   UTC{kind}MMA.2CTA gdesc[UR24], gdesc[UR40], tmem[UR11], tmem[UR22], idesc[UR23], UP0 ;  /* 0x00ff1628180075ea */
                                                                                              /* 0x0003e2000820000b */
        /*7b70*/                   UMOV UR34, UR26 ;                                          /* 0x0000001a00227c82 */
                                                                                              /* 0x000fe20008000000 */
"""  # noqa: E501
SHARED = {
    "sm90": ["mla::sm90::scheduler::plan_kernel(S)", "void mla::sm90::combine::combine_kernel<(mla::DType)2, true>(P)"],
    "sm100": ["void mla::sm100::batch_rows::prepare_rows_kernel<uint4>(mla::sm100::RowShape)"],
}
SHAPE = {"fp16": "64x64x16.F32", "bf16": "64x64x16.F32.BF16"}


def listing(variant: dict) -> str:
    """What ``cuobjdump -sass`` prints of a variant's own kernel, in short."""
    if variant["arch"] == "sm100f":
        return BLACKWELL.format(kind="Q" if variant["baked"]["q_dtype"] == "e4m3" else "H")
    swapped = variant["baked"]["schedule"] == "swap_ab"
    return LISTING.format(shape="64x16x16.F32" if swapped else SHAPE[variant["baked"]["q_dtype"]])


def without_products(text: str) -> str:
    """A listing from which the tensor-core instructions are struck, with the second halves of their encodings."""
    return re.sub(r".*\b(?:HG|UTC[HQ])MMA\b.*\n.*\n", "", text)


def kernel(name: str, cubin: str = "", code: tuple[str, ...] = (), stack: int = 0) -> Kernel:
    usage = f"REG:128 STACK:{stack} SHARED:1024"
    return Kernel(f"{name}@{cubin}", name, cubin, usage, code)


def traits(variant: dict) -> str:
    """The template arguments of a kernel of ours, as ``c++filt`` writes them; they leave out the usual widths."""
    enumerators = REGISTRIES["sm90"]["enumerators"]
    kinds = {"load": "Load", "schedule": "Schedule"}
    return ", ".join(
        f"(mla::{kind}){enumerators[kind].index(value)}"
        for trait, value in variant["baked"].items()
        if isinstance(value, str) and trait not in {"extra_kv_dtype", "compute_dtype"}
        for kind in [kinds.get(trait, "DType")]
    )


def names_of(variant: dict) -> list[tuple[str, str]]:
    """The names of a variant's own kernels, each with the cubin it lies in."""
    op, baked = variant["op"], variant["baked"]
    if not variant["tensor_cores"]:
        folder = "sm100" if baked.get("schedule") == "reduction" else "cuda"
        arguments = traits({"baked": {name: value for name, value in baked.items() if name.endswith("_dtype")}})
        return [
            (f"void mla::{folder}::{op}::run_kernel<{', '.join(filter(None, [arguments, 'true']))}>(P)", folder + op)
        ]
    if variant["arch"] == "sm90a":
        params = f"mla::sm90::{'decode' if op == 'decode' else 'sparse_decode'}::Params"
        place = f"mla::sm90::{baked['schedule']}::attention_kernel"
        extra = REGISTRIES["sm90"]["enumerators"]["ExtraKv"].index(baked.get("extra_kv_dtype", "same"))
        compute = ", (mla::ComputeDType)1" if baked.get("compute_dtype") == "e4m3" else ""
        more = (
            (f", (mla::ExtraKv){extra}{compute}", f", {baked['d_qk']}, {baked['d_v']}")
            if baked["schedule"] == "rows_m64"
            else ("", "")
        )
        return [
            (f"void {place}<{params}, {traits(variant)}{more[0]}, {last}{more[1]}>({params})", "one") for last in (1, 2)
        ]
    types = f"cutlass::{CUTLASS_TYPE[baked['q_dtype']]}, float, cutlass::{CUTLASS_TYPE[baked['out_dtype']]}, float"
    schedule, is_async = baked["schedule"].capitalize(), str(baked["load"] == "cpasync").lower()
    latent = f"cute::C<{baked['d_v']}>"
    tile = f"cute::tuple<cute::C<128>, cute::C<128>, cute::tuple<{latent}, cute::C<64> > >"
    mla = f"Sm100FmhaMlaKernelTmaWarpspecialized<{tile}, {types}, "
    name = f"{mla}cutlass::fmha::kernel::Sm100Mla{schedule}TileScheduler, {is_async}>"
    cubin = types + latent + schedule + is_async
    return [(f"void cutlass::device_kernel<cutlass::fmha::kernel::{name} >(Params)", cubin)]


def gathers(variant: dict) -> list[str]:
    """The kernels that gather the rows of two caches for a variant of Blackwell."""
    baked = variant["baked"]
    if variant["arch"] != "sm100f" or variant["op"] != "sparse_decode" or baked["load"] != "gather":
        return []
    numbers = REGISTRIES["sm100"]["enumerators"]["DType"].index
    extra = baked.get("extra_kv_dtype", "same")
    formats = (baked["kv_dtype"], baked["kv_dtype"] if extra == "same" else extra, baked["out_dtype"])
    types = ", ".join(f"(mla::DType){numbers(name)}" for name in formats)
    return [f"void mla::sm100::gather_selected::gather_kernel<{types}, {baked['d_qk']}, true>(Selected)"]


def reduction(variant: dict) -> str:
    out = CUTLASS_TYPE[variant["baked"]["out_dtype"]]
    arguments = f"cutlass::{out}, float, float, 128ul, {variant['baked'].get('d_v', 512)}ul, 256"
    return f"void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaReductionKernel<{arguments}> >(Params)"


def library(payload: str) -> list[Kernel]:
    """The kernels of a whole library, as ``cuobjdump`` and ``c++filt`` name them."""
    found: dict[tuple[str, str], Kernel] = {}
    for variant in REGISTRIES[payload]["variants"]:
        code = cuobjdump.instructions(listing(variant))["kernel"] if variant["tensor_cores"] else ()
        found |= {(name, ""): kernel(name) for name in gathers(variant)}
        for name, cubin in names_of(variant):
            found[name, cubin] = kernel(name, cubin, code)
            if "cutlass" in name or variant["baked"].get("schedule") == "reduction":
                found[reduction(variant), cubin] = kernel(reduction(variant), cubin)
    return [*found.values(), *map(kernel, SHARED.get(payload, ()))]


@pytest.fixture(params=REGISTRIES)
def payload(request) -> str:
    return request.param


def test_every_variant_has_kernels_and_every_kernel_a_variant(payload):
    assert list(VariantKernels(REGISTRIES[payload], library(payload)).unpaired()) == []
    assert list(VariantKernels(REGISTRIES[payload], library(payload)).without_tensor_cores()) == []


def test_a_kernel_belongs_to_variants_of_its_own_traits_only(payload):
    found = VariantKernels(REGISTRIES[payload], library(payload))
    for variant in found.variants:
        wanted = {name for name, _ in names_of(variant)}
        assert {each.name for each in found.own[variant["name"]]} == wanted
        launched = {each.name for each in found.launched[variant["name"]]}
        assert {name for name in launched if "gather_selected" in name} == set(gathers(variant))
        for each in found.launched[variant["name"]]:
            if "Reduction" in each.name and variant["op"] != "merge_states":
                assert each.cubin_sha256 in {own.cubin_sha256 for own in found.own[variant["name"]]}


def test_every_missing_kernel_is_missed(payload):
    kernels = library(payload)
    for variant in REGISTRIES[payload]["variants"]:
        own = {name for name, _ in names_of(variant)}
        rest = [each for each in kernels if each.name not in own]
        problems = list(VariantKernels(REGISTRIES[payload], rest).unpaired())
        assert f"{variant['name']}: no kernel in the library" in problems


def test_a_foreign_kernel_is_found(payload):
    foreign = kernel("void mla::cuda::gather_kv::gather_kernel<(mla::DType)0, (mla::DType)0, true>(Arguments)")
    found = VariantKernels(REGISTRIES[payload], [*library(payload), foreign])
    assert list(found.unpaired()) == [f"{foreign.name}: no variant launches it"]


TENSOR_CORES = [
    pytest.param(payload, variant, id=variant["name"])
    for payload, registry in REGISTRIES.items()
    for variant in registry["variants"]
    if variant["tensor_cores"]
]


@pytest.mark.parametrize(("payload", "variant"), TENSOR_CORES)
def test_a_kernel_that_lost_its_tensor_cores_is_found_by_name(payload, variant):
    kernels = library(payload)
    (lost, _), *_ = names_of(variant)
    code = cuobjdump.instructions(without_products(listing(variant)))["kernel"]
    assert code
    assert len(code) < len(cuobjdump.instructions(listing(variant))["kernel"])
    damaged = [dataclasses.replace(each, instructions=code) if each.name == lost else each for each in kernels]
    problems = list(VariantKernels(REGISTRIES[payload], damaged).without_tensor_cores())
    assert f"{variant['name']}: {lost}: no tensor-core instruction" in problems
    assert all(lost in problem for problem in problems)
    assert set(problems) <= set(instructions.problems(VariantKernels(REGISTRIES[payload], damaged)))


def test_a_build_stops_where_tensor_cores_are_lost_but_for_stand_ins_of_tests(payload):
    plain = [dataclasses.replace(each, instructions=()) for each in library(payload)]
    found = VariantKernels(REGISTRIES[payload], plain)
    with pytest.raises(SystemExit, match="no tensor-core instruction"):
        manifest.require_kernels(found, plain=False)
    manifest.require_kernels(found, plain=True)
    with pytest.raises(SystemExit, match="no kernel in the library"):
        manifest.require_kernels(VariantKernels(REGISTRIES[payload], []), plain=True)


def test_tensor_cores_are_wanted_of_every_attention_on_a_gpu():
    """Only ops that multiply no matrices do without them."""
    for registry in REGISTRIES.values():
        for variant in registry["variants"]:
            plain = variant["op"] in ("merge_states", "store_kv", "gather_kv", "to_global_indices")
            assert variant["tensor_cores"] == (not plain), variant["name"]


def test_a_spill_is_found(payload):
    name = "void mla::cuda::store_kv::store_kernel<(mla::DType)1, (mla::DType)1, true>(Arguments)"
    for stack, told in ((144, [f"{name}: 144 bytes of stack: it spills"]), (0, [])):
        found = VariantKernels(REGISTRIES[payload], [kernel(name, stack=stack)])
        assert list(instructions.problems(found)) == told


def test_an_empty_library_is_found(payload):
    assert list(instructions.problems(VariantKernels(REGISTRIES[payload], []))) == ["it holds no kernel"]


@pytest.mark.parametrize(("ended", "serialised"), [(5, False), (44, True)])
def test_serialised_products_are_found(ended, serialised):
    product = "HGMMA.64x64x16.F32.BF16 R24, R56, gdesc[UR4], R24"
    code = tuple(f"{product}{', gsb0' if index < ended else ''} ; 0x0 0x0" for index in range(44))
    found = kernel("void mla::sm90::rows_m64::attention_kernel<(mla::DType)2>(Params)", code=code)
    assert (found.tensor_core_instructions, found.wgmma_groups) == (44, ended)
    told = [f"{found.name}: 44 wgmma instructions in 44 groups: the compiler has serialised them"]
    assert list(instructions.problems(VariantKernels(REGISTRIES["sm90"], [found]))) == (told if serialised else [])


@pytest.mark.parametrize(("moves", "too_many"), [(1, False), (2, True)])
def test_descriptors_that_are_moved_for_every_product_are_found(moves, too_many):
    product = "HGMMA.64x32x16.F32.BF16 R24, R56, gdesc[UR4], R24 ; 0x0 0x0"
    far = ["R2UR UR8, R3 ; 0x0 0x0"] * 9 + ["FADD R1, R1, R2 ; 0x0 0x0"] * 12
    code = (*far, *([*["R2UR UR4, R2 ; 0x0 0x0"] * moves, product, product[:-1] + "1"] * 10), *far)
    found = kernel("void mla::sm90::swap_ab::attention_kernel<(mla::DType)2>(Params)", code=code)
    assert (found.tensor_core_instructions, found.descriptor_moves) == (20, 10 * moves)
    assert not list(instructions.problems(VariantKernels(REGISTRIES["sm90"], [found])))
    alone = tuple(text for text in code if not text.endswith("1"))
    found = kernel(found.name, code=alone)
    told = [
        f"{found.name}: {10 * moves} moves to uniform registers before 10 wgmma instructions: "
        "a branch has made the warps divergent"
    ]
    assert list(instructions.problems(VariantKernels(REGISTRIES["sm90"], [found]))) == (told if too_many else [])


def test_the_namespaces_of_shared_kernels_are_those_of_csrc():
    sources = (path for path in (ROOT / "package" / "csrc").rglob("*.c*") if path.suffix in (".cu", ".cuh"))
    declared = {
        name for path in sources for name in re.findall(r"^namespace ([\w:]+) \{", path.read_text(), re.MULTILINE)
    }
    assert {*variant_kernels.SHARED} <= {name.rpartition("::")[2] for name in declared}


def test_schedules_of_the_same_types_have_their_own_kernels():
    found = VariantKernels(REGISTRIES["sm90"], library("sm90"))
    fp8 = [each for each in found.variants if each["op"] == "decode" and each["baked"]["kv_dtype"] == "e4m3"]
    assert {each["baked"]["schedule"] for each in fp8} == {"rows_m64", "swap_ab"}
    assert not set(found.own[fp8[0]["name"]]) & set(found.own[fp8[1]["name"]])


def test_one_kernel_may_be_of_several_ops():
    """Sparse prefill launches the kernel that sparse decode compiles, of its own types."""
    found = VariantKernels(REGISTRIES["sm90"], library("sm90"))
    own: dict[str, set[Kernel]] = {}
    for variant in found.variants:
        own.setdefault(variant["op"], set()).update(found.own[variant["name"]])
    assert own["sparse_prefill"]
    assert own["sparse_prefill"] <= own["sparse_decode"]
    assert not own["sparse_decode"] & own["decode"]
