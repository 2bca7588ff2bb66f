"""The template contexts of a payload's own distribution: its project, its package and the licences of what it links."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegen.model import Arch, Matrix

ROOT = Path(__file__).parents[2]
CORE = "cpu"
"""The payload of the core wheel; every other payload is a distribution of its own."""


@dataclass(frozen=True)
class Needs:
    """What the payloads of a device are built with, beside what all are, and what of it their wheels hold."""

    requires: tuple[str, ...] = ()
    license: str = "Apache-2.0"
    licenses: tuple[str, ...] = ()
    classifiers: tuple[str, ...] = ()


NEEDS = {
    "cpu": Needs(),
    "cuda": Needs(
        requires=("cuda-toolkit[cccl,cudart,cuobjdump,nvcc,nvdisasm]==13.4.3", "nvidia-cutlass==4.2.0.0"),
        license="Apache-2.0 AND BSD-3-Clause AND LicenseRef-NVIDIA-CUDA",
        licenses=("CUTLASS.txt", "NVIDIA-CUDA.txt"),
        classifiers=("Environment :: GPU :: NVIDIA CUDA",),
    ),
}
BACKEND, SBOM = "scikit-build-core>=1.1", "cyclonedx-python-lib>=11"


def folder(payload: str) -> str:
    """Where a payload's library and registry lie in its wheel."""
    return f"mla_kernels/payloads/{payload}" if payload == CORE else f"mla_kernels_{payload}"


def project(matrix: Matrix, arch: Arch) -> dict[str, Any]:
    """What the project and the package of a payload's wheel print."""
    needs = NEEDS[arch.device]
    shared = core_project()
    capabilities = " and ".join(arch.capabilities)
    return {
        "payload": arch.payload,
        "package": folder(arch.payload),
        "version": matrix.version,
        "target": f"compute capability {capabilities}" if capabilities else arch.name,
        "requires": [BACKEND, *sorted((SBOM, *needs.requires))],
        "license": needs.license,
        # A payload is data and machine code; the core has the Python, with its types.
        "classifiers": sorted({*needs.classifiers, *shared["classifiers"]} - {"Typing :: Typed"}),
        "keywords": shared["keywords"],
        "urls": shared["urls"],
    }


def core_project() -> dict[str, Any]:
    """The metadata of the core's distribution, whose keywords, classifiers and addresses the payloads share."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def licences(arch: Arch) -> dict[str, str]:
    """The licences of the project and of what its device's build links in, by file name."""
    paths = [ROOT / "LICENSE", *(ROOT / "licenses" / name for name in NEEDS[arch.device].licenses)]
    return {path.name: path.read_text(encoding="utf-8") for path in paths}
