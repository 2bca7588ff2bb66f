"""Writes a CycloneDX SBOM of a wheel: what others wrote that is compiled or linked into it, with licences (PEP 770)."""

from __future__ import annotations

import argparse
import os
import platform
import re
import uuid
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]
NAME = "pyproject.toml"
LICENCE = re.compile(r'^license = "(.+)"$', re.MULTILINE)
CUDA_EULA = DisjunctiveLicense(
    name="NVIDIA CUDA Toolkit End User License Agreement", url=XsUri("https://docs.nvidia.com/cuda/eula/index.html")
)
LICENCES: dict[str, License] = {
    "nvidia-cutlass": LicenseExpression("BSD-3-Clause"),
    "nvidia-cuda-cccl": LicenseExpression("Apache-2.0 WITH LLVM-exception"),
    "nvidia-cuda-runtime": CUDA_EULA,
    "libstdc++": LicenseExpression("GPL-3.0-or-later WITH GCC-exception-3.1"),
}
HOW = {
    "nvidia-cutlass": "headers compiled into the kernels",
    "nvidia-cuda-cccl": "headers compiled into the kernels",
    "nvidia-cuda-runtime": "libcudart_static.a, linked in",
    "libstdc++": "libstdc++.a, linked in",
}


def part(name: str, compiler: str) -> Component:
    """Describe one part: a distribution that the build environment holds, or the compiler's C++ library."""
    of_compiler = name == "libstdc++"
    number = compiler if of_compiler else version(name)
    url = PackageURL("generic" if of_compiler else "pypi", name="gcc" if of_compiler else name, version=number)
    return Component(
        name=name,
        version=number,
        type=ComponentType.LIBRARY,
        description=HOW[name],
        licenses=[LICENCES[name]],
        purl=url,
        bom_ref=str(url),
    )


def licence(project: str, root: Path = ROOT) -> str:
    """Return the licence expression that the ``pyproject.toml`` of a distribution states, which METADATA repeats.

    Raises
    ------
    SystemExit
        None of the projects is this distribution's.
    """
    # Python 3.10, which builds wheels too, reads no TOML.
    texts = [path.read_text(encoding="utf-8") for path in (root / NAME, *root.glob(f"generated/*/{NAME}"))]
    for text in texts:
        found = LICENCE.search(text)
        if f'\nname = "{project}"\n' in text and found:
            return found[1]
    raise SystemExit(f"no pyproject.toml of {root} states the licence of {project}")


def bom(project: str, number: str, linked: list[str], compiler: str) -> Bom:
    """Return the bill of materials; equal inputs give equal bytes."""
    project = project.replace("_", "-")
    root = Component(
        name=project,
        version=number,
        type=ComponentType.LIBRARY,
        licenses=[LicenseExpression(licence(project))],
        purl=PackageURL("pypi", name=project, version=number),
        bom_ref=f"pkg:pypi/{project}@{number}",
        external_references=[
            ExternalReference(type=ExternalReferenceType.BUILD_META, url=XsUri(f"urn:machine:{platform.machine()}"))
        ],
    )
    parts = [part(name, compiler) for name in linked]
    made = Bom(components=parts)
    made.metadata.component = root
    made.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    key = " ".join([root.bom_ref.value or "", *(str(each.bom_ref.value) for each in parts), platform.machine()])
    made.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, key)
    made.register_dependency(root, parts)
    return made


def main() -> None:
    """Write the SBOM of one distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project")
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--linked", default="", help="what is compiled or linked in, separated by commas")
    parser.add_argument("--compiler", required=True, help="the version of g++")
    options = parser.parse_args()
    linked = [name for name in options.linked.split(",") if name]
    options.folder.mkdir(parents=True, exist_ok=True)
    text = JsonV1Dot6(bom(options.project, options.version, linked, options.compiler)).output_as_string(indent=1)
    (options.folder / f"{options.project.replace('_', '-')}.cdx.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
